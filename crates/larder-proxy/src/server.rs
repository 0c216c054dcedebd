//! Starting and stopping: sockets, threads, and what all workers share.
//!
//! Owns: the worker threads. Does not: serve. Invariant: when `start` returns, every listener accepts;
//! when `shutdown` returns, every thread has ended and the access log is written out.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicUsize},
    },
    thread::JoinHandle,
    time::Duration,
};

use http::Version;
use larder_http::fields::via::Pseudonym;
use larder_store::Store;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::{
    access_log::AccessLog,
    admin,
    cache::{
        CacheShared,
        epochs::Epochs,
        groups::Groups,
        hot::{HotTier, Newcomers},
        lonely::Lonely,
        neighbours,
        patience::Patience,
        sightings::Sightings,
    },
    caretaker::Caretaker,
    client::{certificates::Certificates, intercept::Interceptor, opening, passwords::Passwords},
    config::ProxyConfig,
    exposition::{Exposition, ProxyStats},
    flight::window::WindowBudget,
    lists::Lists,
    marks::Marks,
    metrics::WorkerMetrics,
    mirrors::Mirrors,
    missing::Missing,
    origin::{origins::OriginsShared, tls},
    routes::Routes,
    server::sessions::Opening,
    shared::Shared,
};

mod sessions;
mod threads;

/// Starts proxies.
pub struct Proxy;

/// A proxy that serves. Dropped, it stops at once; [`RunningProxy::shutdown`] lets exchanges finish.
pub struct RunningProxy {
    local_addrs: Vec<SocketAddr>,
    admin_addr: Option<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
    metrics: Vec<Arc<WorkerMetrics>>,
    hot: Arc<HotTier>,
    windows: Arc<WindowBudget>,
    stop: watch::Sender<Option<Duration>>,
    shared: Weak<Shared>,
    openings: Vec<mpsc::UnboundedSender<Opening>>,
    _caretakers: [Option<Caretaker>; 2],
}

/// What can be asked of a proxy by whoever does not own it. Outlives it without harm.
#[derive(Clone)]
pub struct ProxyHandle {
    shared: Weak<Shared>,
    stop: watch::Sender<Option<Duration>>,
    openings: Vec<mpsc::UnboundedSender<Opening>>,
}

impl Proxy {
    /// Opens the listeners and starts serving. Without a store, memory alone caches.
    ///
    /// # Errors
    /// `InvalidInput` for an option outside its range; else what the system says about a socket, the
    /// access log or a thread.
    pub fn start(config: ProxyConfig, store: Option<Store>) -> io::Result<RunningProxy> {
        config.check()?;
        let pseudonym = pseudonym_of(&config)?;
        check_authorities(&config)?;
        let passwords = config.passwords.as_deref().map(Passwords::load).transpose();
        let passwords = passwords.map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?.map(Arc::new);
        let (certificates, acceptor, caretaker) = open_tls(&config)?;
        let (lists, lists_caretaker) = open_lists(&config)?;
        let interceptor = config.intercept.as_ref().map(Interceptor::open).transpose()?.map(Arc::new);
        let listeners = bind_all(&config)?;
        let local_addrs = listeners[0].iter().map(TcpListener::local_addr).collect::<io::Result<Vec<SocketAddr>>>()?;
        let admin_listener = config.admin.map(|address| bind(address, false)).transpose()?;
        let admin_addr = admin_listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let access_log = config.access_log.as_ref().map(AccessLog::open).transpose()?;
        let hot = open_hot_tier(&config, store.as_ref());
        let windows = Arc::new(WindowBudget::new(config.window_bytes()));
        let metrics: Vec<Arc<WorkerMetrics>> = (0..config.worker_count).map(|_| Arc::default()).collect();
        let own: Vec<SocketAddr> = local_addrs.iter().copied().chain(admin_addr).collect();
        let routes = Routes::new(&config);
        let shared = Arc::new(Shared {
            cache: Arc::new(cache_of(&config, &routes, &hot, store.as_ref())),
            routes,
            mirrors: Mirrors::new(&config.mirrors),
            flights: Arc::default(),
            windows: Arc::clone(&windows),
            rests: Arc::default(),
            origins: Arc::new(OriginsShared { lists, ..OriginsShared::new(&config, own) }),
            certificates,
            acceptor,
            access_log,
            missing: Arc::new(Missing::open(config.state_file("missing"))),
            interceptor,
            marks: Arc::new(marks_of(&config, pseudonym)),
            passwords,
            connection_count: AtomicUsize::new(0),
            checks_begun: AtomicBool::new(false),
            waiting_count: AtomicUsize::new(0),
            config,
        });
        let exposition = Exposition {
            workers: metrics.clone(),
            hot: Arc::clone(&hot),
            windows: Arc::clone(&windows),
            store,
            shared: Arc::downgrade(&shared),
        };
        let (stop, stopped) = watch::channel(None);
        let mut admin = (admin_listener, admin::Pages::new(exposition));
        let mut running = RunningProxy {
            local_addrs,
            admin_addr,
            threads: Vec::new(),
            metrics,
            hot,
            windows,
            stop,
            shared: Arc::downgrade(&shared),
            openings: Vec::new(),
            _caretakers: [caretaker, lists_caretaker],
        };
        running.start_workers(&shared, listeners, &mut admin, &stopped)?;
        Ok(running)
    }
}

