//! What is counted of requests: by phase, by second, and all together.
//!
//! Owns: counts and histograms of response times, from the moment a request was due. Does not: drop anything in the first
//! or last second of a phase. Invariant: every request that was due is counted once, in the phase in which it was due.
//! Cost: three histograms a phase, 8 numbers and one histogram for each second.

use super::client::{Fetched, Outcome};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Response times in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean_us: f64,
    /// Shares of requests, and the time that so many take at most.
    pub quantiles_us: Vec<(f64, u64)>,
}

impl Times {
    /// The time that this share of the requests takes at most.
    pub fn quantile_us(&self, share: f64) -> u64 {
        let at = self.quantiles_us.iter().find(|(known, _)| *known >= share - 1e-9);
        at.or(self.quantiles_us.last()).map_or(0, |&(_, time)| time)
    }

    fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let quantiles_us = QUANTILES.map(|share| (share, histogram.value_at_quantile(share)));
        Self { count: histogram.len(), mean_us: histogram.mean(), quantiles_us: quantiles_us.to_vec() }
    }
}

/// Counts of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests that were due.
    pub requests: u64,
    /// Answers that the origin had made for another request.
    pub hits: u64,
    /// Answers that it made for this one.
    pub misses: u64,
    /// What a cache without bounds would have had.
    pub offered: u64,
    /// Bytes of bodies.
    pub body_bytes: u64,
    /// Those of hits.
    pub hit_bytes: u64,
    /// Broken off, as the workload wants it.
    pub broken_off: u64,
    /// Without an answer, or with one that was not asked for.
    pub failed: u64,
    /// With wrong bytes.
    pub wrong: u64,
    /// With what the origin no longer had, after its time.
    pub outdated: u64,
}

impl Counts {
    /// Hits of all answers.
    pub fn hit_ratio(&self) -> f64 {
        self.hits as f64 / (self.hits + self.misses).max(1) as f64
    }

    /// What a cache without bounds would hit.
    pub fn offered_ratio(&self) -> f64 {
        self.offered as f64 / self.requests.max(1) as f64
    }

    /// These and others.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            offered: self.offered + other.offered,
            body_bytes: self.body_bytes + other.body_bytes,
            hit_bytes: self.hit_bytes + other.hit_bytes,
            broken_off: self.broken_off + other.broken_off,
            failed: self.failed + other.failed,
            wrong: self.wrong + other.wrong,
            outdated: self.outdated + other.outdated,
        }
    }

    fn add(&mut self, fetched: &Fetched, is_offered: bool) {
        self.requests += 1;
        self.offered += u64::from(is_offered);
        self.body_bytes += fetched.body_bytes;
        match fetched.outcome {
            Outcome::Hit => {
                self.hits += 1;
                self.hit_bytes += fetched.body_bytes;
            }
            Outcome::Miss => self.misses += 1,
            Outcome::BrokenOff => self.broken_off += 1,
            Outcome::Failed(_) => self.failed += 1,
            Outcome::Wrong(_) => self.wrong += 1,
            Outcome::Outdated => self.outdated += 1,
        }
    }
}

/// Figures of one phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseFigures {
    /// Its name.
    pub name: String,
    /// Whether results are taken from it.
    pub counts_as_result: bool,
    /// When it began, in seconds from the begin of the run.
    pub begun_s: f64,
    /// How long it lasted.
    pub lasted_s: f64,
    /// Requests that became due in it.
    pub counts: Counts,
    /// Requests answered per second.
    pub per_second: f64,
    /// Of all.
    pub times: Times,
    /// Of hits.
    pub hit_times: Times,
    /// Of misses.
    pub miss_times: Times,
}

/// Figures of one second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SecondFigures {
    /// Seconds from the begin of the run.
    pub at_s: u64,
    /// Load that was wanted, in requests per second; 0 in a closed loop.
    pub wanted: f64,
    /// Requests that were due in it.
    pub counts: Counts,
    /// Response time that half of them take at most, in microseconds.
    pub median_us: u64,
    /// That 99% take at most.
    pub p99_us: u64,
}

/// When a request was due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    /// In which phase.
    pub(super) phase: usize,
    /// From the begin of the run.
    pub(super) at: Duration,
}

/// Records a run.
pub(super) struct Recorder {
    phases: Vec<PhaseRecord>,
    seconds: Vec<SecondRecord>,
    /// The first things that went wrong, in words.
    pub(super) complaints: Vec<String>,
}

