//! Nodes of a fleet, in front of one origin.

use std::{fs, net::SocketAddr, os::unix::fs::PermissionsExt as _, time::Duration};

use larder_http::{
    key::primary_key,
    owner::{OwnerNode, OwnerTable, slot_of},
};
use larder_proxy::{Fleet, Listener, Proxy, ProxyConfig, RunningProxy};
use larder_store::{Store, StoreOptions};
use tempfile::TempDir;

use super::{Connection, Origin, Received, Reply, Response, eventually, ports::free_address};

pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];

/// Three nodes of a fleet on one origin, of which each runs or does not.
pub(crate) struct Nodes {
    running: Vec<Option<RunningProxy>>,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) origin: Origin,
    directory: TempDir,
    owners: OwnerTable,
    change: Box<dyn Fn(&mut ProxyConfig)>,
}

impl Nodes {
    pub(crate) fn new(handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::with(handle, |_| {})
    }

    pub(crate) fn with(
        handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static,
        change: impl Fn(&mut ProxyConfig) + 'static,
    ) -> Self {
        let nodes = Self::started(handle, change);
        (0..NAMES.len()).for_each(|node| nodes.until_sure(node));
        nodes
    }

    /// Starts the nodes without waiting until they know each other's purges.
    pub(crate) fn started(
        handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static,
        change: impl Fn(&mut ProxyConfig) + 'static,
    ) -> Self {
        let addresses = NAMES.iter().map(|_| free_address()).collect();
        let directory = tempfile::tempdir().unwrap();
        let secret = directory.path().join("secret");
        fs::write(&secret, "0123456789abcdef").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let running = NAMES.map(|_| None).into();
        let origin = Origin::start(handle);
        let named = NAMES.map(|name| OwnerNode { name: name.to_owned(), weight: 1 });
        let owners = OwnerTable::new(&named).unwrap();
        let mut nodes = Self { owners, running, addresses, origin, directory, change: Box::new(change) };
        (0..NAMES.len()).for_each(|node| nodes.start(node));
        nodes
    }

    pub(crate) fn start(&mut self, node: usize) {
        let name = NAMES[node];
        let listed =
            NAMES.iter().zip(&self.addresses).map(|(name, address)| format!("{name}={address}").parse().unwrap());
        let mut config = ProxyConfig {
            listeners: vec![Listener::plain(self.addresses[node])],
            worker_count: 2,
            default_origin: Some(format!("http://{}", self.origin.address).parse().unwrap()),
            forward: false,
            fleet: Fleet {
                node: Some(name.into()),
                shows_node: true,
                nodes: listed.collect(),
                secret_file: Some(self.directory.path().join("secret")),
                shares_entries: true,
                ready_path: Some("/-/ready".to_owned()),
                node_timeout: Duration::from_secs(5),
                // Under load, a node may take long.
                sibling_patience: Duration::from_secs(60),
                ..Fleet::default()
            },
            state_base: Some(self.directory.path().join(format!("{name}.state"))),
            admin: Some("127.0.0.1:0".parse().unwrap()),
            ..ProxyConfig::default()
        };
        config.targets.allow.push("127.0.0.0/8".parse().unwrap());
        (self.change)(&mut config);
        let store = Store::open(StoreOptions::new(self.directory.path().join(name), 256 << 20)).unwrap();
        eventually("the store has loaded", || store.stats().loaded);
        self.running[node] = Some(Proxy::start(config, Some(store)).unwrap());
        eventually("it is ready", || self.get(node, "/-/ready", &[]).status == 200);
    }

    pub(crate) fn stop(&mut self, node: usize) {
        self.running[node].take().unwrap().shutdown(Duration::ZERO);
    }

    pub(crate) fn get(&self, node: usize, target: &str, fields: &[&str]) -> Response {
        // From another address than that of the nodes.
        Connection::open_from([127, 0, 0, 2].into(), self.addresses[node]).request("GET", target, fields)
    }

    pub(crate) fn admin(&self, node: usize) -> Connection {
        Connection::open_admin(self.running[node].as_ref().unwrap().admin_addr().unwrap())
    }

    /// Waits until a node knows the purges of all others, so that it serves what it has without validation.
    pub(crate) fn until_sure(&self, node: usize) {
        eventually("it is sure", || self.figures(node).contains("larder_fleet_purges_unsynced 0"));
    }

    pub(crate) fn figures(&self, node: usize) -> String {
        self.admin(node).request("GET", "/metrics", &[]).text()
    }

    /// Waits until a node has read the shared log up to a position.
    pub(crate) fn until_read(&self, node: usize, position: u64) {
        eventually("it has read the log", || {
            let figures = self.figures(node);
            let line = figures.lines().find(|line| line.starts_with("larder_fleet_node_position"));
            line.and_then(|line| line.rsplit(' ').next()?.parse().ok()) == Some(position)
        });
    }

    /// The Cache-Status of a response, by the node that wrote each member.
    pub(crate) fn member<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
        let all = response.fields.iter().filter(|(field, _)| field == "cache-status");
        all.flat_map(|(_, value)| value.split(", ")).find_map(|member| member.strip_prefix(name)?.strip_prefix("; "))
    }

    pub(crate) fn purge(&self, node: usize, target: &str) {
        let url = format!("http://site.example{target}");
        assert_eq!(self.admin(node).request("PURGE", &url, &[]).status, 200);
    }

    /// A target that this node owns, which was not requested before.
    pub(crate) fn target_of(&self, node: usize, kind: &str) -> String {
        (0..).map(|number| format!("/{kind}/{number}")).find(|target| self.owner_of(target) == node).unwrap()
    }

    pub(crate) fn owner_of(&self, target: &str) -> usize {
        let key = primary_key("http", "site.example", target).unwrap();
        self.owners.owner(slot_of(&key))
    }
}
