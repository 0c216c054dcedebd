//! A proxy in front of a scripted origin, with a real store.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use larder_device::{Device, MemoryDevice, PanickingDevice};
use larder_proxy::{Limits, OriginUrl, Proxy, ProxyConfig, RunningProxy, TargetRules};
use larder_store::{Policy, Store, StoreOptions, contains_panics};
use tempfile::TempDir;

use super::{Ailing, Connection, Gate, Origin, Received, Reply, Response, gate::PATIENCE};

/// A proxy and its origin.
pub(crate) struct Fixture {
    // Dropped in this order: the proxy first, then what it uses.
    pub(crate) proxy: RunningProxy,
    pub(crate) store: Option<Store>,
    pub(crate) origin: Origin,
    directory: TempDir,
}

impl Fixture {
    /// Starts a reverse proxy with two workers and a store.
    pub(crate) fn new(handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::with(handle, |_| {})
    }

    /// As [`Fixture::new`], with changes to the configuration.
    pub(crate) fn with(
        handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static,
        change: impl FnOnce(&mut ProxyConfig),
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = open_store(&directory);
        Self::start(Origin::start(handle), directory, Some(store), change)
    }

    /// As [`Fixture::new`], without a store.
    pub(crate) fn without_store(handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::without_store_with(handle, |_| {})
    }

    /// As [`Fixture::without_store`], with changes to the configuration.
    pub(crate) fn without_store_with(
        handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static,
        change: impl FnOnce(&mut ProxyConfig),
    ) -> Self {
        Self::start(Origin::start(handle), tempfile::tempdir().unwrap(), None, change)
    }

    /// As [`Fixture::new`], in front of an origin whose body is `0123456789`. The second half waits for the gate.
    pub(crate) fn held_halfway() -> (Self, Gate) {
        let gate = Gate::default();
        let held = gate.clone();
        let fixture = Self::new(move |_, _| {
            let head = Reply::head("200 OK", &["Cache-Control: max-age=60", "Content-Length: 10"]);
            head.send("01234").wait(&held).send("56789")
        });
        (fixture, gate)
    }

    /// As [`Fixture::with`], on a store with another policy.
    pub(crate) fn with_policy(
        policy: &'static Policy,
        handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static,
        change: impl FnOnce(&mut ProxyConfig),
    ) -> Self {
        Self::with_options(|options| options.policy = policy, handle, change)
    }

    /// As [`Fixture::with`], on a store with other options.
    pub(crate) fn with_options(
        change_options: impl FnOnce(&mut StoreOptions),
        handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static,
        change: impl FnOnce(&mut ProxyConfig),
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut options = StoreOptions::new(directory.path().join("store"), 256 << 20);
        change_options(&mut options);
        let store = Store::open(options).unwrap();
        eventually("the store has loaded", || store.stats().loaded);
        Self::start(Origin::start(handle), directory, Some(store), change)
    }

    /// As [`Fixture::with`], on a store in memory whose device can be made to fail. The memory cache is too small to
    /// help, unless `change` enlarges it.
    pub(crate) fn ailing(
        handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static,
        change: impl FnOnce(&mut ProxyConfig),
    ) -> (Self, Arc<Ailing>) {
        Self::ailing_of(64 << 20, handle, change)
    }

    /// As [`Fixture::ailing`], with a store of this size.
    pub(crate) fn ailing_of(
        bytes: u64,
        handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static,
        change: impl FnOnce(&mut ProxyConfig),
    ) -> (Self, Arc<Ailing>) {
        let device = Arc::new(Ailing::new(bytes));
        let options = StoreOptions { dirty_bytes_max: 4 << 20, ..StoreOptions::new("memory", bytes) };
        let store = Store::open_on(device.clone(), &options).unwrap();
        let change = |config: &mut ProxyConfig| {
            config.limits.store = Duration::from_millis(1);
            change(config);
        };
        (Self::without_memory(store, handle, change), device)
    }

    /// Starts a reverse proxy with a store of two volumes. The engine of one panics when the returned device does.
    pub(crate) fn panicking(
        handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static,
    ) -> (Self, Arc<PanickingDevice>) {
        let memory = || Arc::new(MemoryDevice::new(32 << 20)) as Arc<dyn Device>;
        let device = Arc::new(PanickingDevice::new(memory(), contains_panics));
        let devices = vec![Arc::clone(&device) as Arc<dyn Device>, memory()];
        let store = Store::open_on_all(devices, &StoreOptions::new("memory", 32 << 20)).unwrap();
        (Self::without_memory(store, handle, |_| {}), device)
    }

