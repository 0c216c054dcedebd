//! Histograms of durations, with the same bounds everywhere.
//!
//! Owns: the bounds. Formatting is in `operators::admin::figures`. Invariant: only the worker's thread writes, as to
//! all counters. Cost: recording a duration takes a search among 18 bounds and two additions.

use std::{array, iter::Sum, time::Duration};

use crate::figures::metrics::{Counter, CounterRow};

/// A histogram of durations that one worker fills.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    counts: CounterRow<{ BOUNDS_US.len() + 1 }>,
    sum_us: Counter,
}

/// A histogram of durations, of one worker or summed over several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeCounts {
    counts: [u64; BOUNDS_US.len() + 1],
    sum_us: u64,
}

/// A duration in microseconds, and the index of its bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeBucket {
    micros: u64,
    index: usize,
}

impl TimeBucket {
    pub(crate) fn of(time: Duration) -> Self {
        let micros = time.as_secs().saturating_mul(1_000_000).saturating_add(time.subsec_micros().into());
        Self { micros, index: BOUNDS_US.partition_point(|bound| *bound < micros) }
    }
}

impl Histogram {
    pub(crate) fn note(&self, time: Duration) {
        self.note_in(TimeBucket::of(time));
    }

    /// Records a duration whose bucket is already known.
    pub(crate) fn note_in(&self, bucket: TimeBucket) {
        self.counts[bucket.index].add(1);
        self.sum_us.add(bucket.micros);
    }

    pub(crate) fn value(&self) -> TimeCounts {
        TimeCounts { counts: array::from_fn(|at| self.counts[at].value()), sum_us: self.sum_us.value() }
    }
}

impl Sum for TimeCounts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, times| Self {
            counts: array::from_fn(|at| sum.counts[at] + times.counts[at]),
            sum_us: sum.sum_us + times.sum_us,
        })
    }
}

impl TimeCounts {
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all durations, in seconds.
    pub(crate) fn sum_s(&self) -> f64 {
        self.sum_us as f64 / MICROS
    }

    /// Returns the upper bound of each bucket in seconds, and the number of durations in the bucket.
    ///
    /// The last bound is infinity.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = BOUNDS_US.iter().map(|bound| *bound as f64 / MICROS).chain([f64::INFINITY]);
        bounds.zip(self.counts)
    }

    /// Returns the durations that were counted since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let counts = array::from_fn(|at| self.counts[at].saturating_sub(before.counts[at]));
        Self { counts, sum_us: self.sum_us.saturating_sub(before.sum_us) }
    }

    /// Returns the quantile `share` (from 0 to 1) in seconds, interpolated within a bucket. `None` if no duration was
    /// recorded.
    pub(crate) fn quantile_s(&self, share: f64) -> Option<f64> {
        let wanted = share * self.count() as f64;
        let mut below = 0.0;
        let mut counted = 0.0;
        for (bound, count) in self.buckets() {
            let count = count as f64;
            if count > 0.0 && counted + count >= wanted {
                let upper = if bound == f64::INFINITY { below } else { bound };
                return Some(below + (upper - below) * ((wanted - counted) / count).clamp(0.0, 1.0));
            }
            (below, counted) = (bound, counted + count);
        }
        None
    }
}

const MICROS: f64 = 1e6;
/// Upper bounds of the buckets in microseconds, from the time of a hit in memory to a time after which every client has
/// given up.
const BOUNDS_US: [u64; 18] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 60_000_000,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_by_their_bounds_and_shares_are_found() {
        let histogram = Histogram::default();
        for micros in [0, 50, 51, 900, 1_000, 30_000_000, 1_000_000_000] {
            histogram.note(Duration::from_micros(micros));
        }
        let times = histogram.value();
        let counted: Vec<(f64, u64)> = times.buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(0.000_05, 2), (0.000_1, 1), (0.001, 2), (60.0, 1), (f64::INFINITY, 1)]);
        assert_eq!((times.count(), times.sum_s()), (7, 1_030.002_001));
        assert_eq!(times.quantile_s(0.0), Some(0.0));
        assert_eq!(times.quantile_s(2.0 / 7.0), Some(0.000_05));
        assert_eq!(times.quantile_s(1.0), Some(60.0), "what is beyond the last bound is told as that");
        histogram.note(Duration::from_micros(80));
        assert_eq!(histogram.value().since(&times).count(), 1);
        assert_eq!(TimeCounts::default().quantile_s(0.5), None);
    }
}
