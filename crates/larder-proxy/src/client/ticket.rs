//! What is settled when a response has been sent or broken off: the connection's phase, the counters,
//! the access log's line.

use std::sync::Arc;

use crate::{access_log::Line, client::peer::Client, errors::BodyError, outcome::Outcome, worker::Worker};

/// A line for the access log of the worker that answers, whose configuration says where that is.
pub(crate) struct LogLine {
    pub(crate) worker: Arc<Worker>,
    pub(crate) line: Line,
}

/// Settles one exchange when dropped.
pub(crate) struct Ticket {
    client: Arc<Client>,
    line: Option<Box<LogLine>>,
    outcome: Outcome,
    sent_bytes: u64,
    complete: bool,
    broken: bool,
}

impl Ticket {
    pub(crate) fn new(client: Arc<Client>, line: Option<Box<LogLine>>, outcome: Outcome) -> Self {
        Self { client, line, outcome, sent_bytes: 0, complete: false, broken: false }
    }

    /// Notes bytes handed over, and whether they were the last.
    pub(crate) fn note_sent(&mut self, bytes: usize, last: bool) {
        self.sent_bytes += bytes as u64;
        self.complete |= last;
    }

    /// The client that it is about.
    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Notes that the body ended in an error.
    pub(crate) fn note_broken(&mut self, error: BodyError) {
        tracing::debug!(%error, peer = %self.client.peer, "response broken off");
        self.client.worker.metrics.broken[error as usize].add(1);
        self.complete = false;
        self.broken = true;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let metrics = &self.client.worker.metrics;
        metrics.client_bytes.add(self.sent_bytes);
        if self.outcome.is_hit() {
            metrics.hit_bytes.add(self.sent_bytes);
        }
        if let Some(session) = &self.client.session {
            session.count_sent(self.outcome, self.sent_bytes);
        }
        if !self.complete {
            metrics.aborted.add(1);
        }
        if let Some(LogLine { worker, line }) = self.line.take().map(|line| *line) {
            worker.write_log_line(&line, self.sent_bytes, self.complete);
        }
        self.client.end(!self.complete && !self.broken);
    }
}
