//! Starts and stops the proxy: sockets, threads, and the state that all workers share.
//!
//! Owns: the worker threads. Serving is done elsewhere. Invariant: when `start` returns, every listener accepts
//! connections. When `shutdown` returns, every thread has ended and the access log is written.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, atomic::Ordering::Relaxed},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use larder_store::Store;
use tokio::sync::{mpsc, watch};

use crate::{
    door::{certificates::CertificateSet, passwords::PasswordList},
    figures::{
        exposition,
        metrics::{ProxyStats, WorkerMetrics},
    },
    fleet::keys::FleetKeys,
    ground::{cache::opening::tier_secret, config::ProxyConfig},
    operators::{admin, history::ClockMoment},
    run::{
        assembly::{Assembly, ConfigFiles},
        leaving::ListeningSocket,
        opening::WorkerMessage,
        reload::ServedConfig,
        shared::{InForce, ProxyState, survivors::Survivors},
        sockets::{WorkerSockets, bind, bind_all},
    },
    targets::{build_caches::BuildCacheTokens, intercept::Interceptor, lists::ActiveLists},
};

mod assembly;
mod governor;
pub(crate) mod handover;
pub(crate) mod leaving;
mod memory_yield;
pub(crate) mod opening;
pub(crate) mod reload;
mod ring;
mod sessions;
pub(crate) mod shared;
mod sockets;
mod threads;
pub(crate) mod worker;

/// A namespace for the functions that start a proxy, see [`Proxy::start`].
pub struct Proxy;

/// A running proxy.
///
/// Dropping it stops the proxy at once. [`RunningProxy::shutdown`] lets exchanges finish first.
pub struct RunningProxy {
    local_addrs: Vec<SocketAddr>,
    admin_addr: Option<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
    metrics: Vec<Arc<WorkerMetrics>>,
    handle: ProxyHandle,
    /// A second handle of the admin listener's socket, to pass to the next process.
    admin_socket: Option<ListeningSocket>,
    /// Whether another process has taken over the proxy, and with it the files next to the store.
    has_left: bool,
}

/// An order to stop the proxy, with its time limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StopOrder {
    /// Time that exchanges in progress may take to finish.
    pub(crate) grace: Duration,
    /// Time for which connections that were just accepted may still send a first request.
    pub(crate) respite: Duration,
}

impl StopOrder {
    pub(crate) const AT_ONCE: Self = Self { grace: Duration::ZERO, respite: Duration::ZERO };
}

/// Operates a running proxy without owning it. It may outlive the proxy.
#[derive(Clone)]
pub struct ProxyHandle {
    in_force: Arc<InForce>,
    stop: watch::Sender<Option<StopOrder>>,
    openings: Vec<mpsc::UnboundedSender<WorkerMessage>>,
    served: Arc<Mutex<ServedConfig>>,
}

impl Proxy {
    /// Opens the listeners and starts serving. Without a store, responses are cached in memory only.
    ///
    /// # Errors
    /// `InvalidInput` if an option is outside its range; otherwise the system's error for a socket, the access log or a
    /// thread.
    pub fn start(config: ProxyConfig, store: Option<Store>) -> io::Result<RunningProxy> {
        Self::start_on(config, store, Vec::new())
    }

    /// Starts a proxy like [`Proxy::start`], on sockets that already listen, such as those from a service manager.
    ///
    /// Each listener uses the sockets with its address and accepts the connections that wait on them. Listeners without
    /// such a socket open one.
    ///
    /// # Errors
    /// Returns the same errors as [`Proxy::start`], and `InvalidInput` for a socket that belongs to no listener.
    pub fn start_on(
        config: ProxyConfig,
        store: Option<Store>,
        mut sockets: Vec<ListeningSocket>,
    ) -> io::Result<RunningProxy> {
        config.check()?;
        let files = ConfigFiles::read(&config)?;
        let is_admin = |socket: &ListeningSocket| config.admin.is_some_and(|address| socket.is_for(address));
        let inherited = sockets.iter().position(is_admin).map(|at| sockets.swap_remove(at));
        let sockets = bind_all(&config.listeners, config.worker_count, sockets)?;
        let local_addrs =
            sockets[0].iter().map(|sockets| sockets[0].local_addr()).collect::<io::Result<Vec<SocketAddr>>>()?;
        let bind_admin = |address| Ok::<_, io::Error>(ListeningSocket { address, socket: bind(address, false)? });
        let admin_socket =
            inherited.map_or_else(|| config.admin.map(bind_admin).transpose(), |socket| Ok(Some(socket)))?;
        let admin_listener = admin_socket.as_ref().map(|admin| admin.socket.try_clone()).transpose()?;
        let admin_addr = admin_listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let own_addresses = local_addrs.iter().copied().chain(admin_addr).collect();
        let metrics: Vec<Arc<WorkerMetrics>> = (0..config.worker_count).map(|_| Arc::default()).collect();
        let survivors = Survivors::open(&config, store.as_ref(), &metrics)?;
        let Assembly { shared, file_watchers } = Assembly::new(config, files, own_addresses, survivors, None)?;
        let in_force = Arc::new(InForce::new(&shared));
        let (stop, stopped) = watch::channel(None);
        let admin = AdminListener { listener: admin_listener, pages: admin::AdminPages::new(&shared) };
        let served = ServedConfig::new(&shared, &local_addrs, admin_addr, file_watchers);
        let handle = ProxyHandle { in_force, stop, openings: Vec::new(), served: Arc::new(Mutex::new(served)) };
        let threads = Vec::new();
        let mut running =
            RunningProxy { local_addrs, admin_addr, threads, metrics, handle, admin_socket, has_left: false };
        running.start_workers(&shared, sockets, admin, &stopped)?;
        Ok(running)
    }
}

