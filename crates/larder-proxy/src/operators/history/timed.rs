//! The distribution of durations in the last minute.
//!
//! Owns: a snapshot of the histograms every ten seconds, kept for a minute.

use std::collections::VecDeque;

use crate::figures::{metrics::ProxyStats, outcome::OutcomeKind, times::TimeCounts};

/// The histograms of durations, by their names in the overview.
pub(crate) type NamedTimes = [(&'static str, TimeCounts); 4];

/// Snapshots of the histograms, oldest first, from which the last minute is computed.
#[derive(Clone, Debug)]
pub(super) struct TimedLooks {
    looks: VecDeque<NamedTimes>,
    looked_s: i64,
}

/// Returns the current histograms, by name.
///
/// `hit` and `miss` are times to the head of a response from cache or origin, `origin` is the time to the head of an
/// origin's response, and `disk` is the duration of store reads that waited for the disk.
fn times_of(stats: &ProxyStats) -> NamedTimes {
    [
        ("hit", stats.first_byte_seconds[OutcomeKind::Hit as usize]),
        ("miss", stats.first_byte_seconds[OutcomeKind::Miss as usize]),
        ("origin", stats.origin_first_byte_seconds),
        ("disk", stats.store_read_seconds),
    ]
}

impl TimedLooks {
    /// Creates the list with one snapshot, taken before anything was counted.
    pub(super) fn new() -> Self {
        Self { looks: VecDeque::from([NamedTimes::default()]), looked_s: 0 }
    }

    /// Takes a snapshot if the last one is ten seconds old.
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

    /// Returns the histograms of the last minute, or of the time since the start if less than a minute has passed.
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
