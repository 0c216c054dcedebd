//! State that all workers share under one configuration.
//!
//! Owns: only the list of that state. A reload creates a new one around the `Survivors` of the old one: see
//! `run::reload`.

pub(crate) mod policies;
pub(crate) mod survivors;

use larder_device::IgnorePoison;
use std::{
    ops::Deref,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize},
    },
};

use tokio_rustls::TlsAcceptor;

use self::{policies::PolicyTable, survivors::Survivors};
use crate::{
    door::{certificates::CertificateSet, passwords::PasswordList},
    figures::access_log::AccessLog,
    fleet::link::FleetLink,
    ground::{
        cache::CacheShared, config::ProxyConfig, delays::DelayTable, marks::ResponseMarkers, overload::AddressCounts,
    },
    operators::admin_tokens::AdminTokens,
    origins::access::OriginsShared,
    targets::{
        build_caches::BuildCacheTable, intercept::Interceptor, listings::ListingTable, mirrors::MirrorTable,
        routes::SiteRoutes, siblings::Siblings,
    },
};

/// The state that all workers share under one configuration.
pub(crate) struct ProxyState {
    pub(crate) config: ProxyConfig,
    pub(crate) routes: Arc<SiteRoutes>,
    /// Finds the listings of packages, which contain the digests of files.
    pub(crate) listings: Arc<ListingTable>,
    pub(crate) mirrors: MirrorTable,
    pub(crate) build_caches: BuildCacheTable,
    pub(crate) cache: Arc<CacheShared>,
    /// The general policy, and those of sites.
    pub(crate) policies: PolicyTable,
    /// Whether any site compresses responses for clients.
    pub(crate) compresses: bool,
    pub(crate) origins: Arc<OriginsShared>,
    /// The certificates for listeners with TLS. `None` if no listener uses TLS.
    pub(crate) certificates: Option<Arc<CertificateSet>>,
    /// Performs TLS handshakes with clients. `None` if no listener uses TLS.
    pub(crate) acceptor: Option<TlsAcceptor>,
    /// Decides which tunnels are decrypted. `None` if interception is off.
    pub(crate) interceptor: Option<Arc<Interceptor>>,
    pub(crate) marks: Arc<ResponseMarkers>,
    pub(crate) access_log: Option<Arc<AccessLog>>,
    /// The users of the forward proxy. `None` if it requires no credentials.
    pub(crate) passwords: Option<Arc<PasswordList>>,
    /// The tokens for the admin listener. `None` if the listener requires no token.
    pub(crate) admin_tokens: Option<AdminTokens>,
    /// The link to the fleet's other nodes for reading their purges. `None` without a fleet.
    pub(crate) fleet: Option<Arc<FleetLink>>,
    /// The link to the fleet's other nodes for sharing entries. `None` if the nodes do not share entries.
    pub(crate) siblings: Option<Arc<Siblings>>,
    /// The rate limits for responses to clients, with their buckets.
    pub(crate) delays: DelayTable,
    pub(crate) survivors: Arc<Survivors>,
}

impl Deref for ProxyState {
    type Target = Survivors;

    fn deref(&self) -> &Survivors {
        &self.survivors
    }
}

/// A weak reference to the state under the current configuration, for holders that may outlive the proxy.
pub(crate) struct InForce(Mutex<Weak<ProxyState>>);

impl InForce {
    pub(crate) fn new(shared: &Arc<ProxyState>) -> Self {
        Self(Mutex::new(Arc::downgrade(shared)))
    }

    /// Returns the state under the current configuration. `None` once the proxy has stopped.
    pub(crate) fn get(&self) -> Option<Arc<ProxyState>> {
        self.0.lock().ignore_poison().upgrade()
    }

    /// Sets the state under the current configuration, after a reload.
    pub(crate) fn set(&self, shared: &Arc<ProxyState>) {
        *self.0.lock().ignore_poison() = Arc::downgrade(shared);
    }
}

/// Counts of limited resources, which survive reloads, and whether the proxy is about to stop.
#[derive(Default)]
pub(crate) struct BoundedCounts {
    /// Number of open client connections.
    pub(crate) connections: AtomicUsize,
    /// Number of requests that wait for a response.
    pub(crate) waiting: AtomicUsize,
    /// Number of connections by client address, if a limit on them is configured.
    pub(crate) client_connections: Arc<AddressCounts>,
    /// Number of requests by client address, if a limit on them is configured.
    pub(crate) client_requests: Arc<AddressCounts>,
    /// Whether the listeners are about to close, so that health checks are answered with 503.
    pub(crate) is_draining: AtomicBool,
    /// The current memory limit of the process in bytes, or 0 if it has none.
    pub(crate) memory_bytes: AtomicU64,
    /// Number of times that the memory limit was lowered because memory was short.
    pub(crate) memory_yields: AtomicU64,
}