impl ProxyConfig {
    /// Refuses files of certificates, authorities and passwords that cannot be used, as [`Proxy::start`] does. Reads
    /// them, and changes nothing.
    ///
    /// # Errors
    /// `InvalidInput` that names the file and says what is wrong with it.
    pub fn check_files(&self) -> io::Result<()> {
        check_authorities(self)?;
        let listed = if self.lists.is_empty() { Ok(()) } else { Lists::load(&self.lists).map(drop) };
        listed.map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        self.intercept.as_ref().map_or(Ok(()), |config| Interceptor::open(config).map(drop))?;
        let refused = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
        self.passwords.as_deref().map_or(Ok(()), |path| Passwords::load(path).map(drop)).map_err(refused)?;
        let loaded = if self.identities.is_empty() { Ok(()) } else { Certificates::load(&self.identities).map(drop) };
        loaded.map_err(refused)
    }
}

/// The name in the configuration, or one that nobody else has.
fn pseudonym_of(config: &ProxyConfig) -> io::Result<Pseudonym> {
    let name = config.pseudonym.clone().unwrap_or_else(unique_name);
    Pseudonym::new(&*name).ok_or_else(|| {
        let why = format!("pseudonym must be letters, digits, '-', '.' or '_': {name:?}");
        io::Error::new(io::ErrorKind::InvalidInput, why)
    })
}

fn cache_of(config: &ProxyConfig, routes: &Routes, hot: &Arc<HotTier>, store: Option<&Store>) -> CacheShared {
    CacheShared {
        hot: Arc::clone(hot),
        store: store.cloned(),
        sightings: Sightings::default(),
        epochs: Epochs::default(),
        lonely: Lonely::default(),
        groups: Groups::new(config.group_window),
        patience: Patience::new(config.limits.store),
        http: config.http.clone(),
        rules: config.rules.clone(),
        key_marks: routes.marks(),
        stall: config.limits.stall,
    }
}

fn marks_of(config: &ProxyConfig, pseudonym: Pseudonym) -> Marks {
    Marks {
        add_via: config.add_via,
        via: config.add_via.then(|| pseudonym.via_value(Version::HTTP_11)),
        pseudonym,
        add_x_forwarded: config.add_x_forwarded,
        add_forwarded: config.add_forwarded,
        add_cache_status: config.add_cache_status,
    }
}

impl RunningProxy {
    /// Stops accepting, lets exchanges finish for at most `grace`, and ends every thread.
    pub fn shutdown(mut self, grace: Duration) {
        self.stop_all(grace);
    }

    /// The listeners' addresses, in the order of the configuration, with the ports that were taken.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.local_addrs
    }

    /// The admin listener's address.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin_addr
    }

    /// Figures since the start.
    pub fn stats(&self) -> ProxyStats {
        ProxyStats::gather(&self.metrics, &self.hot, &self.windows)
    }

    /// Returns what others need to ask something of this proxy.
    pub fn handle(&self) -> ProxyHandle {
        ProxyHandle { shared: self.shared.clone(), stop: self.stop.clone(), openings: self.openings.clone() }
    }

    fn start_workers(
        &mut self,
        shared: &Arc<Shared>,
        listeners: Vec<Vec<TcpListener>>,
        (admin, pages): &mut (Option<TcpListener>, admin::Pages),
        stopped: &watch::Receiver<Option<Duration>>,
    ) -> io::Result<()> {
        for (index, listeners) in listeners.into_iter().enumerate() {
            let (opening, openings) = mpsc::unbounded_channel();
            self.openings.push(opening);
            let start = threads::Start {
                index,
                shared: Arc::clone(shared),
                metrics: Arc::clone(&self.metrics[index]),
                listeners,
                openings,
                admin: admin.take(),
                pages: pages.clone(),
                stop: stopped.clone(),
            };
            let thread = std::thread::Builder::new().name(format!("larder-worker-{index}"));
            self.threads.push(thread.spawn(move || {
                if let Err(error) = threads::run(start) {
                    tracing::error!(%error, index, "worker ended");
                }
            })?);
        }
        Ok(())
    }

    fn stop_all(&mut self, grace: Duration) {
        let missing = self.shared.upgrade().map(|shared| Arc::clone(&shared.missing));
        // Who was told to cut exchanges short was told so for good.
        self.stop.send_if_modified(|told| {
            let is_less = told.is_none_or(|told| grace < told);
            if is_less {
                *told = Some(grace);
            }
            is_less
        });
        for thread in self.threads.drain(..) {
            // A worker that panicked has said so on its own.
            let _ = thread.join();
        }
        if let Some(missing) = missing {
            missing.save();
        }
    }
}

