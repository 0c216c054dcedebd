//! A client request that waits for a flight.
//!
//! Invariant: the flight knows of the request until the reader is dropped.

use std::{future::poll_fn, sync::Arc};

use super::{shared::Flight, stage::FetchStage};
use crate::http::fetcher::Fetcher;

/// A request that waits for a flight: a fetch that several requests can share.
pub struct FlightReader<F: Fetcher> {
    flight: Arc<Flight<F>>,
    index: usize,
    first: bool,
}

impl<F: Fetcher> FlightReader<F> {
    /// Creates the reader for the request that started the flight (the shared fetch).
    pub fn first(flight: Arc<Flight<F>>) -> Self {
        let index = flight.add_reader().expect("a new flight is open");
        Self { flight, index, first: true }
    }

    /// Joins a flight (a shared fetch). Returns `None` if it is too late for that.
    pub fn join(flight: &Arc<Flight<F>>) -> Option<Self> {
        let index = flight.add_reader()?;
        Some(Self { flight: Arc::clone(flight), index, first: false })
    }

    /// Returns whether this reader's request started the flight (the shared fetch).
    pub fn is_first(&self) -> bool {
        self.first
    }

    /// Returns the flight, the shared fetch for which this reader waits.
    pub fn flight(&self) -> &Arc<Flight<F>> {
        &self.flight
    }

    /// Waits until the head of the response has arrived or the fetch has failed, and returns that stage.
    pub async fn stage(&mut self) -> FetchStage<F> {
        poll_fn(|context| self.flight.poll_stage(self.index, context)).await
    }
}

impl<F: Fetcher> Drop for FlightReader<F> {
    fn drop(&mut self) {
        self.flight.remove_reader(self.index);
    }
}
