//! The flights in progress and all that new ones go by, as one worker has it.

use std::sync::Arc;

use crate::{
    flight::{source::Means, table::FlightTable},
    unfinished::Unfinished,
};

/// What flights are begun with.
pub(crate) struct Flights {
    pub(crate) table: Arc<FlightTable>,
    pub(crate) means: Arc<Means>,
    /// What stopping waits for.
    pub(crate) unfinished: Arc<Unfinished>,
    /// The longest body that is stored.
    pub(crate) entry_bytes_max: u64,
}
