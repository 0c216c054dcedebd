//! The flights of one worker, and the state that new flights need.

use std::sync::Arc;

use crate::flight::{source::FetchContext, table::FlightTable};

/// The state that new flights need.
pub(crate) struct Flights {
    pub(crate) table: Arc<FlightTable>,
    pub(crate) means: Arc<FetchContext>,
    /// The longest body that is stored.
    pub(crate) entry_bytes_max: u64,
}
