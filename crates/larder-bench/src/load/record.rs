//! Counts of requests: by phase, by second, and in all.
//!
//! Owns: counts and histograms of response times, from the moment a request was due. The first and last second of a
//! phase are included. Invariant: every request is counted once, in the phase in which it was due. Rates of responses
//! count those that arrived during the phase or second. Cost: four histograms per phase, 10 numbers and one histogram
//! per second.

use super::{
    client::{FetchFault, FetchOutcome, FetchResult},
    times::{ResponseTimes, histogram, short_histogram},
};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Counts of the requests of a phase, a second or a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestCounts {
    /// Requests that were due.
    pub requests: u64,
    /// Right responses that the origin had made for another request, so that they came from the cache.
    pub hits: u64,
    /// Right responses that the origin made for the request itself.
    pub misses: u64,
    /// Requests that a cache without limits could answer.
    pub offered: u64,
    /// Bytes of the received bodies.
    pub body_bytes: u64,
    /// Bytes of the bodies of hits.
    pub hit_bytes: u64,
    /// Requests that were broken off on purpose, as the workload requires.
    pub broken_off: u64,
    /// Requests without a response, or with one that does not fit the request.
    pub failed: u64,
    /// Responses whose bodies differ from the origin's.
    pub wrong: u64,
    /// Responses with an earlier version of the object, although its lifetime is over.
    pub outdated: u64,
    /// Responses that came from a cache although the origin had to answer: to POST, of objects that must not be stored,
    /// or to requests with `no-cache`.
    pub forbidden: u64,
}

impl RequestCounts {
    /// Returns the share of hits among the requests that were not broken off on purpose.
    pub fn hit_ratio(&self) -> f64 {
        self.hits as f64 / (self.requests - self.broken_off).max(1) as f64
    }

    /// Returns the number of requests with a correct response, from the cache or the origin.
    pub fn answered(&self) -> u64 {
        self.hits + self.misses
    }

    /// Returns the number of responses that a correct cache never gives: wrong, outdated or forbidden ones.
    pub fn lies(&self) -> u64 {
        self.wrong + self.outdated + self.forbidden
    }

    /// Returns the share of requests that a cache without limits could answer.
    pub fn offered_ratio(&self) -> f64 {
        self.offered as f64 / self.requests.max(1) as f64
    }

    /// Returns the sum of two sets of counts.
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
            forbidden: self.forbidden + other.forbidden,
        }
    }

    fn add(&mut self, fetched: &FetchResult, is_offered: bool) {
        self.requests += 1;
        self.offered += u64::from(is_offered);
        self.body_bytes += fetched.body_bytes;
        match fetched.outcome {
            FetchOutcome::Hit => {
                self.hits += 1;
                self.hit_bytes += fetched.body_bytes;
            }
            FetchOutcome::Miss => self.misses += 1,
            FetchOutcome::BrokenOff => self.broken_off += 1,
            FetchOutcome::Failed(_) => self.failed += 1,
            FetchOutcome::Wrong(_) => self.wrong += 1,
            FetchOutcome::Outdated(_) => self.outdated += 1,
            FetchOutcome::Forbidden(_) => self.forbidden += 1,
        }
    }
}

/// The figures of one phase of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseFigures {
    /// The name of the phase.
    pub name: String,
    /// Whether the results of the report include this phase.
    pub counts_as_result: bool,
    /// Start of the phase, in seconds after the start of the run.
    pub begun_s: f64,
    /// Duration of the phase, in seconds.
    pub lasted_s: f64,
    /// Requests that became due during the phase.
    pub counts: RequestCounts,
    /// Number of responses that arrived during the phase, per second.
    pub per_second: f64,
    /// Response times of all requests.
    pub times: ResponseTimes,
    /// Response times of hits.
    pub hit_times: ResponseTimes,
    /// Response times of misses.
    pub miss_times: ResponseTimes,
    /// Times between the moment when a request was due and its sending. The benchmark causes these delays, not the
    /// proxy.
    pub late: ResponseTimes,
}

/// The figures of one second of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SecondFigures {
    /// Start of the second, in seconds after the start of the run.
    pub at_s: u64,
    /// The intended load, in requests per second. 0 if the load is a closed loop.
    pub wanted: f64,
    /// Requests that became due during this second.
    pub counts: RequestCounts,
    /// Number of responses that arrived during this second.
    pub answered: u64,
    /// Median response time, in microseconds.
    pub median_us: u64,
    /// 99th percentile of response times, in microseconds.
    pub p99_us: u64,
}

/// The moment when a request was due, and the phase of that moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct DueTime {
    /// The phase in which the request was due.
    pub(super) phase: usize,
    /// The moment, as the time since the start of the run.
    pub(super) at: Duration,
}

/// All failures of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Complaint {
    /// A description of the kind of failure.
    pub what: String,
    /// A description of the first failure of this kind: a path, a position or the system's error.
    pub first: String,
    /// Number of failures of this kind.
    pub count: u64,
}

