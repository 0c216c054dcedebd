//! The recent distribution of durations.
//!
//! Owns: a snapshot of the histograms every ten seconds, kept for a minute.

use std::collections::VecDeque;

use crate::{metrics::ProxyStats, outcome::OutcomeKind, times::TimeCounts};

/// Distributions of durations, with their names in the overview.
pub(crate) type NamedTimes = [(&'static str, TimeCounts); 4];

/// The snapshots, the oldest first.
#[derive(Clone, Debug)]
pub(super) struct TimedLooks {
    looks: VecDeque<NamedTimes>,
    looked_s: i64,
}

/// Returns the durations up to the head of a response from the cache (`hit`) or from an origin (`miss`), up to the head
/// of an origin's response (`origin`), and of store reads that waited for the disk.
fn times_of(stats: &ProxyStats) -> NamedTimes {
    [
        ("hit", stats.first_byte_seconds[OutcomeKind::Hit as usize]),
        ("miss", stats.first_byte_seconds[OutcomeKind::Miss as usize]),
        ("origin", stats.origin_first_byte_seconds),
        ("disk", stats.store_read_seconds),
    ]
}

impl TimedLooks {
    /// Creates empty snapshots.
    pub(super) fn new() -> Self {
        Self { looks: VecDeque::from([NamedTimes::default()]), looked_s: 0 }
    }

    /// Takes a snapshot, if it is time for one.
    pub(super) fn look(&mut self, stats: &ProxyStats, unix_s: i64) {
        if (0..LOOK_INTERVAL_S).contains(&unix_s.saturating_sub(self.looked_s)) {
            return;
        }
        self.looked_s = unix_s;
        self.looks.push_back(times_of(stats));
        if self.looks.len() > LOOK_COUNT_MAX {
            self.looks.pop_front();
        }
    }

    /// Returns the durations of the last minute, or since the start if that is shorter.
    pub(super) fn lately(&self, stats: &ProxyStats) -> NamedTimes {
        let mut times = times_of(stats);
        for ((_, count), (_, before)) in times.iter_mut().zip(self.looks.front().into_iter().flatten()) {
            *count = count.since(before);
        }
        times
    }
}

const LOOK_INTERVAL_S: i64 = 10;
const LOOK_COUNT_MAX: usize = 7;
