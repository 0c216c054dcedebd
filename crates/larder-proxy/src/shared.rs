//! What all workers share under one configuration.
//!
//! Owns: nothing but the list of it. A proxy that is given another configuration makes another of these, into which what is to last is
//! taken over: see `server::reload`.

use std::sync::{Arc, Mutex, PoisonError, Weak, atomic::AtomicUsize};

use tokio_rustls::TlsAcceptor;

use crate::{
    access_log::AccessLog,
    admin_tokens::Tokens,
    cache::{CacheShared, Manner},
    client::{certificates::Certificates, intercept::Interceptor, passwords::Passwords},
    config::ProxyConfig,
    delays::Delays,
    flight::{rest::Rests, table::FlightTable},
    history::History,
    marks::Marks,
    mirrors::Mirrors,
    missing::Missing,
    origin::origins::OriginsShared,
    routes::Routes,
};

/// What all workers share.
pub(crate) struct Shared {
    pub(crate) config: ProxyConfig,
    pub(crate) routes: Arc<Routes>,
    pub(crate) mirrors: Mirrors,
    pub(crate) cache: Arc<CacheShared>,
    /// How responses are cached, by the places of the sites that say so.
    pub(crate) manners: Vec<Option<Manner>>,
    /// How those of all others are.
    pub(crate) manner: Manner,
    /// Whether any of them get a coding on their way to clients.
    pub(crate) compresses: bool,
    pub(crate) flights: Arc<FlightTable>,
    /// Fetches of what is missing of stored bodies in progress.
    pub(crate) rests: Arc<Rests>,
    pub(crate) origins: Arc<OriginsShared>,
    /// What is shown in handshakes with clients.
    pub(crate) certificates: Option<Arc<Certificates>>,
    /// Does handshakes with clients, if any listener wants them.
    pub(crate) acceptor: Option<TlsAcceptor>,
    /// What looks into tunnels, if anything does.
    pub(crate) interceptor: Option<Arc<Interceptor>>,
    pub(crate) marks: Arc<Marks>,
    pub(crate) access_log: Option<Arc<AccessLog>>,
    /// What was asked for while its origin could not be asked.
    pub(crate) missing: Arc<Missing>,
    /// What was served over time.
    pub(crate) history: Arc<History>,
    /// Who may use the forward proxy, if not everybody.
    pub(crate) passwords: Option<Arc<Passwords>>,
    /// Who may ask the admin listener, if not everybody who reaches it.
    pub(crate) admin_tokens: Option<Tokens>,
    /// How fast clients get what they ask for.
    pub(crate) delays: Delays,
    pub(crate) counts: Arc<Counts>,
}

/// The configuration in force, for those who outlive it.
pub(crate) struct InForce(Mutex<Weak<Shared>>);

impl InForce {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self(Mutex::new(Arc::downgrade(shared)))
    }

    /// Returns what workers share now; `None` once the proxy has stopped.
    pub(crate) fn get(&self) -> Option<Arc<Shared>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// Has `shared` be in force.
    pub(crate) fn set(&self, shared: &Arc<Shared>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(shared);
    }
}

/// How many there are of what is bounded, whatever the configuration by which it came.
#[derive(Default)]
pub(crate) struct Counts {
    /// Client connections.
    pub(crate) connections: AtomicUsize,
    /// Requests that wait for an answer.
    pub(crate) waiting: AtomicUsize,
}