/// Collects the counts and the times of a run.
pub(super) struct Recorder {
    phases: Vec<PhaseRecord>,
    seconds: Vec<SecondRecord>,
    complaints: Vec<Complaint>,
}

struct PhaseRecord {
    figures: PhaseFigures,
    /// Number of responses that arrived before the phase was over.
    answered: u64,
    is_over: bool,
    times: Histogram<u64>,
    hit_times: Histogram<u64>,
    miss_times: Histogram<u64>,
    late: Histogram<u64>,
}

struct SecondRecord {
    wanted: f64,
    counts: RequestCounts,
    answered: u64,
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
        self.phases.push(PhaseRecord {
            figures,
            answered: 0,
            is_over: false,
            times: histogram(),
            hit_times: histogram(),
            miss_times: histogram(),
            late: histogram(),
        });
    }

    pub(super) fn end_phase(&mut self, now: Duration) {
        if let Some(last) = self.phases.last_mut().filter(|last| !last.is_over) {
            last.is_over = true;
            last.figures.lasted_s = (now.as_secs_f64() - last.figures.begun_s).max(f64::MIN_POSITIVE);
        }
    }

    /// Returns the index of the current phase.
    pub(super) fn phase(&self) -> usize {
        self.phases.len().saturating_sub(1)
    }

    pub(super) fn want(&mut self, now: Duration, wanted: f64) {
        self.second(now).wanted = wanted;
    }

    /// Records that a request of `phase` was sent `late` after it was due.
    pub(super) fn add_late(&mut self, phase: usize, late: Duration) {
        if let Some(record) = self.phases.get_mut(phase) {
            record.late.saturating_record(micros(late));
        }
    }

    /// Records a request that ended. `due` says when it was due, and `took` how long it took from that moment.
    pub(super) fn add(&mut self, due: DueTime, took: Duration, fetched: &FetchResult, is_offered: bool) {
        let DueTime { phase, at: due } = due;
        let took_us = micros(took);
        let is_answer = matches!(fetched.outcome, FetchOutcome::Hit | FetchOutcome::Miss);
        match &fetched.outcome {
            FetchOutcome::Failed(fault)
            | FetchOutcome::Wrong(fault)
            | FetchOutcome::Outdated(fault)
            | FetchOutcome::Forbidden(fault) => {
                self.complain(fault);
            }
            FetchOutcome::Hit | FetchOutcome::Miss | FetchOutcome::BrokenOff => {}
        }
        if is_answer {
            self.second(due + took).answered += 1;
            if let Some(now) = self.phases.last_mut().filter(|last| !last.is_over) {
                now.answered += 1;
            }
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
            FetchOutcome::Hit => record.hit_times.saturating_record(took_us),
            FetchOutcome::Miss => record.miss_times.saturating_record(took_us),
            _ => {}
        }
    }

    /// Returns the counts of the current phase, for the progress line.
    pub(super) fn so_far(&self) -> RequestCounts {
        self.phases.last().map(|phase| phase.figures.counts).unwrap_or_default()
    }

    pub(super) fn finish(self) -> (Vec<PhaseFigures>, Vec<SecondFigures>, Vec<Complaint>) {
        let phases = self.phases.into_iter().map(|record| PhaseFigures {
            per_second: record.answered as f64 / record.figures.lasted_s,
            times: ResponseTimes::of(&record.times),
            hit_times: ResponseTimes::of(&record.hit_times),
            miss_times: ResponseTimes::of(&record.miss_times),
            late: ResponseTimes::of(&record.late),
            ..record.figures
        });
        let seconds = self.seconds.into_iter().zip(0..).map(|(record, at_s)| SecondFigures {
            at_s,
            wanted: record.wanted,
            counts: record.counts,
            answered: record.answered,
            median_us: record.times.value_at_quantile(0.5),
            p99_us: record.times.value_at_quantile(0.99),
        });
        (phases.collect(), seconds.collect(), self.complaints)
    }

    fn complain(&mut self, fault: &FetchFault) {
        if let Some(known) = self.complaints.iter_mut().find(|known| known.what == fault.what) {
            known.count += 1;
        } else if self.complaints.len() < COMPLAINTS_MAX {
            self.complaints.push(Complaint { what: fault.what.clone(), first: fault.place.clone(), count: 1 });
        }
    }

    fn second(&mut self, at: Duration) -> &mut SecondRecord {
        let at = at.as_secs() as usize;
        while self.seconds.len() <= at {
            let goes_on = self.phases.last().is_some_and(|phase| !phase.is_over);
            let wanted = self.seconds.last().filter(|_| goes_on).map_or(0.0, |last| last.wanted);
            self.seconds.push(SecondRecord {
                wanted,
                counts: RequestCounts::default(),
                answered: 0,
                times: short_histogram(),
            });
        }
        &mut self.seconds[at]
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1)
}

const COMPLAINTS_MAX: usize = 20;
