//! A request that has no response yet.
//!
//! Owns: its place among the waiting requests, and the end of its exchange if its client leaves.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use crate::{client::peer::Client, request::accounting::RequestNote, worker::Worker};

/// A request without a response yet. Over HTTP/2, its client may abandon it while the connection's other requests
/// continue.
pub(super) struct PendingExchange {
    pub(super) ending: ExchangeEnd,
    pub(super) worker: Arc<Worker>,
    pub(super) met: RequestNote,
}

impl PendingExchange {
    pub(super) fn new(client: &Arc<Client>, worker: &Arc<Worker>, met: RequestNote) -> Self {
        worker.shared.counts.waiting.fetch_add(1, Relaxed);
        let ending = ExchangeEnd { client: Arc::clone(client), is_answered: false };
        Self { ending, worker: Arc::clone(worker), met }
    }
}

impl Drop for PendingExchange {
    fn drop(&mut self) {
        self.worker.shared.counts.waiting.fetch_sub(1, Relaxed);
    }
}

/// Ends an exchange that its client abandons before the response.
pub(super) struct ExchangeEnd {
    pub(super) client: Arc<Client>,
    pub(super) is_answered: bool,
}

impl Drop for ExchangeEnd {
    fn drop(&mut self) {
        if !self.is_answered {
            self.client.end(true);
        }
    }
}
