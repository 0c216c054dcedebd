//! One measurement of one proxy: a run, or a search for its peak, with the kernel's counts.
//!
//! Owns: the order of steps, and the result as data. Drawing is in `report`. Invariant: compared results were measured
//! by the same code with the same requests at the same moments.

mod peak;

use crate::{
    kernel::{KernelCounts, Sampler, WatchedProcesses, machine},
    load::{Complaint, Load, LoadFigures, Loop, PhaseFigures, RequestCounts, Requests, ResponseTimes, SecondFigures},
    origin::{Origin, OriginCounts},
    undo::EndsEarly,
    workload::WorkloadOptions,
};
use larder_workload::Request;
pub use peak::{PeakSearch, PeakStep};
use serde::{Deserialize, Serialize};
use std::{io, sync::Arc, time::Duration};

/// The settings of a measurement.
#[derive(Clone, Debug)]
pub struct BenchJob {
    /// Name of the proxy in the report.
    pub name: String,
    /// The load on the proxy.
    pub load: Load,
    /// The numbers that define the workload.
    pub options: WorkloadOptions,
    /// The requests that [`crate::Workload::Trace`] replays.
    pub trace: Vec<Request>,
    /// The search for the peak rate. `None` means a single run.
    pub peak: Option<PeakSearch>,
    /// The processes and the disk whose counters are read.
    pub watched: WatchedProcesses,
}

/// The result of a measurement.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BenchResult {
    /// Name of the proxy.
    pub name: String,
    /// The workload's name.
    pub workload: String,
    /// The way in which requests arrive, in words.
    pub load: String,
    /// Number of users in a closed loop. 0 means an open loop.
    pub users: usize,
    /// A description of the machine, in words.
    pub machine: String,
    /// The figures of each phase of the run.
    pub phases: Vec<PhaseFigures>,
    /// The figures of each second of the run.
    pub seconds: Vec<SecondFigures>,
    /// The kernel's counters, read once a second.
    pub kernel: Vec<KernelCounts>,
    /// Number of requests that the origin received.
    pub origin_requests: u64,
    /// Bytes of bodies that the origin sent.
    pub origin_body_bytes: u64,
    /// The rates that the search for the peak tried. Empty without a search.
    pub peak: Vec<PeakStep>,
    /// The limit on response times in the search for the peak, in microseconds.
    pub peak_limit_us: u64,
    /// The failures, each kind once.
    pub complaints: Vec<Complaint>,
    /// Processor time of the clients' threads and of the origin's thread, each as a share of one processor.
    pub busy: (f64, f64),
    /// The exit code for this process if a signal ended the measurement early. `None` if it ran to its end.
    pub ended_early: Option<i32>,
}

/// The function that receives the progress of a measurement: the phase, the completed share from 0 to 1, and the
/// counts.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(&str, f64, RequestCounts);

impl BenchJob {
    /// Runs the measurement. `origin` is behind the proxy.
    ///
    /// # Errors
    /// The proxy does not respond, or the system refuses a resource that is needed.
    pub fn run(&self, origin: &Origin, progress: Progress<'_>) -> io::Result<BenchResult> {
        let early = EndsEarly::begin();
        let requests = Requests::new(self.load.workload, self.options, self.trace.clone());
        let sampler = Sampler::start(Arc::new(self.watched.clone()))?;
        let before = origin.counts();
        let (figures, peak) = match &self.peak {
            None => (self.load.run(&requests, progress)?, Vec::new()),
            Some(search) => search.run(&self.load, &requests, &early, progress)?,
        };
        let LoadFigures { phases, seconds, complaints, busy } = figures;
        let OriginCounts { requests: origin_requests, body_bytes, .. } = origin.counts();
        Ok(BenchResult {
            name: self.name.clone(),
            workload: self.load.workload.name().to_owned(),
            load: self.words(),
            users: match (&self.peak, self.load.loop_kind) {
                (None, Loop::Closed(users)) => users,
                (Some(_), _) | (None, Loop::Open(_)) => 0,
            },
            machine: machine(),
            phases,
            seconds,
            // The figures of a search are those of one step, but the kernel's counters cover all steps, so they are
            // left out.
            kernel: Some(sampler.finish()).filter(|_| self.peak.is_none()).unwrap_or_default(),
            origin_requests: origin_requests - before.requests,
            origin_body_bytes: body_bytes - before.body_bytes,
            peak,
            peak_limit_us: self.peak.as_ref().map_or(0, |search| search.limit.as_micros() as u64),
            complaints,
            busy,
            ended_early: early.exit_code(),
        })
    }

    fn words(&self) -> String {
        let time: Duration = self.load.phases.iter().map(|phase| phase.time).sum();
        match (&self.peak, self.load.loop_kind) {
            (Some(search), _) => {
                format!(
                    "search for the peak with 99% within {} ms, steps of {:.0} s",
                    search.limit.as_millis(),
                    search.step.as_secs_f64()
                )
            }
            (None, Loop::Open(rate)) => format!("open loop, {rate:.0} requests/s, {:.0} s", time.as_secs_f64()),
            (None, Loop::Closed(users)) if time >= UNLIMITED => format!("closed loop, {users} users, until done"),
            (None, Loop::Closed(users)) => format!("closed loop, {users} users, {:.0} s", time.as_secs_f64()),
        }
    }
}

