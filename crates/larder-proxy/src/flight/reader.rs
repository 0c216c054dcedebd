//! A client request that waits for a flight.
//!
//! Invariant: the flight knows of the request until the reader is dropped.

use std::{future::poll_fn, sync::Arc};

use crate::flight::{shared::Flight, stage::FetchStage};

/// A request that waits for a flight.
pub(crate) struct FlightReader {
    flight: Arc<Flight>,
    index: usize,
    first: bool,
}

impl FlightReader {
    /// Creates the reader for the request that started the flight.
    pub(crate) fn first(flight: Arc<Flight>) -> Self {
        let index = flight.add_reader().expect("a new flight is open");
        Self { flight, index, first: true }
    }

    /// Creates another reader, or returns `None` if it is too late to join.
    pub(crate) fn join(flight: &Arc<Flight>) -> Option<Self> {
        let index = flight.add_reader()?;
        Some(Self { flight: Arc::clone(flight), index, first: false })
    }

    /// Returns whether the flight was started for this reader.
    pub(crate) fn is_first(&self) -> bool {
        self.first
    }

    pub(crate) fn flight(&self) -> &Arc<Flight> {
        &self.flight
    }

    /// Waits until the fetch has a result to report.
    pub(crate) async fn stage(&mut self) -> FetchStage {
        poll_fn(|context| self.flight.poll_stage(self.index, context)).await
    }
}

impl Drop for FlightReader {
    fn drop(&mut self) {
        self.flight.remove_reader(self.index);
    }
}
