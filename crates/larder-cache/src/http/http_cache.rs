//! The state by which the requests of one worker are answered.

use std::sync::Arc;

use super::{fetch::table::FlightTable, fetcher::Fetcher};

/// A cache of responses, as one worker uses it.
pub struct HttpCache<F: Fetcher> {
    /// The flights in progress.
    pub flights: Arc<FlightTable<F>>,
    /// The way to the origins.
    pub fetcher: Arc<F>,
    /// The longest body that is stored, in bytes.
    pub entry_bytes_max: u64,
}