struct PhaseRecord {
    figures: PhaseFigures,
    times: Histogram<u64>,
    hit_times: Histogram<u64>,
    miss_times: Histogram<u64>,
}

struct SecondRecord {
    wanted: f64,
    counts: Counts,
    times: Histogram<u64>,
}

impl Recorder {
    pub(super) fn new() -> Self {
        Self { phases: Vec::new(), seconds: Vec::new(), complaints: Vec::new() }
    }

    pub(super) fn begin_phase(&mut self, name: &str, counts_as_result: bool, begun: Duration) {
        self.end_phase(begun);
        let figures = PhaseFigures {
            name: name.to_owned(),
            counts_as_result,
            begun_s: begun.as_secs_f64(),
            ..PhaseFigures::default()
        };
        self.phases.push(PhaseRecord { figures, times: histogram(), hit_times: histogram(), miss_times: histogram() });
    }

    pub(super) fn end_phase(&mut self, now: Duration) {
        if let Some(last) = self.phases.last_mut().filter(|last| last.figures.lasted_s == 0.0) {
            last.figures.lasted_s = (now.as_secs_f64() - last.figures.begun_s).max(f64::MIN_POSITIVE);
        }
    }

    /// The phase that goes on.
    pub(super) fn phase(&self) -> usize {
        self.phases.len().saturating_sub(1)
    }

    pub(super) fn want(&mut self, now: Duration, wanted: f64) {
        self.second(now).wanted = wanted;
    }

    /// A request that is over after `took`.
    pub(super) fn add(&mut self, due: Due, took: Duration, fetched: &Fetched, is_offered: bool) {
        let Due { phase, at: due } = due;
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let is_answer = matches!(fetched.outcome, Outcome::Hit | Outcome::Miss | Outcome::Outdated);
        if let Outcome::Failed(what) | Outcome::Wrong(what) = &fetched.outcome
            && self.complaints.len() < COMPLAINTS_MAX
        {
            self.complaints.push(what.clone());
        }
        let second = self.second(due);
        second.counts.add(fetched, is_offered);
        if is_answer {
            second.times.saturating_record(took_us);
        }
        let Some(record) = self.phases.get_mut(phase) else { return };
        record.figures.counts.add(fetched, is_offered);
        if is_answer {
            record.times.saturating_record(took_us);
        }
        match fetched.outcome {
            Outcome::Hit => record.hit_times.saturating_record(took_us),
            Outcome::Miss => record.miss_times.saturating_record(took_us),
            _ => {}
        }
    }

    /// Requests that were due so far, and those that were hits, for a line of progress.
    pub(super) fn so_far(&self) -> Counts {
        self.phases.last().map(|phase| phase.figures.counts).unwrap_or_default()
    }

    pub(super) fn finish(self) -> (Vec<PhaseFigures>, Vec<SecondFigures>, Vec<String>) {
        let phases = self.phases.into_iter().map(|record| {
            let mut figures = record.figures;
            let Counts { hits, misses, outdated, .. } = figures.counts;
            figures.per_second = (hits + misses + outdated) as f64 / figures.lasted_s;
            figures.times = Times::of(&record.times);
            figures.hit_times = Times::of(&record.hit_times);
            figures.miss_times = Times::of(&record.miss_times);
            figures
        });
        let seconds = self.seconds.into_iter().zip(0..).map(|(record, at_s)| SecondFigures {
            at_s,
            wanted: record.wanted,
            counts: record.counts,
            median_us: record.times.value_at_quantile(0.5),
            p99_us: record.times.value_at_quantile(0.99),
        });
        (phases.collect(), seconds.collect(), self.complaints)
    }

    fn second(&mut self, at: Duration) -> &mut SecondRecord {
        let at = at.as_secs() as usize;
        while self.seconds.len() <= at {
            let wanted = self.seconds.last().map_or(0.0, |last| last.wanted);
            self.seconds.push(SecondRecord { wanted, counts: Counts::default(), times: short_histogram() });
        }
        &mut self.seconds[at]
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, TIME_MAX_US, 3).expect("the bounds and digits are allowed")
}

fn short_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, TIME_MAX_US, 2).expect("the bounds and digits are allowed")
}

const TIME_MAX_US: u64 = 100_000_000;
const COMPLAINTS_MAX: usize = 10;
/// Shares that are told of.
pub(crate) const QUANTILES: [f64; 14] =
    [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999, 1.0];
