//! The settings and shared state that one worker's fetches use.

use std::sync::Arc;

use crate::{
    body::table::BodyTable, cache::Cache, exchange_budget::ExchangeBudget, listings::ListingTable,
    marks::ResponseMarkers, metrics::WorkerMetrics, origin::origins::OriginRouter, siblings::Siblings,
    unfinished::UnfinishedWork,
};

/// The settings and shared state that one worker's fetches use.
pub(crate) struct FetchContext {
    pub(crate) cache: Arc<Cache>,
    pub(crate) metrics: Arc<WorkerMetrics>,
    /// The memory for connections and exchanges.
    pub(crate) places: Arc<ExchangeBudget>,
    /// The places of packages' listings.
    pub(crate) listings: Arc<ListingTable>,
    pub(crate) origins: Arc<OriginRouter>,
    pub(crate) marks: Arc<ResponseMarkers>,
    /// The long and arriving bodies in use.
    pub(crate) bodies: Arc<BodyTable>,
    /// The nodes that are asked before origins.
    pub(crate) siblings: Option<Arc<Siblings>>,
    /// The work that a stop of the proxy waits for.
    pub(crate) unfinished: Arc<UnfinishedWork>,
}
