//! The flights of one worker, and the state that new flights need.

use std::sync::Arc;

use crate::http::{fetch::table::FlightTable, fetcher::Fetcher};

/// The state that new flights need.
pub struct Flights<F: Fetcher> {
    /// The flights in progress.
    pub table: Arc<FlightTable<F>>,
    /// The way to the origins.
    pub fetcher: Arc<F>,
    /// The longest body that is stored, in bytes.
    pub entry_bytes_max: u64,
}
