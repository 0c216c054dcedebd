//! Searches the greatest rate at which a proxy stays within a time limit.
//!
//! Owns: the choice of the next rate, and the criterion by which a rate passes. Invariant: rates that passed are below
//! those that failed, unless the proxy behaves differently at equal rates; the result lists all attempts. A rate counts
//! as too high only after it failed twice, so that one pause of the machine does not halve the result. Cost: one step
//! per doubling, one per bit of the result, and one more for each rate that is too high.

use super::Progress;
use crate::{
    load::{Load, LoadFigures, Loop, Requests},
    undo::EndsEarly,
    workload::Phase,
};
use serde::{Deserialize, Serialize};
use std::{io, time::Duration};

/// The settings of a search for the peak rate.
#[derive(Clone, Debug)]
pub struct PeakSearch {
    /// Limit on the 99th percentile of response times, which a rate must keep to pass.
    pub limit: Duration,
    /// The rate that is tried first, in requests per second.
    pub first: f64,
    /// Time for which each rate is tried.
    pub step: Duration,
    /// Number of bisection steps. Each halves the interval between the best rate that passed and the lowest that
    /// failed.
    pub bits: u32,
}

/// A rate that was tried, and its results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeakStep {
    /// The rate that was tried, in requests per second.
    pub rate: f64,
    /// Responses received per second.
    pub answered: f64,
    /// 99th percentile of response times, in microseconds.
    pub p99_us: u64,
    /// Hits as a share of all responses.
    pub hit_ratio: f64,
    /// Number of requests that failed, or whose responses were wrong, outdated or forbidden.
    pub failed: u64,
    /// 99th percentile of the time between the moment when a request was due and its sending, in microseconds. The
    /// benchmark causes this delay, not the proxy.
    pub late_us: u64,
    /// Whether the proxy kept the limit at this rate, so that the rate passed.
    pub passed: bool,
}

impl PeakSearch {
    /// Runs the search. Returns the figures of the highest rate that passed, and all rates that were tried.
    ///
    /// # Errors
    /// The same as for [`Load::run`].
    pub(super) fn run(
        &self,
        load: &Load,
        requests: &Requests,
        early: &EndsEarly,
        progress: Progress<'_>,
    ) -> io::Result<(LoadFigures, Vec<PeakStep>)> {
        if load.fill_bytes.is_some() {
            let fill = Phase { fills: true, counts: false, name: "fill", ..self.phase() };
            let filling = Load { phases: vec![fill], loop_kind: Loop::Open(self.first), ..load.clone() };
            filling.run(requests, progress)?;
        }
        let mut search = Bisection { low: 0.0, high: None, next: self.first, bits: self.bits, refused: false };
        let mut best = LoadFigures::default();
        let mut steps = Vec::new();
        while let Some(rate) = search.rate().filter(|_| !early.is_asked()) {
            let at_rate =
                Load { phases: vec![self.phase()], loop_kind: Loop::Open(rate), fill_bytes: None, ..load.clone() };
            let words = format!("{rate:.0} requests/s");
            let figures = at_rate.run(requests, &mut |_, share, counts| progress(&words, share, counts))?;
            if early.is_asked() {
                // A signal cut the last step short, so its rate is not judged.
                break;
            }
            let step = self.judge(rate, &figures);
            search.learn(step.passed);
            if step.passed || best.phases.is_empty() {
                best = figures;
            }
            steps.push(step);
        }
        Ok((best, steps))
    }

    fn phase(&self) -> Phase {
        let full = (1.0, 1.0);
        Phase {
            name: "step",
            time: self.step,
            load: full,
            recurrence: full,
            specials: full,
            counts: true,
            fills: false,
        }
    }

    fn judge(&self, rate: f64, figures: &LoadFigures) -> PeakStep {
        let Some(phase) = figures.phases.first() else { return PeakStep::default() };
        let counts = &phase.counts;
        let failed = counts.failed + counts.lies();
        let p99_us = phase.times.quantile_us(0.99);
        let is_fast = u128::from(p99_us) <= self.limit.as_micros();
        let is_whole = failed as f64 <= counts.requests as f64 * FAILED_SHARE_MAX;
        PeakStep {
            rate,
            answered: phase.per_second,
            p99_us,
            hit_ratio: counts.hit_ratio(),
            failed,
            late_us: phase.late.quantile_us(0.99),
            passed: is_fast && is_whole && phase.times.count > 0,
        }
    }
}

/// Chooses the next rate of a search: doubles it until one fails, then halves the interval between passed and failed.
struct Bisection {
    low: f64,
    high: Option<f64>,
    next: f64,
    bits: u32,
    /// Whether the next rate has already failed once. It counts as too high only if it fails again.
    refused: bool,
}

impl Bisection {
    /// Returns the next rate to try, in requests per second. `None` if the result is precise enough.
    fn rate(&self) -> Option<f64> {
        (self.bits > 0 && self.next < RATE_MAX).then_some(self.next)
    }

    fn learn(&mut self, passed: bool) {
        if passed {
            self.low = self.next;
        } else if !std::mem::replace(&mut self.refused, true) {
            return;
        } else {
            self.high = Some(self.next);
        }
        self.refused = false;
        match self.high {
            None => self.next *= 2.0,
            Some(high) => {
                self.bits -= 1;
                self.next = (self.low + high) / 2.0;
            }
        }
    }
}

const FAILED_SHARE_MAX: f64 = 0.001;
const RATE_MAX: f64 = 4e6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_closes_in_on_what_a_proxy_can_do() {
        for can in [30.0, 100.0, 777.0, 50_000.0] {
            let mut search = Bisection { low: 0.0, high: None, next: 100.0, bits: 7, refused: false };
            let mut tried = 0;
            while let Some(rate) = search.rate() {
                search.learn(rate <= can);
                tried += 1;
            }
            assert!((search.low / can - 1.0).abs() < 0.05, "{can}: {}", search.low);
            assert!(tried <= 26, "{can}: {tried}");
        }
    }

    #[test]
    fn one_pause_of_the_machine_does_not_halve_the_answer() {
        let mut search = Bisection { low: 0.0, high: None, next: 100.0, bits: 5, refused: false };
        let mut tried = 0;
        while let Some(rate) = search.rate() {
            tried += 1;
            search.learn(rate <= 1000.0 && tried != 3);
        }
        assert!((search.low / 1000.0 - 1.0).abs() < 0.05, "{}", search.low);
    }
}
