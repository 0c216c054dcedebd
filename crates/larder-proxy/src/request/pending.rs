//! A request that has no response yet.
//!
//! Owns: its place among the waiting requests, and the end of its exchange if its client leaves.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use http::Request;

use crate::{
    client::peer::Client,
    exchange_budget::ExchangePlace,
    received_body::IncomingBody,
    request::{
        accounting::{RequestNote, RequestStart},
        target::Target,
    },
    worker::Worker,
};

/// A request without a response yet. Over HTTP/2, its client may abandon it while the connection's other requests
/// continue.
pub(super) struct PendingExchange {
    pub(super) ending: ExchangeEnd,
    pub(super) worker: Arc<Worker>,
    met: RequestNote,
    /// The resource's key, if it was looked up in memory.
    pub(super) key: Option<Vec<u8>>,
    /// Boxed, because otherwise each exchange that waits would reserve space for it.
    pub(super) target: Box<Target>,
    /// The memory of the exchange. The response takes it over.
    place: Option<ExchangePlace>,
}

impl PendingExchange {
    /// Reserves the memory of an exchange. Returns `None` if there is none for another one.
    pub(super) fn room(worker: &Worker, request: &Request<IncomingBody>) -> Option<ExchangePlace> {
        let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
        worker.shared.cache.places.begin_exchange(fields.sum::<usize>() as u64)
    }

    pub(super) fn new(
        client: &Arc<Client>,
        worker: &Arc<Worker>,
        met: RequestNote,
        (key, target): (Option<Vec<u8>>, Target),
        place: ExchangePlace,
    ) -> Self {
        worker.shared.counts.waiting.fetch_add(1, Relaxed);
        let ending = ExchangeEnd { client: Arc::clone(client), is_answered: false };
        Self { ending, worker: Arc::clone(worker), met, key, target: Box::new(target), place: Some(place) }
    }

    /// Returns the facts about the exchange's request, which take over the memory.
    pub(super) fn start(&mut self, request: &Request<IncomingBody>) -> RequestStart {
        let place = self.place.take();
        RequestStart::new(&self.ending.client, &self.worker, &self.target, request, self.met).holding(place)
    }
}

impl Drop for PendingExchange {
    fn drop(&mut self) {
        self.worker.shared.counts.waiting.fetch_sub(1, Relaxed);
        if let Some(query) = self.met.query.filter(|_| !self.ending.is_answered) {
            self.worker.metrics.queries.abandon(query);
        }
    }
}

/// Ends an exchange that its client abandons before the response.
pub(super) struct ExchangeEnd {
    pub(super) client: Arc<Client>,
    pub(super) is_answered: bool,
}

impl ExchangeEnd {
    /// Leaves the end of the exchange to its response.
    pub(super) fn note_answered(&mut self) {
        self.is_answered = true;
    }
}

impl Drop for ExchangeEnd {
    fn drop(&mut self) {
        if !self.is_answered {
            self.client.end(true);
        }
    }
}
