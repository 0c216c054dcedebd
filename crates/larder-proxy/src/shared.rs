//! State that all workers share under one configuration.
//!
//! Owns: only the list of that state. A reload creates a new one around the `Survivors` of the old one: see
//! `server::reload`.

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
    access_log::AccessLog,
    admin_tokens::AdminTokens,
    build_caches::BuildCacheTable,
    cache::CacheShared,
    client::{certificates::CertificateSet, intercept::Interceptor, passwords::PasswordList},
    config::ProxyConfig,
    delays::DelayTable,
    fleet::link::FleetLink,
    listings::ListingTable,
    marks::ResponseMarkers,
    mirrors::MirrorTable,
    origin::origins::OriginsShared,
    overload::AddressCounts,
    routes::SiteRoutes,
    siblings::Siblings,
};

/// The state that all workers share.
pub(crate) struct ProxyState {
    pub(crate) config: ProxyConfig,
    pub(crate) routes: Arc<SiteRoutes>,
    /// The places of packages' listings.
    pub(crate) listings: Arc<ListingTable>,
    pub(crate) mirrors: MirrorTable,
    pub(crate) build_caches: BuildCacheTable,
    pub(crate) cache: Arc<CacheShared>,
    /// The policies of all sites.
    pub(crate) policies: PolicyTable,
    /// Whether responses of any site are encoded for clients.
    pub(crate) compresses: bool,
    pub(crate) origins: Arc<OriginsShared>,
    /// The certificates for TLS connections of clients.
    pub(crate) certificates: Option<Arc<CertificateSet>>,
    /// Performs TLS handshakes with clients, if any listener uses TLS.
    pub(crate) acceptor: Option<TlsAcceptor>,
    /// The interceptor of tunnels, if interception is on.
    pub(crate) interceptor: Option<Arc<Interceptor>>,
    pub(crate) marks: Arc<ResponseMarkers>,
    pub(crate) access_log: Option<Arc<AccessLog>>,
    /// The users of the forward proxy, if it requires credentials.
    pub(crate) passwords: Option<Arc<PasswordList>>,
    /// The tokens for the admin listener, if it requires any.
    pub(crate) admin_tokens: Option<AdminTokens>,
    /// The other nodes of the fleet, if there are any.
    pub(crate) fleet: Option<Arc<FleetLink>>,
    /// The same nodes, if they share their entries.
    pub(crate) siblings: Option<Arc<Siblings>>,
    /// The rate limits for responses to clients.
    pub(crate) delays: DelayTable,
    pub(crate) survivors: Arc<Survivors>,
}

impl Deref for ProxyState {
    type Target = Survivors;

    fn deref(&self) -> &Survivors {
        &self.survivors
    }
}

/// A reference to the current configuration's state, for holders that outlive it.
pub(crate) struct InForce(Mutex<Weak<ProxyState>>);

impl InForce {
    pub(crate) fn new(shared: &Arc<ProxyState>) -> Self {
        Self(Mutex::new(Arc::downgrade(shared)))
    }

    /// Returns the current state. `None` once the proxy has stopped.
    pub(crate) fn get(&self) -> Option<Arc<ProxyState>> {
        self.0.lock().ignore_poison().upgrade()
    }

    /// Replaces the current state.
    pub(crate) fn set(&self, shared: &Arc<ProxyState>) {
        *self.0.lock().ignore_poison() = Arc::downgrade(shared);
    }
}

/// Counts of limited resources, which persist across configurations, and whether the proxy is about to stop.
#[derive(Default)]
pub(crate) struct BoundedCounts {
    /// Open client connections.
    pub(crate) connections: AtomicUsize,
    /// Requests that wait for a response.
    pub(crate) waiting: AtomicUsize,
    /// Connections by client address, if they are limited.
    pub(crate) client_connections: Arc<AddressCounts>,
    /// Requests by client address, if they are limited.
    pub(crate) client_requests: Arc<AddressCounts>,
    /// Whether the listeners are about to close.
    pub(crate) is_draining: AtomicBool,
    /// The memory limit of the process now, in bytes; 0 if it has none.
    pub(crate) memory_bytes: AtomicU64,
    /// The number of times that this limit fell because memory was short.
    pub(crate) memory_yields: AtomicU64,
}
