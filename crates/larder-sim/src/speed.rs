//! Measures the laboratory's own speed: requests per second on one core, for evictions, traces and policies.
//!
//! Owns: [`SpeedTest`] and its report. [`Sweep`](crate::Sweep) compares hit ratios. Invariant: time is the processor
//! time of this thread, so other programs on the machine do not count. Cost: 16 bytes for each request that is kept;
//! streamed requests are not kept.

use crate::{
    Eviction, Experiment, Model, NextUses, Report, RequestSource, SweepError, Table, belady, eviction, eviction_names,
};
use larder_store::Policy;
use larder_workload::{Request, TraceError, Workload, WorkloadRequest};
use rustix::time::{ClockId, clock_gettime};
use std::fs;

/// Size in bytes of the memory cache in front of a policy. It is small, so that most requests reach the policy.
const ROW_MEMORY_BYTES: u64 = 16 << 20;
/// Number of requests that are read or generated at once.
const BATCH: usize = 1024;

/// Settings of a measurement of the laboratory's speed.
#[derive(Clone, Debug)]
pub struct SpeedTest {
    /// Source of the requests.
    pub source: RequestSource,
    /// Maximum number of requests that are kept in memory, for the published algorithms.
    pub kept: u64,
    /// Maximum number of requests that are streamed through an LRU cache. 0 leaves this measurement out.
    pub streamed: u64,
    /// Maximum number of requests for each policy.
    pub row_requests: u64,
    /// Size of caches and stores in bytes.
    pub cache_bytes: u64,
    /// The policies to measure.
    pub policies: Vec<&'static Policy>,
}

impl SpeedTest {
    /// Runs all measurements, one after the other. Calls `progress` with the number of all measurements after each one.
    ///
    /// # Errors
    /// If the source cannot be read, or a store refuses its options.
    pub fn run(&self, progress: &dyn Fn(u64)) -> Result<Report, SweepError> {
        let count = (eviction_names().count() + 1 + self.policies.len()) as u64 + u64::from(self.streamed > 0);
        let mut report = Report::new("Requests per second of one core");
        // This comes first, because the result includes the process's peak memory.
        if self.streamed > 0 {
            report.tables.push(self.stream()?);
            progress(count);
        }
        if self.kept > 0 {
            report.tables.push(self.evictions(&|| progress(count))?);
        }
        if !self.policies.is_empty() {
            report.tables.push(self.rows(&|| progress(count))?);
        }
        report.remarks.push(format!(
            "The requests come from {}. Each cache or store has {} MB.",
            self.source,
            self.cache_bytes / 1_000_000
        ));
        Ok(report)
    }

    /// Measures an LRU cache whose requests are read or generated when they are needed.
    fn stream(&self) -> Result<Table, SweepError> {
        let mut cache = reference("lru", self.cache_bytes);
        let begun_s = cpu_s();
        let mut asked = 0_u64;
        let mut hits = 0_u64;
        let mut batch = Vec::with_capacity(BATCH);
        let mut requests = self.requests()?.take(self.streamed as usize);
        loop {
            batch.clear();
            for request in requests.by_ref().take(BATCH) {
                let Request { key, size_bytes, .. } = request?.request;
                batch.push((key, size_bytes));
            }
            if batch.is_empty() {
                break;
            }
            asked += batch.len() as u64;
            hits += cache.request_all(&batch);
        }
        let per_s = asked as f64 / (cpu_s() - begun_s);
        let columns = ["as they come", "requests", "requests/s", "ns a request", "hits, %", "peak memory, MB"];
        let mut table = Table::new("", &columns);
        table.push("lru", vec![asked as f64, per_s.round(), 1e9 / per_s, share(hits, asked), peak_memory_mb()]);
        Ok(table)
    }

