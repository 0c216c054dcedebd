//! What all workers share.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize},
};

use tokio_rustls::TlsAcceptor;

use crate::{
    access_log::AccessLog,
    cache::CacheShared,
    client::{certificates::Certificates, intercept::Interceptor, passwords::Passwords},
    config::ProxyConfig,
    flight::{rest::Rests, table::FlightTable, window::WindowBudget},
    marks::Marks,
    mirrors::Mirrors,
    missing::Missing,
    origin::origins::OriginsShared,
    routes::Routes,
};

/// What all workers share.
pub(crate) struct Shared {
    pub(crate) config: ProxyConfig,
    pub(crate) routes: Routes,
    pub(crate) mirrors: Mirrors,
    pub(crate) cache: Arc<CacheShared>,
    pub(crate) flights: Arc<FlightTable>,
    /// What those hold for their readers.
    pub(crate) windows: Arc<WindowBudget>,
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
    pub(crate) access_log: Option<AccessLog>,
    /// What was asked for while its origin could not be asked.
    pub(crate) missing: Arc<Missing>,
    /// Who may use the forward proxy, if not everybody.
    pub(crate) passwords: Option<Arc<Passwords>>,
    pub(crate) connection_count: AtomicUsize,
    /// Whether a worker looks after the origins' health.
    pub(crate) checks_begun: AtomicBool,
    /// Requests that wait for an answer.
    pub(crate) waiting_count: AtomicUsize,
}
