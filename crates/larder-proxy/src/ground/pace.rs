//! Limits a rate of bytes, like a token bucket.
//!
//! Owns: for each bucket, the time at which the rate has covered all bytes taken. Waiting and sending are done
//! elsewhere. Invariant: in any period, the bytes permitted are at most the rate times the period, plus the burst and
//! one piece. Idea: the generic cell rate algorithm (ITU-T I.371). It stores one time per bucket and gives each piece
//! its turn, so that all waiting streams share the rate, whatever their number.

use std::{
    num::NonZeroU64,
    time::{Duration, Instant},
};

/// A limit in bytes per second, and how many bytes may be sent at once after a pause (burst).
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    rate: NonZeroU64,
    burst: Duration,
}

/// A token bucket, which records how many bytes were taken under a [`Pace`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket {
    /// The time at which the rate will have covered all bytes taken. `None` if none were taken.
    earned_at: Option<Instant>,
}

impl Pace {
    /// Creates a limit of `rate` bytes per second, with bursts of `burst_bytes`.
    pub fn new(rate: NonZeroU64, burst_bytes: u64) -> Self {
        Self { rate, burst: time_of(burst_bytes, rate) }
    }
}

impl Bucket {
    /// Takes `bytes` from the bucket. Returns the time at which they may be sent, which may be in the past.
    pub fn take(&mut self, pace: &Pace, now: Instant, bytes: u64) -> Instant {
        let from = self.earned_at.map_or(now, |earned_at| earned_at.max(now));
        self.earned_at = Some(from + time_of(bytes, pace.rate));
        from.checked_sub(pace.burst).unwrap_or(now)
    }

    /// Returns whether the bucket permits as much as a new one.
    pub(crate) fn is_full(&self, now: Instant) -> bool {
        self.earned_at.is_none_or(|earned_at| earned_at <= now)
    }
}

/// Returns the time in which `rate` permits `bytes`, at most a century.
fn time_of(bytes: u64, rate: NonZeroU64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.get());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX).min(LONGEST_NANOS))
}

/// A century in nanoseconds. A time this far ahead can still be represented.
const LONGEST_NANOS: u64 = 100 * 365 * 86_400 * 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_at_their_rate_and_a_pause_earns_no_more_than_a_burst() {
        let pace = Pace::new(NonZeroU64::new(1000).unwrap(), 500);
        let mut bucket = Bucket::default();
        let start = Instant::now();
        let millis = |bucket: &mut Bucket, now: u64, bytes| {
            let turn = bucket.take(&pace, start + Duration::from_millis(now), bytes);
            u64::try_from(turn.saturating_duration_since(start).as_millis()).unwrap()
        };
        assert_eq!([0; 3].map(|now| millis(&mut bucket, now, 250)), [0, 0, 0], "500 at once, and a piece more");
        assert_eq!([0; 3].map(|now| millis(&mut bucket, now, 250)), [250, 500, 750]);
        assert!(
            !bucket.is_full(start + Duration::from_millis(1499)) && bucket.is_full(start + Duration::from_millis(1500))
        );
        let late = 60_000;
        assert!([late; 3].map(|now| millis(&mut bucket, now, 250)).into_iter().all(|turn| turn <= late));
        assert_eq!(millis(&mut bucket, late, 250), late + 250);
    }

    #[test]
    fn what_no_clock_can_count_is_no_fault() {
        let pace = Pace::new(NonZeroU64::MIN, u64::MAX);
        let mut bucket = Bucket::default();
        for _ in 0..3 {
            bucket.take(&pace, Instant::now(), u64::MAX);
        }
        assert!(!bucket.is_full(Instant::now()));
    }
}