    /// Measures the published algorithms with requests that are in memory.
    fn evictions(&self, progress: &dyn Fn()) -> Result<Table, SweepError> {
        let kept: Vec<(u64, u64)> = self
            .requests()?
            .take(self.kept as usize)
            .map(|asked| asked.map(|WorkloadRequest { request, .. }| (request.key, request.size_bytes)))
            .collect::<Result<_, _>>()?;
        let mut table = Table::new("", &["eviction, in memory", "requests", "requests/s", "ns a request", "hits, %"]);
        let mut time = |name: &str, mut cache: Box<dyn Eviction>| {
            let begun_s = cpu_s();
            let hits = cache.request_all(&kept);
            let count = kept.len() as u64;
            let per_s = kept.len() as f64 / (cpu_s() - begun_s);
            table.push(name, vec![count as f64, per_s.round(), 1e9 / per_s, share(hits, count)]);
            progress();
        };
        eviction_names().for_each(|name| time(name, reference(name, self.cache_bytes)));
        let keys: Vec<u64> = kept.iter().map(|(key, _)| *key).collect();
        time("belady", belady(self.cache_bytes, NextUses::of(&keys)));
        Ok(table)
    }

    /// Measures policies with requests that are in memory. Policies with many files run on a spinning disk, others on
    /// flash.
    fn rows(&self, progress: &dyn Fn()) -> Result<Table, SweepError> {
        let kept: Vec<WorkloadRequest> = self.requests()?.take(self.row_requests as usize).collect::<Result<_, _>>()?;
        let mut table = Table::new("", &["policy, in memory", "requests", "requests/s", "ns a request", "hits, %"]);
        for policy in &self.policies {
            let name = if policy.layout.keeps_files() { "hdd-7200" } else { "nvme" };
            let model = Model::open(name).expect("the machines that come along are right");
            let experiment = Experiment::new(policy, model, self.cache_bytes, ROW_MEMORY_BYTES);
            let begun_s = cpu_s();
            let outcome = experiment.run(kept.iter().copied());
            let outcome = outcome.map_err(|error| SweepError::Store(policy.name.to_owned(), error))?;
            let per_s = outcome.requests as f64 / (cpu_s() - begun_s);
            let values = vec![outcome.requests as f64, per_s.round(), 1e9 / per_s, outcome.hit_ratio() * 100.0];
            table.push(policy.name, values);
            progress();
        }
        Ok(table)
    }

    /// Returns the requests of the source, from the first one on.
    fn requests(&self) -> Result<impl Iterator<Item = Result<WorkloadRequest, SweepError>>, SweepError> {
        let (read, drawn) = match &self.source {
            RequestSource::Trace(file) => {
                let mut trace = file.open()?;
                let Some(first) = trace.next() else {
                    return Err(SweepError::Trace(TraceError::no_request(&file.name, &trace.progress())));
                };
                (Some(std::iter::once(first).chain(trace)), None)
            }
            RequestSource::Workload(name, seed) => {
                let drawn = Workload::named(name, *seed, ROW_MEMORY_BYTES, self.cache_bytes);
                (None, Some(drawn.ok_or_else(|| SweepError::Workload(name.clone()))?))
            }
        };
        let read = read.into_iter().flatten().map(|read| read.map(WorkloadRequest::from).map_err(SweepError::Trace));
        Ok(read.chain(drawn.into_iter().flatten().map(Ok)))
    }
}

fn reference(name: &str, cache_bytes: u64) -> Box<dyn Eviction> {
    eviction(name, cache_bytes).expect("the names are those it knows")
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

/// Returns the processor time that this thread has taken, in seconds.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the peak memory of this process in MB, as the kernel reports it; NaN if it does not.
fn peak_memory_mb() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kilobytes.map_or(f64::NAN, |kilobytes| kilobytes * 1024.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Guards against a speed that is reported for a run that processed too few requests, or had almost no hits.
    #[test]
    fn everything_is_timed_and_hits() {
        let speed = SpeedTest {
            source: RequestSource::Workload("zipf".to_owned(), 1),
            kept: 20_000,
            streamed: 30_000,
            row_requests: 5_000,
            cache_bytes: 64 << 20,
            policies: vec![Policy::default_policy()],
        };
        let done = Cell::new(0);
        let report = speed.run(&|count| done.set(done.get() + 100 / count)).unwrap();
        // In addition to these: the optimum, the stream of requests, and a policy.
        let count = eviction_names().count() as u64 + 3;
        assert_eq!(done.get(), count * (100 / count));
        let rows: Vec<_> = report.tables.iter().flat_map(|table| &table.rows).collect();
        assert_eq!(rows.len() as u64, count);
        for (name, values) in rows {
            assert!(values[0] >= 5_000.0 && values[1] > 0.0 && values[3] > 10.0, "{name}: {values:?}");
        }
    }
}