impl BenchResult {
    /// Parses a result from JSON.
    ///
    /// # Errors
    /// The text is not a result. The error says where and why.
    pub fn from_json(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// Returns the phases from which results are taken. If none is marked as such, returns all phases.
    pub fn result_phases(&self) -> Vec<&PhaseFigures> {
        let marked: Vec<_> = self.phases.iter().filter(|phase| phase.counts_as_result).collect();
        if marked.is_empty() { self.phases.iter().collect() } else { marked }
    }

    /// Returns whether the load was an open loop: requests were sent when they were due, whatever the outcome of
    /// others.
    pub fn is_open(&self) -> bool {
        self.users == 0
    }

    /// Returns the sum of the counts of all phases.
    pub fn totals(&self) -> RequestCounts {
        self.phases.iter().fold(RequestCounts::default(), |sum, phase| sum.plus(&phase.counts))
    }

    /// Returns the sum of the counts of those phases from which results are taken.
    pub fn results(&self) -> RequestCounts {
        self.result_phases().iter().fold(RequestCounts::default(), |sum, phase| sum.plus(&phase.counts))
    }

    /// Returns the kernel's counts for the whole run: the difference between the last and the first reading. `None` if
    /// there are none.
    pub fn kernel_total(&self) -> Option<KernelCounts> {
        let first = self.kernel.first()?;
        let last = self.kernel.iter().rfind(|sample| sample.is_known)?;
        Some(KernelCounts {
            at_s: last.at_s - first.at_s,
            cpu_s: last.cpu_s - first.cpu_s,
            resident_bytes: last.resident_bytes,
            process_read_bytes: last.process_read_bytes.saturating_sub(first.process_read_bytes),
            process_written_bytes: last.process_written_bytes.saturating_sub(first.process_written_bytes),
            disk_reads: last.disk_reads - first.disk_reads,
            disk_read_bytes: last.disk_read_bytes - first.disk_read_bytes,
            disk_writes: last.disk_writes - first.disk_writes,
            disk_written_bytes: last.disk_written_bytes - first.disk_written_bytes,
            store_bytes: self.kernel.iter().map(|sample| sample.store_bytes).max().unwrap_or_default(),
            is_known: true,
        })
    }

    /// Returns the merged response times of the phases from which results are taken. `kind` selects the times of all
    /// requests, of hits or of misses.
    pub fn result_times(&self, kind: impl Fn(&PhaseFigures) -> &ResponseTimes) -> ResponseTimes {
        ResponseTimes::merged(self.result_phases().into_iter().map(kind))
    }

    /// Returns the reason why the figures may describe the benchmark itself and not the proxy. `None` if nothing
    /// indicates that.
    pub fn doubt(&self) -> Option<String> {
        let late = self.result_times(|phase| &phase.late).quantile_us(0.99);
        let times = self.result_times(|phase| &phase.times).quantile_us(0.99);
        let (clients, origin) = self.busy;
        let mut doubts = Vec::new();
        if late >= LATE_US_MIN && late as f64 >= times as f64 * LATE_SHARE_MIN {
            doubts.push(format!(
                "1% of the requests were sent {:.2} ms or more after they were due",
                late as f64 / 1000.0
            ));
        }
        for (who, busy) in [("clients", clients), ("origin", origin)].into_iter().filter(|(_, busy)| *busy >= BUSY_MIN)
        {
            doubts.push(format!("the {who} were busy for {:.0}% of the time", busy * 100.0));
        }
        let mut why = Vec::from_iter(
            (!doubts.is_empty()).then(|| format!("the benchmark itself was slow: {}", doubts.join(", "))),
        );
        if self.peak.iter().any(|step| !step.passed && step.late_us >= self.peak_limit_us / 2) {
            why.push(
                "at the rates that failed, requests were sent late: the limit may be the benchmark or the machine"
                    .to_owned(),
            );
        }
        let counts = self.results();
        if counts.hits as f64 > counts.offered as f64 + counts.requests as f64 * HITS_MORE_MAX {
            why.push(
                "more hits than possible: the proxy had stored responses before; empty its store, or use another \
                 --seed"
                    .to_owned(),
            );
        }
        (!why.is_empty()).then(|| why.join("; "))
    }

    /// Returns the reason why the measurement counts as failed: wrong responses, or none at all. `None` if it
    /// succeeded.
    pub fn failure(&self) -> Option<String> {
        let totals = self.totals();
        let RequestCounts { requests, wrong, outdated, forbidden, failed, .. } = totals;
        let kinds = [(wrong, "wrong"), (outdated, "outdated"), (forbidden, "from a cache that may not store them")];
        let some: Vec<_> =
            kinds.iter().filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count} {kind}")).collect();
        if !some.is_empty() {
            return Some(format!("wrong responses, of {requests}: {}", some.join(", ")));
        }
        (totals.answered() == 0 && requests > 0).then(|| format!("no request got a response, {failed} failed"))
    }

    /// Returns the greatest rate that passed, in requests per second. `None` if no rate passed.
    pub fn peak_rate(&self) -> Option<f64> {
        self.peak.iter().filter(|step| step.passed).map(|step| step.rate).reduce(f64::max)
    }
}

/// The time limit of a run that ends after a number of requests. It is never reached in practice.
const UNLIMITED: Duration = Duration::from_hours(24);
/// Send delay in microseconds below which the report never warns of delays.
const LATE_US_MIN: u64 = 500;
/// Smallest send delay, as a share of the response times, of which the report warns.
const LATE_SHARE_MIN: f64 = 0.2;
/// Largest excess of hits over those that the workload offers, as a share of all requests, that the report accepts. If
/// several requests for an object run at the same time, the response to the first may be stored in time for the others.
const HITS_MORE_MAX: f64 = 0.02;
/// Load of the benchmark's own threads, as a share of a processor, at which the report calls them the bottleneck.
const BUSY_MIN: f64 = 0.9;
