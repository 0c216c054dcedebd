//! How many entries the `esp` row evicts as time goes by, so that long free runs exist before they are needed.
//!
//! Below the low watermark a base rate, and more the shorter the run last found was; between the
//! watermarks a fixed rate; above the high one twice that. Nothing is evicted while the volume is written for the
//! first time (no run was looked for yet), nor for time in which nothing was stored: an idle store keeps
//! what it has. Pure: time is an argument. Idea and numbers: ESP, ICS 2002.

use std::time::Duration;

/// A round counts at most this much time: after a pause nothing is made up for.
const ROUND_MAX: Duration = Duration::from_secs(10);

/// The rates, in entries per second, and the watermarks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) low_percent: u64,
    pub(crate) high_percent: u64,
    /// Below the low watermark.
    pub(crate) base_per_s: u32,
    /// Between the watermarks; above the high one this is done every half second.
    pub(crate) between_per_s: u32,
}

/// How long the run last found was, in shares of the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunFound {
    pub(crate) len: u64,
    pub(crate) threshold: u64,
}

/// Turns time into evictions.
pub(crate) struct Pacer {
    pace: Pace,
    /// Until when evictions were counted.
    counted_until: Option<Duration>,
    /// Thousandths of an entry that were due but not whole.
    remainder: u64,
}

impl Pacer {
    pub(crate) fn new(pace: Pace) -> Self {
        assert!(pace.low_percent <= pace.high_percent);
        Self { pace, counted_until: None, remainder: 0 }
    }

    /// How many entries are to be evicted at `now`, when `used_percent` of the volume is used. `stored`: whether
    /// anything was stored since the last call.
    pub(crate) fn due(&mut self, now: Duration, used_percent: u64, run: Option<RunFound>, stored: bool) -> u64 {
        let since = self.counted_until.replace(now);
        let (Some(since), Some(run), true) = (since, run, stored) else { return 0 };
        let milliseconds = now.saturating_sub(since).min(ROUND_MAX).as_millis() as u64;
        let due = milliseconds * u64::from(self.rate_per_s(used_percent, run)) + self.remainder;
        assert!(self.remainder < 1000, "whole entries were told");
        self.remainder = due % 1000;
        due / 1000
    }

    fn rate_per_s(&self, used_percent: u64, run: RunFound) -> u32 {
        if used_percent > self.pace.high_percent {
            self.pace.between_per_s * 2
        } else if used_percent >= self.pace.low_percent {
            self.pace.between_per_s
        } else {
            self.pace.base_per_s + evict_more(run)
        }
    }
}

/// The published steps.
fn evict_more(run: RunFound) -> u32 {
    let RunFound { len, threshold } = run;
    if len < threshold {
        15
    } else if len < 2 * threshold {
        10
    } else if len < 3 * threshold {
        5
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { low_percent: 90, high_percent: 95, base_per_s: 10, between_per_s: 200 };

    fn due_in_10_s(used_percent: u64, len: u64) -> u64 {
        let mut pacer = Pacer::new(PACE);
        let run = Some(RunFound { len, threshold: 100 });
        assert_eq!(pacer.due(Duration::from_secs(50), used_percent, run, true), 0, "no time has gone by");
        (1..=40).map(|n| pacer.due(Duration::from_millis(50_000 + n * 250), used_percent, run, true)).sum()
    }

    #[test]
    fn the_published_rates_come_out_whatever_the_rhythm() {
        assert_eq!([50, 150, 250, 350].map(|len| due_in_10_s(80, len)), [250, 200, 150, 100]);
        assert_eq!([90, 95, 96].map(|used| due_in_10_s(used, 50)), [2000, 2000, 4000]);
    }

    #[test]
    fn an_idle_store_and_one_never_filled_evict_nothing() {
        let mut pacer = Pacer::new(PACE);
        let run = Some(RunFound { len: 1, threshold: 100 });
        assert_eq!(pacer.due(Duration::from_secs(1), 99, run, true), 0);
        assert_eq!(pacer.due(Duration::from_secs(1000), 99, run, false), 0);
        assert_eq!(pacer.due(Duration::from_secs(1001), 99, None, true), 0);
        assert_eq!(pacer.due(Duration::from_secs(1002), 99, run, true), 400, "and does not make up for it");
    }
}
