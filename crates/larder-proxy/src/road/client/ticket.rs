//! Accounts for a response that has been sent or broken off: the connection's phase, the counters, and the access log.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use http::StatusCode;

use crate::{
    figures::{
        access_log::OpenLogLine,
        log_format::SentResponse,
        metrics::ExchangeSummary,
        outcome::{MissReason, Outcome},
        times::TimeBucket,
    },
    ground::{cache::BodyError, overload::ExchangeRoom},
    operators::{
        popular::PopularitySubject,
        query_log::{QueryPlace, QueryResult},
    },
    road::client::peer::Client,
    run::worker::Worker,
};

/// A line for the access log of the worker that answered.
pub(crate) struct LogLine {
    pub(crate) worker: Arc<Worker>,
    pub(crate) line: OpenLogLine,
}

/// Facts about an exchange that are known when its response has a head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExchangeContext {
    /// The time at which the request's head had arrived.
    pub(crate) started: Instant,
    /// Time from the request to the response's head, in microseconds. `None` if the body was complete with the head.
    pub(crate) first_byte_us: Option<u32>,
    pub(crate) subject: Option<PopularitySubject>,
    /// The entry of the exchange in the query log, if that is enabled.
    pub(crate) query: Option<QueryPlace>,
    pub(crate) outcome: Outcome,
    pub(crate) why: Option<MissReason>,
    pub(crate) status: StatusCode,
}

/// Counts and logs one exchange when it is dropped.
pub(crate) struct Ticket {
    client: Arc<Client>,
    line: Option<Box<LogLine>>,
    /// The facts to count and log. `None` for an exchange that is not counted, such as a health check.
    about: Option<ExchangeContext>,
    sent_bytes: u64,
    complete: bool,
    broken: bool,
    /// The memory reserved for the exchange, which is released when the client has its response.
    room: Option<ExchangeRoom>,
}

impl Ticket {
    pub(crate) fn new(client: Arc<Client>, line: Option<Box<LogLine>>, about: Option<ExchangeContext>) -> Self {
        Self { client, line, about, sent_bytes: 0, complete: false, broken: false, room: None }
    }

    /// Returns this ticket with the memory that is reserved for its exchange.
    pub(crate) fn holding(mut self, room: Option<ExchangeRoom>) -> Self {
        self.room = room;
        self
    }

    /// Records that bytes were handed to the connection. `last` says that the body is complete.
    pub(crate) fn note_sent(&mut self, bytes: usize, last: bool) {
        self.sent_bytes += bytes as u64;
        self.complete |= last;
    }

    /// Returns the client of the exchange.
    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    fn count(&self, about: ExchangeContext) {
        let metrics = &self.client.worker.metrics;
        let ExchangeContext { started, first_byte_us, subject, query, outcome, why, status } = about;
        metrics.settle(&ExchangeSummary { outcome, status, subject, sent_bytes: self.sent_bytes });
        let took = started.elapsed();
        if let Some(query) = query {
            metrics.queries.end(query, &QueryResult { outcome, why, status, sent_bytes: self.sent_bytes, took });
        }
        if outcome != Outcome::Tunnel {
            let kind = outcome.kind() as usize;
            let whole = TimeBucket::of(took);
            // A body in memory is sent in one piece, so its first byte leaves when the whole does.
            let first_byte = first_byte_us.map_or(whole, |micros| TimeBucket::of(Duration::from_micros(micros.into())));
            metrics.first_byte_seconds[kind].note_in(first_byte);
            if self.complete {
                metrics.response_seconds[kind].note_in(whole);
            }
        }
        if let Some(session) = &self.client.session {
            session.count_sent(outcome, self.sent_bytes);
        }
        if !self.complete {
            metrics.aborted_responses.add(1);
        }
    }

    /// Records that the body broke off.
    pub(crate) fn note_broken(&mut self, error: BodyError) {
        tracing::debug!(%error, peer = %self.client.peer, "a response was cut off");
        self.client.worker.metrics.broken_responses[error as usize].add(1);
        self.complete = false;
        self.broken = true;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(about) = self.about {
            self.count(about);
        }
        if let Some(LogLine { worker, line }) = self.line.take().map(|line| *line) {
            worker.write_log_line(&line, SentResponse { bytes: self.sent_bytes, complete: self.complete });
        }
        self.client.end(!self.complete && !self.broken);
    }
}
