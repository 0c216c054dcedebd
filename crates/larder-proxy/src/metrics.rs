//! Counters, plain ones per worker.
//!
//! Owns: the counters. Does not: add them up, see `exposition`. Invariant: a worker's counters are written by its own thread alone, so
//! an increment is a load and a store without a locked instruction; readers may see a value one event old.

use std::{
    ops::Deref,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::{
    errors::BodyError,
    outcome::{MissReason, Outcome},
};

/// A number that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds; only the owning thread may.
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    /// Takes away what was added before.
    pub(crate) fn take(&self, count: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(count), Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A row of counters.
#[derive(Debug)]
pub(crate) struct Row<const COUNT: usize>([Counter; COUNT]);

impl<const COUNT: usize> Default for Row<COUNT> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

impl<const COUNT: usize> Deref for Row<COUNT> {
    type Target = [Counter; COUNT];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// The counters of one worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerMetrics {
    pub(crate) outcomes: [Counter; Outcome::ALL.len()],
    pub(crate) misses: Row<{ MissReason::COUNT }>,
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
    pub(crate) connections_refused: Counter,
    pub(crate) store_errors: Counter,
    pub(crate) store_overdue: Counter,
    pub(crate) store_bypassed: Counter,
    pub(crate) aborted: Counter,
    pub(crate) broken: [Counter; BodyError::ALL.len()],
    pub(crate) rests_fetched: Counter,
    pub(crate) storing_given_up: Counter,
    pub(crate) log_lines_dropped: Counter,
}

impl WorkerMetrics {
    pub(crate) fn count(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].add(1);
    }
}
