//! The flights of one worker, and the state that new flights need.

use std::sync::Arc;

use crate::{
    flight::{source::FetchContext, table::FlightTable},
    unfinished::UnfinishedWork,
};

/// The state that new flights need.
pub(crate) struct Flights {
    pub(crate) table: Arc<FlightTable>,
    pub(crate) means: Arc<FetchContext>,
    /// The work that a stop of the proxy waits for.
    pub(crate) unfinished: Arc<UnfinishedWork>,
    /// The longest body that is stored.
    pub(crate) entry_bytes_max: u64,
}