impl ProxyHandle {
    /// Opens the access log again and reads the certificates again; connections are not touched. Blocks for reading
    /// the files. Returns what could not be done: then what was in use before still is.
    pub fn refresh(&self) -> Vec<String> {
        let Some(shared) = self.shared.upgrade() else { return Vec::new() };
        let log = shared.access_log.as_ref().map(|log| log.reopen().map_err(|error| error.to_string()));
        let certificates = shared.certificates.as_ref().map(|certificates| certificates.reload());
        [log, certificates].into_iter().flatten().filter_map(Result::err).collect()
    }

    /// Has [`RunningProxy::shutdown`] cut short the exchanges it lets finish.
    pub fn cut_short(&self) {
        self.stop.send_replace(Some(Duration::ZERO));
    }
}

impl Drop for RunningProxy {
    fn drop(&mut self) {
        self.stop_all(Duration::ZERO);
    }
}

/// Refuses a file of certificate authorities that could not be used when the first origin over TLS is met.
fn check_authorities(config: &ProxyConfig) -> io::Result<()> {
    let Some(path) = &config.origin_ca_file else { return Ok(()) };
    let mut roots = rustls::RootCertStore::empty();
    tls::load_ca_file(path, &mut roots).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// The memory tier, into which the store brings what it reads along.
fn open_hot_tier(config: &ProxyConfig, store: Option<&Store>) -> Arc<HotTier> {
    let brings_unasked = store.is_some_and(Store::brings_neighbours);
    let newcomers = if brings_unasked { Newcomers::ManyUnasked } else { Newcomers::AskedFor };
    let hot = Arc::new(HotTier::new(config.hot_bytes, newcomers));
    if let Some(store) = store {
        neighbours::connect(store, &hot, &config.http.targets);
    }
    hot
}

/// What handshakes with clients take, if there is a listener for them.
fn open_tls(config: &ProxyConfig) -> io::Result<ServerTls> {
    if !config.listeners.iter().any(|listener| listener.tls) {
        return Ok((None, None, None));
    }
    let refused = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
    let certificates = Arc::new(Certificates::load(&config.identities).map_err(refused)?);
    let acceptor = opening::acceptor(Arc::clone(&certificates)).map_err(io::Error::other)?;
    let (watched, reloaded) = (Arc::clone(&certificates), Arc::clone(&certificates));
    let caretaker = Caretaker::start("certificates", move || watched.stamps(), move || reloaded.reload())?;
    Ok((Some(certificates), Some(acceptor), Some(caretaker)))
}

/// The lists of hosts, and what looks after their files, if there are any.
fn open_lists(config: &ProxyConfig) -> io::Result<(Option<Arc<Lists>>, Option<Caretaker>)> {
    if config.lists.is_empty() {
        return Ok((None, None));
    }
    let lists = Lists::load(&config.lists).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
    let lists = Arc::new(lists);
    let (watched, reloaded) = (Arc::clone(&lists), Arc::clone(&lists));
    let caretaker = Caretaker::start("lists of hosts", move || watched.stamps(), move || reloaded.reload())?;
    Ok((Some(lists), Some(caretaker)))
}

type ServerTls = (Option<Arc<Certificates>>, Option<TlsAcceptor>, Option<Caretaker>);

/// For each worker, one socket on each address.
fn bind_all(config: &ProxyConfig) -> io::Result<Vec<Vec<TcpListener>>> {
    let mut workers: Vec<Vec<TcpListener>> = (0..config.worker_count).map(|_| Vec::new()).collect();
    for address in config.listeners.iter().map(|listener| listener.address) {
        // Sockets that share a port also share it with another proxy of this user. Bind once without
        // sharing, so that an address in use is an error here as everywhere else.
        let probe = bind(address, false)?;
        let address = probe.local_addr()?;
        drop(probe);
        for listeners in &mut workers {
            listeners.push(bind(address, config.worker_count > 1)?);
        }
    }
    Ok(workers)
}

/// A name that no other proxy has, so that several in a row are no loop.
fn unique_name() -> String {
    // The number that keeps this process' hash tables from being aimed at.
    let drawn = RandomState::new().build_hasher().finish();
    format!("larder-{:08x}", drawn as u32)
}

pub(crate) fn bind(address: SocketAddr, share_port: bool) -> io::Result<TcpListener> {
    let open = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(share_port)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    open().map_err(|error: io::Error| io::Error::new(error.kind(), format!("cannot listen: {error}: {address}")))
}

/// Connections that may wait to be accepted, per listener; the system may cap it.
const BACKLOG: i32 = 4096;