impl ProxyConfig {
    /// Checks the files that the configuration names, as [`Proxy::start`] does, without starting anything.
    ///
    /// # Errors
    /// `InvalidInput`, which names the invalid file and the reason.
    pub fn check_files(&self) -> io::Result<()> {
        assembly::check_authorities(self)?;
        let listed = if self.lists.is_empty() { Ok(()) } else { ActiveLists::load(&self.lists).map(drop) };
        listed.map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        self.intercept.as_ref().map_or(Ok(()), |config| Interceptor::open(config).map(drop))?;
        let refused = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
        self.passwords.as_deref().map_or(Ok(()), |path| PasswordList::load(path).map(drop)).map_err(refused)?;
        FleetKeys::load(&self.fleet).map(drop).map_err(refused)?;
        tier_secret(self).map(drop).map_err(refused)?;
        BuildCacheTokens::load(self).map(drop).map_err(refused)?;
        let loaded = if self.identities.is_empty() { Ok(()) } else { CertificateSet::load(&self.identities).map(drop) };
        loaded.map_err(refused)
    }
}

/// The admin listener's socket. `None` once the first worker has taken it.
struct AdminListener {
    listener: Option<TcpListener>,
    pages: admin::AdminPages,
}

impl RunningProxy {
    /// Stops accepting connections, lets exchanges finish for at most `grace`, and ends every thread.
    pub fn shutdown(mut self, grace: Duration) {
        self.stop_all(grace);
    }

    /// Returns the addresses of the listeners that were opened at the start, in the order of the configuration.
    ///
    /// A port 0 in the configuration is replaced by the port that the system chose.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.local_addrs
    }

    /// Returns the address of the admin listener, or `None` if there is none.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin_addr
    }

    /// Returns the counters since the start, and the current gauges.
    pub fn stats(&self) -> ProxyStats {
        let shared = self.handle.in_force.get();
        exposition::gather(&self.metrics, shared.as_deref())
    }

    /// Returns a handle for operating this proxy.
    pub fn handle(&self) -> ProxyHandle {
        self.handle.clone()
    }

    fn start_workers(
        &mut self,
        shared: &Arc<ProxyState>,
        sockets: Vec<WorkerSockets>,
        mut admin: AdminListener,
        stopped: &watch::Receiver<Option<StopOrder>>,
    ) -> io::Result<()> {
        for (index, sockets) in sockets.into_iter().enumerate() {
            let (opening, openings) = mpsc::unbounded_channel();
            self.handle.openings.push(opening);
            let start = threads::WorkerStart {
                index,
                shared: Arc::clone(shared),
                metrics: Arc::clone(&self.metrics[index]),
                sockets,
                openings,
                admin: admin.listener.take(),
                pages: admin.pages.clone(),
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
        let shared = self.handle.in_force.get();
        let kept = shared.filter(|_| !self.has_left).map(|shared| {
            let tier = shared.cache.tier.clone();
            (Arc::clone(&shared.missing), Arc::clone(&shared.history), tier)
        });
        // Once exchanges were ordered to be cut off, a longer time limit has no effect any more.
        self.handle.stop.send_if_modified(|told| {
            let is_less = told.is_none_or(|told| grace < told.grace);
            if is_less {
                *told = Some(StopOrder { grace, ..StopOrder::AT_ONCE });
            }
            is_less
        });
        self.join();
        if let Some((missing, history, tier)) = kept {
            if let Some(tier) = tier {
                tier.stop(leaving::TIER_PATIENCE);
            }
            missing.save();
            history.note(ClockMoment::now());
            history.save();
        }
    }
}

impl RunningProxy {
    /// Waits until all worker threads have ended.
    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A panic of the worker was already reported.
            let _ = thread.join();
        }
    }
}

impl ProxyHandle {
    /// Answers health checks with 503 from now on, so that load balancers use other proxies before the listeners close.
    ///
    /// Other requests are answered as before.
    pub fn announce_stop(&self) {
        if let Some(shared) = self.in_force.get() {
            shared.counts.is_draining.store(true, Relaxed);
        }
    }

    /// Reopens the access log and reads the certificates again, for example after a rotation. Blocks the thread.
    ///
    /// Connections are not affected. Returns the errors; after an error, the previous file or certificate stays in use.
    pub fn refresh(&self) -> Vec<String> {
        let Some(shared) = self.in_force.get() else { return Vec::new() };
        let log = shared.access_log.as_ref().map(|log| log.reopen().map_err(|error| error.to_string()));
        let certificates = shared.certificates.as_ref().map(|certificates| certificates.reload());
        [log, certificates].into_iter().flatten().filter_map(Result::err).collect()
    }

    /// Returns whether all workers respond within `patience`. Blocks the thread, so it must not be called from a thread
    /// of the proxy.
    pub fn is_responsive(&self, patience: Duration) -> bool {
        let (answer, answered) = std::sync::mpsc::channel();
        let asked = self.openings.iter().all(|worker| worker.send(WorkerMessage::Ping(answer.clone())).is_ok());
        let end = Instant::now() + patience;
        let is_answered = |_| answered.recv_timeout(end.saturating_duration_since(Instant::now())).is_ok();
        asked && self.openings.iter().all(is_answered)
    }

    /// Ends the wait of a running [`RunningProxy::shutdown`]: the exchanges that it waits for are cut off at once.
    pub fn cut_short(&self) {
        self.stop.send_replace(Some(StopOrder::AT_ONCE));
    }
}

impl Drop for RunningProxy {
    fn drop(&mut self) {
        self.stop_all(Duration::ZERO);
    }
}
