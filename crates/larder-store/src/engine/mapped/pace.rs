//! Paces the evictions of `esp` by time, so that long free runs exist before they are needed.
//!
//! Below the low watermark, a base rate is evicted, and more if the last run found was short. Between the watermarks
//! there is a fixed rate, and above the high one twice that. Nothing is evicted while the volume is written for the
//! first time (no run was searched yet), nor for periods in which nothing was stored: an idle store keeps its entries.
//!
//! The published rates suit a disk of 2002 and are too low for higher loads. If entries arrive faster, the arrivals
//! determine the rate: above the low watermark, as many entries are evicted as arrived; above the high one, twice as
//! many; below the low one, as many as found no run. Pure: time is an argument. Idea and numbers: ESP, ICS 2002.

use std::time::Duration;

/// Maximum time since the last round for which evictions become due. The rest of a longer pause causes no evictions.
const ROUND_MAX: Duration = Duration::from_secs(10);

/// The rates of eviction, in entries per second, and the watermarks between which they apply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EvictionPace {
    pub(crate) low_percent: u64,
    pub(crate) high_percent: u64,
    /// Entries evicted per second below the low watermark.
    pub(crate) base_per_s: u32,
    /// Entries evicted per second between the watermarks. Above the high watermark, the rate is doubled.
    pub(crate) between_per_s: u32,
}

/// A free run that was found: its length, and the threshold with which it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunFound {
    pub(crate) len: u64,
    pub(crate) threshold: u64,
}

/// The attempts to store entries since it was last computed which evictions are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeDemand {
    /// Whether there was any attempt to store an entry.
    pub(crate) is_any: bool,
    /// Number of entries for which there was space.
    pub(crate) placed: u64,
    /// Number of entries for which no free run was found.
    pub(crate) unplaced: u64,
}

/// Decides how many entries to evict, by time and demand.
pub(crate) struct EvictionPacer {
    pace: EvictionPace,
    /// Time up to which evictions were counted; `None` before the first round.
    counted_until: Option<Duration>,
    /// Fraction of an entry that was due but not evicted yet, in millionths.
    remainder: u64,
}

impl EvictionPacer {
    pub(crate) fn new(pace: EvictionPace) -> Self {
        assert!(pace.low_percent <= pace.high_percent);
        Self { pace, counted_until: None, remainder: 0 }
    }

    /// Returns the number of entries to evict at `now`. `used_percent` is the share of the volume that is used, `run`
    /// the last free run found. `demand` counts the attempts to store entries since the last call.
    pub(crate) fn due(&mut self, now: Duration, used_percent: u64, run: Option<RunFound>, demand: VolumeDemand) -> u64 {
        let since = self.counted_until.replace(now);
        let (Some(since), Some(run), true) = (since, run, demand.is_any) else { return 0 };
        let microseconds = now.saturating_sub(since).min(ROUND_MAX).as_micros() as u64;
        let due = microseconds * u64::from(self.rate_per_s(used_percent, run)) + self.remainder;
        assert!(self.remainder < 1_000_000, "whole entries were told");
        self.remainder = due % 1_000_000;
        (due / 1_000_000).max(self.wanted(used_percent, demand))
    }

    /// Returns how many entries to evict because of `demand`, whatever the rates are.
    fn wanted(&self, used_percent: u64, demand: VolumeDemand) -> u64 {
        let VolumeDemand { placed, unplaced, .. } = demand;
        if used_percent > self.pace.high_percent {
            (placed + unplaced) * 2
        } else if used_percent >= self.pace.low_percent {
            placed + unplaced
        } else {
            unplaced
        }
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

/// Returns how many more entries per second to evict because the last run was short. The steps are those of the paper.
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

    const PACE: EvictionPace = EvictionPace { low_percent: 90, high_percent: 95, base_per_s: 10, between_per_s: 200 };

    const SOME: VolumeDemand = VolumeDemand { is_any: true, placed: 1, unplaced: 0 };

    fn due_in_10_s(used_percent: u64, len: u64, demand: VolumeDemand) -> u64 {
        let mut pacer = EvictionPacer::new(PACE);
        let run = Some(RunFound { len, threshold: 100 });
        let nothing = VolumeDemand { is_any: true, ..VolumeDemand::default() };
        assert_eq!(pacer.due(Duration::from_secs(50), used_percent, run, nothing), 0, "no time has gone by");
        (1..=40).map(|n| pacer.due(Duration::from_millis(50_000 + n * 250), used_percent, run, demand)).sum()
    }

    #[test]
    fn the_published_rates_come_out_whatever_the_rhythm() {
        assert_eq!([50, 150, 250, 350].map(|len| due_in_10_s(80, len, SOME)), [250, 200, 150, 100]);
        assert_eq!([90, 95, 96].map(|used| due_in_10_s(used, 50, SOME)), [2000, 2000, 4000]);
    }

    /// Guards against a store that evicts only at the published rates: new entries may arrive at 3,600 per second, not
    /// 200.
    #[test]
    fn what_comes_faster_than_the_published_rates_makes_room_for_itself() {
        let demand = VolumeDemand { is_any: true, placed: 900, unplaced: 0 };
        assert_eq!([80, 90, 95, 96].map(|used| due_in_10_s(used, 50, demand)), [250, 36_000, 36_000, 72_000]);
        let unplaced = VolumeDemand { unplaced: 900, placed: 0, ..demand };
        assert_eq!(due_in_10_s(80, 50, unplaced), 36_000, "what found no run needs room however empty the volume is");
    }

    #[test]
    fn an_idle_store_and_one_never_filled_evict_nothing() {
        let mut pacer = EvictionPacer::new(PACE);
        let run = Some(RunFound { len: 1, threshold: 100 });
        assert_eq!(pacer.due(Duration::from_secs(1), 99, run, SOME), 0);
        assert_eq!(pacer.due(Duration::from_secs(1000), 99, run, VolumeDemand::default()), 0);
        assert_eq!(pacer.due(Duration::from_secs(1001), 99, None, SOME), 0);
        assert_eq!(pacer.due(Duration::from_secs(1002), 99, run, SOME), 400, "and does not make up for it");
    }
}
