//! Replaces the configuration of a running proxy.
//!
//! Owns: the list of listening addresses, and the order in which a configuration replaces another. Configuration files
//! are read elsewhere. Invariants: an unusable configuration changes nothing. No connection is closed, and each request
//! sees one configuration from beginning to end. The cache is kept.

use larder_device::IgnorePoison;
use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use crate::{
    ground::{config::ProxyConfig, file_watcher::FileWatcher},
    run::{
        ProxyHandle,
        assembly::{Assembly, ConfigFiles},
        opening::{NewConfiguration, WorkerMessage},
        shared::ProxyState,
        sockets::bind_all,
    },
};

/// The addresses on which a proxy listens, and the watchers of its configured files.
pub(crate) struct ServedConfig {
    listeners: Vec<BoundAddress>,
    admin_addr: Option<SocketAddr>,
    _file_watchers: Vec<FileWatcher>,
}

/// An address on which the proxy listens, as configured and as bound.
#[derive(Clone, Copy)]
struct BoundAddress {
    /// The configured address. Its port may be 0.
    address: SocketAddr,
    /// The bound address, with the port that the system chose.
    local_addr: SocketAddr,
}

/// The result of a successful reload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReloadOutcome {
    /// The bound addresses of all listeners, in the order of the configuration.
    pub local_addrs: Vec<SocketAddr>,
    /// The changed settings that keep their old values until a restart.
    pub unchanged: Vec<NeedsRestart>,
}

/// A setting that a running proxy cannot change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeedsRestart {
    /// The number of worker threads.
    WorkerCount,
    /// The admin listener: its address, TLS or tokens.
    Admin,
    /// The size of the memory cache, if the cache was disabled before.
    HotBytes,
    /// The second tier's settings.
    Tier,
}

impl ServedConfig {
    /// Creates the list when the proxy starts.
    pub(super) fn new(
        shared: &ProxyState,
        local_addrs: &[SocketAddr],
        admin_addr: Option<SocketAddr>,
        file_watchers: Vec<FileWatcher>,
    ) -> Self {
        Self { listeners: bound(&shared.config, local_addrs), admin_addr, _file_watchers: file_watchers }
    }

    /// Returns the bound address of the listener that is configured for `address`, or `None` if no such listener is
    /// open.
    fn local_addr(&self, address: SocketAddr) -> Option<SocketAddr> {
        self.listeners.iter().find(|bound| bound.address == address).map(|bound| bound.local_addr)
    }
}

fn bound(config: &ProxyConfig, local_addrs: &[SocketAddr]) -> Vec<BoundAddress> {
    assert_eq!(config.listeners.len(), local_addrs.len(), "every listener has an address");
    let listeners = config.listeners.iter().zip(local_addrs);
    listeners.map(|(listener, &local_addr)| BoundAddress { address: listener.address, local_addr }).collect()
}

impl ProxyHandle {
    /// Replaces the configuration, and returns when all workers use the new one.
    ///
    /// Connections stay open and use the new configuration from their next request on. Tunnels continue unchanged. The
    /// cache and the state of origins and clients are kept. Blocks the thread while it reads the files that the
    /// configuration names. Must not be called from a thread of the proxy.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid configuration, `NotConnected` if the proxy has stopped or a worker does not
    /// respond in time, otherwise the system's error for a socket or the access log. After an error, the old
    /// configuration stays in force. The exception is a worker that responds late: it adopts the new one.
    pub fn reload(&self, config: ProxyConfig) -> io::Result<ReloadOutcome> {
        let stopped = || io::Error::new(io::ErrorKind::NotConnected, "the proxy has stopped");
        config.check()?;
        // Holding this lock makes reloads run one after the other.
        let mut served = self.served.lock().ignore_poison();
        let before = self.in_force.get().ok_or_else(stopped)?;
        let (config, unchanged) = changeable(config, &before.config);
        config.check()?;
        let files = ConfigFiles::read(&config)?;
        let is_new = |address| served.local_addr(address).is_none();
        let added: Vec<_> = config.listeners.iter().filter(|listener| is_new(listener.address)).cloned().collect();
        let sockets = bind_all(&added, self.openings.len(), Vec::new())?;
        let mut added_addrs = sockets[0]
            .iter()
            .map(|sockets| sockets[0].local_addr())
            .collect::<io::Result<Vec<SocketAddr>>>()?
            .into_iter();
        let addresses = config.listeners.iter().map(|listener| listener.address);
        let local_addrs: Vec<SocketAddr> =
            addresses.filter_map(|address| served.local_addr(address).or_else(|| added_addrs.next())).collect();
        let own_addresses = local_addrs.iter().copied().chain(served.admin_addr).collect();
        let survivors = Arc::clone(&before.survivors);
        let Assembly { shared, file_watchers } = Assembly::new(config, files, own_addresses, survivors, Some(&before))?;
        for (opening, sockets) in self.openings.iter().zip(sockets) {
            let mut sockets = sockets.into_iter();
            let listeners = shared.config.listeners.iter();
            let sockets = listeners.map(|listener| {
                let own = if is_new(listener.address) { sockets.next() } else { None };
                own.unwrap_or_default()
            });
            let changed = NewConfiguration { shared: Arc::clone(&shared), sockets: sockets.collect() };
            opening.send(WorkerMessage::Configuration(Box::new(changed))).map_err(|_| stopped())?;
        }
        self.in_force.set(&shared);
        *served = ServedConfig::new(&shared, &local_addrs, served.admin_addr, file_watchers);
        // A worker that is blocked for longer puts the configuration into force later.
        let is_taken = self.is_responsive(TAKEN_PATIENCE);
        if !shared.config.query_log {
            shared.history.workers().iter().for_each(|worker| worker.queries.clear());
        }
        is_taken.then_some(ReloadOutcome { local_addrs, unchanged }).ok_or_else(stopped)
    }
}

/// Returns the configuration with the old values of settings that a running proxy cannot change, and a list of those
/// that were changed.
fn changeable(mut config: ProxyConfig, before: &ProxyConfig) -> (ProxyConfig, Vec<NeedsRestart>) {
    let mut unchanged = Vec::new();
    if config.worker_count != before.worker_count {
        config.worker_count = before.worker_count;
        unchanged.push(NeedsRestart::WorkerCount);
    }
    if config.admin != before.admin {
        // The admin listener stays as it is, so its protection must stay too.
        (config.admin, config.admin_tls) = (before.admin, before.admin_tls);
        config.admin_tokens.clone_from(&before.admin_tokens);
        unchanged.push(NeedsRestart::Admin);
    }
    if before.hot_bytes == 0 && config.hot_bytes > 0 {
        config.hot_bytes = 0;
        unchanged.push(NeedsRestart::HotBytes);
    }
    if config.tier != before.tier {
        config.tier = before.tier.clone();
        unchanged.push(NeedsRestart::Tier);
    }
    config.state_base.clone_from(&before.state_base);
    (config, unchanged)
}

/// Maximum time for all workers to put a configuration into force.
const TAKEN_PATIENCE: Duration = Duration::from_secs(10);
