//! The recent distribution of durations.
//!
//! Owns: a snapshot of the histograms every ten seconds, kept for a minute.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    metrics::{WorkerMetrics, sum_times},
    outcome::OutcomeKind,
    times::TimeCounts,
};

/// Histograms of durations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimedCounts {
    /// From a request's head to the head of its response from the cache.
    pub(crate) hit: TimeCounts,
    /// From a request's head to the head of its response from an origin.
    pub(crate) miss: TimeCounts,
    /// From a request to an origin to the head of its response.
    pub(crate) origin: TimeCounts,
    /// Reads of the store that waited for its disk.
    pub(crate) disk: TimeCounts,
}

/// The snapshots, the oldest first.
#[derive(Clone, Debug)]
pub(super) struct TimedLooks {
    looks: VecDeque<TimedCounts>,
    looked_s: i64,
}

impl TimedCounts {
    fn of(workers: &[Arc<WorkerMetrics>]) -> Self {
        Self {
            hit: sum_times(workers, |worker| &worker.first_bytes[OutcomeKind::Hit as usize]),
            miss: sum_times(workers, |worker| &worker.first_bytes[OutcomeKind::Miss as usize]),
            origin: sum_times(workers, |worker| &worker.origin_answers),
            disk: sum_times(workers, |worker| &worker.store_reads),
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            hit: self.hit.since(&before.hit),
            miss: self.miss.since(&before.miss),
            origin: self.origin.since(&before.origin),
            disk: self.disk.since(&before.disk),
        }
    }
}

impl TimedLooks {
    /// Creates empty snapshots.
    pub(super) fn new() -> Self {
        Self { looks: VecDeque::from([TimedCounts::default()]), looked_s: 0 }
    }

    /// Takes a snapshot, if it is time for one.
    pub(super) fn look(&mut self, workers: &[Arc<WorkerMetrics>], unix_s: i64) {
        if (0..LOOK_INTERVAL_S).contains(&unix_s.saturating_sub(self.looked_s)) {
            return;
        }
        self.looked_s = unix_s;
        self.looks.push_back(TimedCounts::of(workers));
        if self.looks.len() > LOOK_COUNT_MAX {
            self.looks.pop_front();
        }
    }

    /// Returns the durations of the last minute, or since the start if that is shorter.
    pub(super) fn lately(&self, workers: &[Arc<WorkerMetrics>]) -> TimedCounts {
        let first = self.looks.front().copied().unwrap_or_default();
        TimedCounts::of(workers).since(&first)
    }
}

const LOOK_INTERVAL_S: i64 = 10;
const LOOK_COUNT_MAX: usize = 7;
