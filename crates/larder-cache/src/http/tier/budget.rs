//! Limits for the second tier: writes per day, and pauses after failures.
//!
//! Owns: when a pack may be stored, and when entries may be read. Time is an argument.

use std::time::{Duration, Instant};

/// A budget: a number of units per day, of which only a part may be used at once.
pub(super) struct DailyBudget {
    per_day: u64,
    /// Maximum number of units that can be available at a time: those of an hour, but at least what one operation
    /// needs.
    burst: f64,
    available: f64,
    updated: Instant,
}

impl DailyBudget {
    /// Creates a budget of `per_day` units per day. The units of an hour are available at once, but at least
    /// `burst_min`. If `per_day` is `None`, returns `None`: there is no limit.
    pub(super) fn new(per_day: Option<u64>, burst_min: u64, now: Instant) -> Option<Self> {
        let per_day = per_day?;
        let burst = (per_day as f64 / 24.0).max(burst_min as f64);
        Some(Self { per_day, burst, available: burst, updated: now })
    }

    /// Returns whether `count` units are available.
    pub(super) fn has(&mut self, count: u64, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.updated).as_secs_f64();
        let earned = self.per_day as f64 * passed / DAY.as_secs_f64();
        self.available = (self.available + earned).min(self.burst);
        self.updated = now;
        self.available >= count as f64
    }

    /// Takes `count` units from the budget.
    pub(super) fn spend(&mut self, count: u64) {
        self.available -= count as f64;
    }
}

/// The pauses after failures, in which the tier is not used. Each failure makes the next pause longer.
#[derive(Default)]
pub(super) struct FailureRest {
    failure_count: u32,
    until: Option<Instant>,
}

impl FailureRest {
    /// Returns whether the tier may be used now. After a pause, one operation may try.
    pub(super) fn admits(&mut self, now: Instant) -> bool {
        match self.until {
            Some(until) if now < until => false,
            Some(_) => {
                self.until = Some(now + self.length());
                true
            }
            None => true,
        }
    }

    /// Returns whether the tier is paused now. After the pause, one successful operation makes it usable again.
    pub(super) fn holds(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Returns whether the tier is paused, or was not used successfully since its last pause.
    pub(super) fn is_resting(&self) -> bool {
        self.until.is_some()
    }

    /// Records a success. Returns whether that made a paused tier usable again.
    pub(super) fn succeed(&mut self) -> bool {
        self.failure_count = 0;
        self.until.take().is_some()
    }

    /// Records a failure. Returns whether that begins a pause. Fewer than `FAILURE_COUNT_MIN` consecutive failures do
    /// not, because other operations may succeed.
    pub(super) fn fail(&mut self, now: Instant) -> bool {
        self.failure_count = self.failure_count.saturating_add(1);
        if self.failure_count < FAILURE_COUNT_MIN {
            return false;
        }
        let was_resting = self.until.replace(now + self.length()).is_some();
        !was_resting
    }

    fn length(&self) -> Duration {
        let doublings = self.failure_count.saturating_sub(FAILURE_COUNT_MIN).min(REST_DOUBLINGS_MAX);
        REST_MIN * (1 << doublings)
    }
}

const DAY: Duration = Duration::from_hours(24);
/// Number of consecutive failures after which the tier is paused.
const FAILURE_COUNT_MIN: u32 = 3;
const REST_MIN: Duration = Duration::from_secs(1);
/// Maximum number of times that a pause is doubled. The longest pause is 64 s.
const REST_DOUBLINGS_MAX: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn take(budget: &mut DailyBudget, now: Instant) -> bool {
        let may = budget.has(1, now);
        if may {
            budget.spend(1);
        }
        may
    }

    #[test]
    fn budget_permits_an_hours_part_at_once_and_no_more_per_day() {
        let start = Instant::now();
        let mut budget = DailyBudget::new(Some(2400), 10, start).unwrap();
        let at_once = (0..1000).filter(|_| take(&mut budget, start)).count();
        assert_eq!(at_once, 100);
        let of_a_day = (1..=24 * 60).map(|minute| {
            let now = start + Duration::from_secs(minute * 60);
            (0..10).filter(|_| take(&mut budget, now)).count()
        });
        let of_a_day: usize = of_a_day.sum();
        assert!((2399..=2400).contains(&of_a_day), "{of_a_day}");
        assert!(DailyBudget::new(None, 10, start).is_none());
        // A pack must fit, however small the budget is.
        assert!(DailyBudget::new(Some(24), 16, start).unwrap().has(16, start));
    }

    #[test]
    fn tier_that_fails_is_tried_ever_more_rarely_and_used_at_once_when_it_works() {
        let start = Instant::now();
        let mut rest = FailureRest::default();
        assert!(!rest.fail(start) && !rest.fail(start) && rest.admits(start));
        assert!(rest.fail(start) && !rest.admits(start));
        let mut tried = Vec::new();
        for second in 0..200 {
            let now = start + Duration::from_secs(second);
            if rest.admits(now) {
                tried.push(second);
                assert!(!rest.fail(now));
            }
        }
        assert_eq!(tried, [1, 3, 7, 15, 31, 63, 127, 191]);
        assert!(rest.succeed() && rest.admits(start) && !rest.is_resting());
    }
}
