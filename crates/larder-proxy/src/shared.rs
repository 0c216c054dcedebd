//! What all workers share under one configuration.
//!
//! Owns: nothing but the list of it. A proxy that is given another configuration makes another of these, into which what is to last is
//! taken over: see `server::reload`.

use std::sync::{Arc, Mutex, PoisonError, Weak, atomic::AtomicUsize};

use tokio_rustls::TlsAcceptor;

use crate::{
    access_log::AccessLog,
    admin_tokens::AdminTokens,
    cache::{CacheShared, SitePolicy},
    client::{certificates::CertificateSet, intercept::Interceptor, passwords::PasswordList},
    config::ProxyConfig,
    delays::DelayTable,
    flight::{rest::TailFetches, table::FlightTable},
    history::History,
    marks::ResponseMarkers,
    mirrors::MirrorTable,
    missing::MissingList,
    origin::origins::OriginsShared,
    routes::SiteRoutes,
};

/// What all workers share.
pub(crate) struct ProxyState {
    pub(crate) config: ProxyConfig,
    pub(crate) routes: Arc<SiteRoutes>,
    pub(crate) mirrors: MirrorTable,
    pub(crate) cache: Arc<CacheShared>,
    /// How responses are cached, by the places of the sites that say so.
    pub(crate) manners: Vec<Option<SitePolicy>>,
    /// How those of all others are.
    pub(crate) manner: SitePolicy,
    /// Whether any of them get a coding on their way to clients.
    pub(crate) compresses: bool,
    pub(crate) flights: Arc<FlightTable>,
    /// Fetches of what is missing of stored bodies in progress.
    pub(crate) rests: Arc<TailFetches>,
    pub(crate) origins: Arc<OriginsShared>,
    /// What is shown in handshakes with clients.
    pub(crate) certificates: Option<Arc<CertificateSet>>,
    /// Does handshakes with clients, if any listener wants them.
    pub(crate) acceptor: Option<TlsAcceptor>,
    /// What looks into tunnels, if anything does.
    pub(crate) interceptor: Option<Arc<Interceptor>>,
    pub(crate) marks: Arc<ResponseMarkers>,
    pub(crate) access_log: Option<Arc<AccessLog>>,
    /// What was asked for while its origin could not be asked.
    pub(crate) missing: Arc<MissingList>,
    /// What was served over time.
    pub(crate) history: Arc<History>,
    /// Who may use the forward proxy, if not everybody.
    pub(crate) passwords: Option<Arc<PasswordList>>,
    /// Who may ask the admin listener, if not everybody who reaches it.
    pub(crate) admin_tokens: Option<AdminTokens>,
    /// How fast clients get what they ask for.
    pub(crate) delays: DelayTable,
    pub(crate) counts: Arc<BoundedCounts>,
}

/// The configuration in force, for those who outlive it.
pub(crate) struct InForce(Mutex<Weak<ProxyState>>);

impl InForce {
    pub(crate) fn new(shared: &Arc<ProxyState>) -> Self {
        Self(Mutex::new(Arc::downgrade(shared)))
    }

    /// Returns what workers share now; `None` once the proxy has stopped.
    pub(crate) fn get(&self) -> Option<Arc<ProxyState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// Has `shared` be in force.
    pub(crate) fn set(&self, shared: &Arc<ProxyState>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(shared);
    }
}

/// How many there are of what is bounded, whatever the configuration by which it came.
#[derive(Default)]
pub(crate) struct BoundedCounts {
    /// Client connections.
    pub(crate) connections: AtomicUsize,
    /// Requests that wait for an answer.
    pub(crate) waiting: AtomicUsize,
}
