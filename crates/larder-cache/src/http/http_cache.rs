//! The state by which the requests of one worker are answered.

use std::sync::Arc;

use super::{fetch::table::FlightTable, fetcher::Fetcher};

/// A cache of responses, as one worker uses it: a [`ResponseCache`](super::ResponseCache) with the fetches in progress
/// and the way to the origins.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # fetcher::run(async |site| {
/// use larder_cache::http::http_cache::HttpCache;
/// use std::sync::Arc;
///
/// // A worker of its own, with the same stored responses.
/// let (flights, fetcher) = (Arc::default(), Arc::clone(&site.fetcher));
/// let other = Arc::new(HttpCache { flights, fetcher, entry_bytes_max: site.entry_bytes_max });
/// fetcher::store(&site, "/news").await;
/// assert!(!fetcher::get(&other, "/news").await.expect("it is stored").is_from_origin);
/// # });
/// ```
pub struct HttpCache<F: Fetcher> {
    /// The flights in progress: the fetches that requests can share.
    pub flights: Arc<FlightTable<F>>,
    /// The way to the origins.
    pub fetcher: Arc<F>,
    /// Maximum length of a body that is stored, in bytes.
    pub entry_bytes_max: u64,
}
