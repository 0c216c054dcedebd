//! A series of counts, one per interval, for a fixed number of past intervals.
//!
//! Invariant: the number of points is constant, and the last is that of the current interval. Cost: each new interval
//! drops one point and adds one.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// The requests in one interval of a series, or in one day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 6]", into = "[u64; 6]")]
pub(crate) struct SeriesPoint {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    /// Requests that were neither hits nor misses: tunnels, refusals and failures.
    pub(crate) others: u64,
    pub(crate) client_bytes: u64,
    pub(crate) origin_bytes: u64,
    pub(crate) hit_bytes: u64,
}

/// The requests in each of the last intervals, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TimeSeries {
    step_s: i64,
    /// The number of the current interval, counted from the beginning of 1970.
    last_step: i64,
    points: VecDeque<SeriesPoint>,
}

impl TimeSeries {
    /// Creates a series of the last 60 seconds.
    pub(crate) fn seconds() -> Self {
        Self::new(1, 60)
    }

    /// Creates a series of the last 60 minutes.
    pub(crate) fn minutes() -> Self {
        Self::new(60, 60)
    }

    /// Creates a series of the last 96 quarters of an hour.
    pub(crate) fn quarters() -> Self {
        Self::new(15 * 60, 96)
    }

    fn new(step_s: i64, count: usize) -> Self {
        Self { step_s, last_step: 0, points: VecDeque::from(vec![SeriesPoint::default(); count]) }
    }

    /// Adds requests to the interval that contains the time `unix_s`.
    pub(crate) fn add(&mut self, added: &SeriesPoint, unix_s: i64) {
        let step = unix_s.div_euclid(self.step_s);
        let count = self.points.len();
        let passed = step.saturating_sub(self.last_step);
        // If the clock was set back a little, the requests are added to the current interval.
        let is_other_time = passed.unsigned_abs() >= count as u64;
        if is_other_time {
            self.points.iter_mut().for_each(|point| *point = SeriesPoint::default());
        } else {
            (0..passed).for_each(|_| {
                self.points.rotate_left(1);
                self.points[count - 1] = SeriesPoint::default();
            });
        }
        if is_other_time || passed > 0 {
            self.last_step = step;
        }
        self.points[count - 1].add(added);
        assert!(self.points.len() == count, "a series keeps its length");
    }

    /// Returns the requests in each interval, oldest first.
    pub(crate) fn points(&self) -> impl Iterator<Item = &SeriesPoint> {
        self.points.iter()
    }

    /// Returns the sum of all points.
    pub(crate) fn sum(&self) -> SeriesPoint {
        let mut sum = SeriesPoint::default();
        self.points.iter().for_each(|point| sum.add(point));
        sum
    }

    /// Returns whether both series have the same number and length of intervals.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.step_s, self.points.len()) == (other.step_s, other.points.len())
    }
}

impl SeriesPoint {
    pub(super) fn add(&mut self, added: &Self) {
        let mut sum = <[u64; 6]>::from(*self);
        for (total, count) in sum.iter_mut().zip(<[u64; 6]>::from(*added)) {
            *total = total.saturating_add(count);
        }
        *self = sum.into();
    }
}

impl From<[u64; 6]> for SeriesPoint {
    fn from([hits, misses, others, client_bytes, origin_bytes, hit_bytes]: [u64; 6]) -> Self {
        Self { hits, misses, others, client_bytes, origin_bytes, hit_bytes }
    }
}

impl From<SeriesPoint> for [u64; 6] {
    fn from(SeriesPoint { hits, misses, others, client_bytes, origin_bytes, hit_bytes }: SeriesPoint) -> Self {
        [hits, misses, others, client_bytes, origin_bytes, hit_bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(steps: &[(i64, u64)], last: &[u64]) {
        let mut series = TimeSeries::new(10, 4);
        for (unix_s, hits) in steps {
            series.add(&SeriesPoint { hits: *hits, ..SeriesPoint::default() }, *unix_s);
        }
        assert_eq!(series.points().map(|point| point.hits).collect::<Vec<_>>(), last, "{steps:?}");
    }

    #[test]
    fn each_stretch_has_what_came_in_it_whatever_the_clock_does() {
        check(&[(1000, 1), (1009, 2)], &[0, 0, 0, 3]);
        check(&[(1000, 1), (1010, 2), (1035, 3)], &[1, 2, 0, 3]);
        check(&[(1000, 1), (1030, 2), (1040, 3)], &[0, 0, 2, 3]);
        check(&[(1000, 1), (900_000, 2)], &[0, 0, 0, 2]);
        // The clock is set back by one interval, then by a year.
        check(&[(1000, 1), (1010, 2), (1001, 3), (1012, 1)], &[0, 0, 1, 6]);
        check(&[(90_000_000, 1), (1000, 2), (1010, 3)], &[0, 0, 2, 3]);
        check(&[(i64::MAX, 1), (i64::MIN, 2)], &[0, 0, 0, 2]);
    }
}