    /// Starts a reverse proxy without a memory cache on `store`, once it has loaded.
    fn without_memory(
        store: Store,
        handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static,
        change: impl FnOnce(&mut ProxyConfig),
    ) -> Self {
        eventually("the store has loaded", || store.stats().loaded);
        let change = |config: &mut ProxyConfig| {
            config.hot_bytes = 0;
            change(config);
        };
        Self::start(Origin::start(handle), tempfile::tempdir().unwrap(), Some(store), change)
    }

    fn start(origin: Origin, directory: TempDir, store: Option<Store>, change: impl FnOnce(&mut ProxyConfig)) -> Self {
        let mut config = Self::config(&origin);
        config.state_base = store.is_some().then(|| directory.path().join("state"));
        change(&mut config);
        let proxy = Proxy::start(config, store.clone()).unwrap();
        Self { proxy, store, origin, directory }
    }

    /// Starts a proxy in memory in front of an origin of another kind.
    pub(crate) fn proxy_to(address: SocketAddr, change: impl FnOnce(&mut ProxyConfig)) -> RunningProxy {
        let mut config = Self::config_to(address);
        change(&mut config);
        Proxy::start(config, None).unwrap()
    }

    /// Returns the initial configuration of the fixtures.
    pub(crate) fn config(origin: &Origin) -> ProxyConfig {
        Self::config_to(origin.address)
    }

    /// Returns the initial configuration of the fixtures, in front of an origin of another kind.
    pub(crate) fn config_to(address: SocketAddr) -> ProxyConfig {
        let url: OriginUrl = format!("http://{address}").parse().unwrap();
        ProxyConfig {
            listeners: vec!["127.0.0.1:0".parse().unwrap()],
            worker_count: 2,
            default_origin: Some(url),
            forward: false,
            pseudonym: Some("larder".into()),
            targets: TargetRules { allow: vec!["127.0.0.0/8".parse().unwrap()], deny: Vec::new() },
            // Tests that run beside others on a slow machine overload it.
            limits: Limits { lag: Duration::ZERO, ..Limits::default() },
            ..ProxyConfig::default()
        }
    }

    /// Stops the proxy and starts it again on the same store.
    pub(crate) fn restart(self) -> Self {
        self.restart_with(|_| {})
    }

    /// As [`Fixture::restart`], with changes to the configuration.
    pub(crate) fn restart_with(self, change: impl FnOnce(&mut ProxyConfig)) -> Self {
        let Self { proxy, store, origin, directory } = self;
        proxy.shutdown(PATIENCE);
        drop(store);
        let store = open_store(&directory);
        Self::start(origin, directory, Some(store), change)
    }

    /// Returns the key of the fixture's origin for a target at `site.example`.
    pub(crate) fn key(&self, target: &str) -> Vec<u8> {
        let url = larder_http::key::primary_key("http", "site.example", target).unwrap();
        [&url[..], format!(" @http://{}", self.origin.address).as_bytes()].concat()
    }

    /// Returns the path of a file that is kept next to the store.
    pub(crate) fn state_file(&self, kind: &str) -> PathBuf {
        self.directory.path().join(format!("state.{kind}"))
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.proxy.local_addrs()[0])
    }

    /// Sends a GET on its own connection.
    pub(crate) fn get(&self, target: &str, fields: &[&str]) -> Response {
        self.connect().request("GET", target, fields)
    }

    /// Sends GETs until the response is a hit, because a fetched response becomes visible shortly after its last byte
    /// is sent.
    pub(crate) fn get_hit(&self, target: &str, fields: &[&str]) -> Response {
        let mut response = self.get(target, fields);
        eventually("the response is a hit", || {
            response = self.get(target, fields);
            response.is_hit()
        });
        response
    }

    /// Sends GETs that must not reach the origin until the response is a hit.
    pub(crate) fn wait_for_hit(&self, target: &str, fields: &[&str]) -> Response {
        let fields = [fields, &["Cache-Control: only-if-cached"]].concat();
        let mut hit = None;
        eventually("the response is a hit", || {
            let response = self.get(target, &fields);
            hit = response.is_hit().then_some(response);
            hit.is_some()
        });
        hit.expect("it became a hit")
    }
}

/// Waits for something that other threads are about to bring about.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

fn open_store(directory: &TempDir) -> Store {
    let store = Store::open(StoreOptions::new(directory.path().join("store"), 256 << 20)).unwrap();
    eventually("the store has loaded", || store.stats().loaded);
    store
}
