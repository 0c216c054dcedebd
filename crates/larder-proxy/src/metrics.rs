//! Counters, one set per worker.
//!
//! Owns: the counters. `exposition` sums them. Invariant: only the worker's own thread writes its counters, so an
//! increment is a load and a store without a locked instruction. Readers may see a value one event old.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use http::StatusCode;

use crate::{
    client::intercept::bypass::BypassReason,
    errors::BodyError,
    outcome::{MissReason, Outcome, OutcomeKind},
    popular::{PopularityCounter, PopularitySubject},
    site_figures::SiteFigures,
    times::{Histogram, TimeCounts},
};

/// A number that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds to the counter. Only the owning thread may call this.
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    /// Sets the counter to another value.
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Subtracts an earlier addition.
    pub(crate) fn take(&self, count: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(count), Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counts an item until it is dropped.
pub(crate) struct CountGuard {
    metrics: Arc<WorkerMetrics>,
    counter: fn(&WorkerMetrics) -> &Counter,
}

impl CountGuard {
    /// Counts one item until the guard is dropped. Only the worker's own thread may call this.
    pub(crate) fn begin(metrics: &Arc<WorkerMetrics>, counter: fn(&WorkerMetrics) -> &Counter) -> Self {
        counter(metrics).add(1);
        Self { metrics: Arc::clone(metrics), counter }
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        (self.counter)(&self.metrics).take(1);
    }
}

/// A sequence of counters.
#[derive(Debug)]
pub(crate) struct CounterRow<const COUNT: usize>([Counter; COUNT]);

impl<const COUNT: usize> Default for CounterRow<COUNT> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

impl<const COUNT: usize> Deref for CounterRow<COUNT> {
    type Target = [Counter; COUNT];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// The counters of one worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerMetrics {
    pub(crate) outcomes: [Counter; Outcome::ALL.len()],
    pub(crate) misses: CounterRow<{ MissReason::COUNT }>,
    pub(crate) client_bytes: Counter,
    pub(crate) hit_bytes: Counter,
    pub(crate) origin_bytes: Counter,
    pub(crate) origin_requests: Counter,
    pub(crate) origin_connections: Counter,
    pub(crate) origin_failures: Counter,
    pub(crate) origin_waits: Counter,
    pub(crate) flights: Counter,
    pub(crate) collapsed: Counter,
    pub(crate) connections: Counter,
    pub(crate) connections_open: Counter,
    /// Open connections that are reduced to their socket, because they have been between two requests for a second.
    pub(crate) connections_parked: Counter,
    /// Requests that have waited for a second, during which the HTTP library's state of their connections is released.
    pub(crate) exchanges_parked: Counter,
    pub(crate) connections_refused: Counter,
    /// Open tunnels. Each also counts as a connection.
    pub(crate) tunnels_open: Counter,
    /// Tunnels to hosts listed for interception that were not intercepted, by reason.
    pub(crate) bypassed: [Counter; BypassReason::ALL.len()],
    /// Open connections that cannot, or may turn out not to, be handed over to another process.
    pub(crate) connections_unmovable: Counter,
    /// 1 once the worker accepts no more connections and has notified the open ones.
    pub(crate) has_left: Counter,
    /// Requests with possible side effects at the origin, until their invalidation is complete.
    pub(crate) changes_open: Counter,
    pub(crate) store_errors: Counter,
    pub(crate) store_overdue: Counter,
    pub(crate) store_bypassed: Counter,
    pub(crate) aborted: Counter,
    pub(crate) broken: [Counter; BodyError::ALL.len()],
    pub(crate) rests_fetched: Counter,
    /// Responses of other nodes of the fleet, and requests that went past the node that owns the resource.
    pub(crate) sibling_answers: Counter,
    pub(crate) siblings_passed_by: Counter,
    /// Bytes of other nodes' responses that were admitted to the store.
    pub(crate) sibling_copy_bytes: Counter,
    pub(crate) storing_given_up: Counter,
    /// Fetched files that never change, by the result of the check of their digests.
    pub(crate) files: [Counter; FileCheck::ALL.len()],
    pub(crate) log_lines_dropped: Counter,
    /// Responses by kind, and within each kind by class of status.
    pub(crate) responses: CounterRow<{ OutcomeKind::ALL.len() * STATUS_CLASS_COUNT }>,
    /// Time from a request's head to its response's head, by kind.
    pub(crate) first_bytes: [Histogram; OutcomeKind::ALL.len()],
    /// Time from a request's head to the end of its response, by kind.
    pub(crate) whole_responses: [Histogram; OutcomeKind::ALL.len()],
    /// Time from a request to an origin to its response's head, including connecting and waiting for a connection.
    pub(crate) origin_answers: Histogram,
    /// Reads of the store that waited for its device.
    pub(crate) store_reads: Histogram,
    pub(crate) popular: PopularityCounter,
    pub(crate) sites: SiteFigures,
}

/// The result of the check of a fetched file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileCheck {
    /// The file has the digest that its URL or a stored listing names.
    Verified,
    /// No digest is known, so the file was stored unchecked.
    Unverified,
    /// The body does not have the digest that its URL, a stored listing or its origin names. It is not stored.
    Mismatched,
}

impl FileCheck {
    pub(crate) const ALL: [Self; 3] = [Self::Verified, Self::Unverified, Self::Mismatched];

    /// Returns the result as the metrics show it.
    pub(crate) const fn token(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Unverified => "unverified",
            Self::Mismatched => "mismatched",
        }
    }
}

/// The facts about an exchange that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExchangeSummary {
    pub(crate) outcome: Outcome,
    pub(crate) status: StatusCode,
    pub(crate) subject: Option<PopularitySubject>,
    pub(crate) sent_bytes: u64,
}

impl WorkerMetrics {
    pub(crate) fn count(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].add(1);
    }

    /// Counts an exchange that has ended.
    pub(crate) fn settle(&self, exchange: &ExchangeSummary) {
        let ExchangeSummary { outcome, status, subject, sent_bytes } = *exchange;
        let class = usize::from(status.as_u16() / 100).clamp(1, STATUS_CLASS_COUNT) - 1;
        self.responses[outcome.kind() as usize * STATUS_CLASS_COUNT + class].add(1);
        self.client_bytes.add(sent_bytes);
        if outcome.is_hit() {
            self.hit_bytes.add(sent_bytes);
        }
        if let Some(subject) = subject {
            self.popular.note(subject, outcome, sent_bytes);
            self.sites.note(subject.label, outcome, sent_bytes);
        }
    }
}

/// Sums a histogram over all workers.
pub(crate) fn sum_times(workers: &[Arc<WorkerMetrics>], of: impl Fn(&WorkerMetrics) -> &Histogram) -> TimeCounts {
    let mut times = TimeCounts::default();
    workers.iter().for_each(|worker| of(worker).add_to(&mut times));
    times
}

/// Number of classes of status, 1xx to 5xx.
pub(crate) const STATUS_CLASS_COUNT: usize = 5;
