//! Rows by sizes: the same requests on each, side by side.
//!
//! Owns: [`Sweep`], what to compare, and the report it comes to. Does not: decide what is best. Invariant: every row of
//! the report saw the same requests. A disk too large for the memory of this machine is made smaller, with all that
//! goes with it, by a factor the report names.

use crate::{
    Asked, Experiment, Model, NextUses, Outcome, Reference, Report, Table, Trace, TraceError, Workload,
    figure::{Content, Figure, Line, Scale},
    parallel,
};
use larder_store::{Error, Policy, Tuning};
use std::{fmt, path::PathBuf};

/// A simulated volume is at most this long; longer ones are made smaller.
const SIMULATED_BYTES_MAX: u64 = 8 << 30;
/// The eviction that must be told what comes.
const BELADY: &str = "belady";
/// Requests that are kept for it.
const BELADY_REQUESTS_MAX: u64 = 20_000_000;
const REQUESTS: std::ops::RangeInclusive<u64> = 200_000..=4_000_000;

/// Where requests come from.
#[derive(Clone, Debug)]
pub enum RequestSource {
    /// A file.
    Trace(PathBuf),
    /// A workload by name and seed.
    Workload(String, u64),
}

/// What to compare.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Rows.
    pub policies: Vec<&'static Policy>,
    /// The machine.
    pub model: Model,
    /// Sizes of the store.
    pub sizes: Vec<u64>,
    /// Size of the memory tier.
    pub memory_bytes: u64,
    /// Where requests come from.
    pub source: RequestSource,
    /// Bytes of the working set, for workloads; the greatest of the sizes unless said.
    pub working_set_bytes: Option<u64>,
    /// Requests, half of which only warm up in workloads; as many as make sense, or the whole trace, unless said.
    pub requests: Option<u64>,
    /// Constants of rows.
    pub tuning: Tuning,
    /// Whether to run the evictions of the literature as well.
    pub has_references: bool,
    /// Simulations at a time.
    pub jobs: usize,
}

/// Why a sweep cannot be made.
#[derive(Debug)]
pub enum SweepError {
    /// The trace.
    Trace(TraceError),
    /// There is no such workload.
    Workload(String),
    /// A store refused its options.
    Store(String, Error),
}

/// What a source has.
#[derive(Clone, Copy, Debug, Default)]
struct Survey {
    requests: u64,
    mean_bytes: u64,
    left_out: u64,
    damaged: u64,
    first_damage: Option<(u64, &'static str)>,
}

impl Sweep {
    /// Runs all of it; `progress` hears of each simulation that is done, and how many there are.
    ///
    /// # Errors
    /// When the source cannot be read or a store refuses its options.
    pub fn run(&self, progress: &(dyn Fn(u64) + Sync)) -> Result<Report, SweepError> {
        let largest = self.sizes.iter().copied().max().unwrap_or(0);
        let sample = match &self.source {
            RequestSource::Trace(_) => 1,
            RequestSource::Workload(..) => largest.div_ceil(SIMULATED_BYTES_MAX).next_power_of_two(),
        };
        let survey = self.survey(sample)?;
        let pairs: Vec<_> =
            self.sizes.iter().flat_map(|size| self.policies.iter().map(move |policy| (*policy, *size))).collect();
        let outcomes = parallel::map(&pairs, self.jobs, |(policy, size_bytes)| {
            let mut experiment = Experiment::new(policy, self.model.clone(), *size_bytes, self.memory_bytes);
            experiment.mean_entry_bytes = survey.mean_bytes.clamp(512, 1 << 20);
            experiment.tuning = self.tuning.clone();
            let warm_up = self.warm_up(survey.requests);
            let experiment = Experiment { warm_up, requests: survey.requests - warm_up, ..experiment.sampled(sample) };
            let outcome = experiment.run(self.open(sample)?);
            progress(pairs.len() as u64);
            outcome.map_err(|error| SweepError::Store(policy.name.to_owned(), error))
        });
        let outcomes: Vec<Outcome> = outcomes.into_iter().collect::<Result<_, _>>()?;
        let mut report = Report::new(format!("Policies on {}", self.model.name));
        if !pairs.is_empty() {
            self.fill(&mut report, &pairs, &outcomes);
        }
        report.remarks = self.remarks(survey, sample);
        if self.has_references {
            report.tables.push(self.references(sample, survey)?);
        }
        Ok(report)
    }

    /// Of so many requests those that do not count.
    fn warm_up(&self, requests: u64) -> u64 {
        match self.source {
            RequestSource::Trace(_) => 0,
            RequestSource::Workload(..) => requests / 2,
        }
    }

    /// The requests, for everything `sample` times smaller. A trace ends where it cannot be read on.
    fn open(&self, sample: u64) -> Result<Box<dyn Iterator<Item = Asked>>, SweepError> {
        match &self.source {
            RequestSource::Trace(path) => {
                let trace = Trace::open(path, None).map_err(SweepError::Trace)?;
                Ok(Box::new(trace.map_while(Result::ok).map(Asked::from)))
            }
            RequestSource::Workload(name, seed) => {
                let set = self.working_set_bytes.unwrap_or_else(|| self.sizes.iter().copied().max().unwrap_or(0));
                let (memory, set) = (self.memory_bytes / sample, set / sample);
                let workload = Workload::named(name, *seed, memory.max(1 << 20), set.max(16 << 20));
                let workload = workload.ok_or_else(|| SweepError::Workload(name.clone()))?;
                Ok(Box::new(workload))
            }
        }
    }

    fn survey(&self, sample: u64) -> Result<Survey, SweepError> {
        let RequestSource::Trace(path) = &self.source else {
            let drawn: Vec<_> = self.open(sample)?.take(20_000).collect();
            let mean_bytes =
                drawn.iter().map(|asked| asked.request.size_bytes).sum::<u64>() / drawn.len().max(1) as u64;
            let set = self.working_set_bytes.unwrap_or_else(|| self.sizes.iter().copied().max().unwrap_or(0)) / sample;
            let wanted = (8 * set / mean_bytes.max(1)).clamp(*REQUESTS.start(), *REQUESTS.end());
            return Ok(Survey { requests: self.requests.unwrap_or(wanted), mean_bytes, ..Survey::default() });
        };
        let mut trace = Trace::open(path, None).map_err(SweepError::Trace)?;
        let (mut count, mut bytes) = (0_u64, 0_u64);
        for request in trace.by_ref() {
            let request = request.map_err(SweepError::Trace)?;
            (count, bytes) = (count + 1, bytes + request.size_bytes);
        }
        let progress = trace.progress();
        Ok(Survey {
            requests: self.requests.unwrap_or(count).min(count),
            mean_bytes: bytes / count.max(1),
            left_out: progress.left_out,
            damaged: progress.damaged,
            first_damage: progress.first_damage,
        })
    }

    fn remarks(&self, survey: Survey, sample: u64) -> Vec<String> {
        let mut remarks = vec![
            format!(
                "{} requests of {}, {} bytes on average; machine {}.",
                survey.requests, self.source, survey.mean_bytes, self.model.name
            ),
            "alone: each request waits for the one before; most: what disk and one processor can do with many in flight; \
             look-ups: requests that memory does not answer."
                .to_owned(),
        ];
        if matches!(self.source, RequestSource::Workload(..)) {
            remarks.push("The second half of the requests is counted.".to_owned());
        }
        if sample > 1 {
            remarks.push(format!(
                "Disk, memory, caches and working set were {sample} times smaller; memory and entries are scaled up."
            ));
        }
        if survey.left_out + survey.damaged > 0 {
            let first =
                survey.first_damage.map_or_else(String::new, |(line, why)| format!(", the first is {line}: {why}"));
            remarks.push(format!("{} lines left out, {} damaged{first}.", survey.left_out, survey.damaged));
        }
        remarks
    }

    fn fill(&self, report: &mut Report, pairs: &[(&'static Policy, u64)], outcomes: &[Outcome]) {
        let columns = [
            "policy",
            "size, GB",
            "hits, %",
            "bytes hit, %",
            "requests/s alone",
            "requests/s most",
            "reads per look-up",
            "bytes written per byte",
            "index, MB",
            "bits an entry",
        ];
        let mut table = Table::new("", &columns);
        for ((policy, size_bytes), outcome) in pairs.iter().zip(outcomes) {
            table.push(
                policy.name,
                vec![
                    *size_bytes as f64 / 1e9,
                    outcome.hit_ratio() * 100.0,
                    outcome.byte_hit_ratio() * 100.0,
                    outcome.per_s_alone(),
                    outcome.per_s_most(),
                    outcome.served.reads as f64 / (outcome.requests - outcome.memory_hits).max(1) as f64,
                    outcome.write_factor(),
                    outcome.index_bytes / 1e6,
                    outcome.index_bytes * 8.0 / outcome.entries.max(1.0),
                ],
            );
        }
        report.tables.push(table);
        for (name, y_label, value) in MEASURES {
            report.figures.push(self.figure((name, y_label), pairs, outcomes, value));
        }
    }

    fn figure(
        &self,
        (name, y_label): (&str, &str),
        pairs: &[(&'static Policy, u64)],
        outcomes: &[Outcome],
        value: fn(&Outcome) -> f64,
    ) -> Figure {
        let of = |wanted: &'static Policy| {
            let found = pairs.iter().zip(outcomes).filter(move |((policy, _), _)| *policy == wanted);
            found.map(move |((_, size_bytes), outcome)| (*size_bytes as f64 / 1e9, value(outcome)))
        };
        let content = if self.sizes.len() > 1 {
            let line = |policy: &&'static Policy| Line {
                label: policy.name.to_owned(),
                points: of(policy).collect(),
                ..Line::default()
            };
            Content::Lines(self.policies.iter().map(line).collect())
        } else {
            let bar = |policy: &&'static Policy| (policy.name.to_owned(), of(policy).map(|(_, value)| value).collect());
            Content::Bars(vec![y_label.to_owned()], self.policies.iter().map(bar).collect())
        };
        let (title, x_label) = (format!("{y_label} on {}", self.model.name), "size of the store, GB".to_owned());
        Figure {
            name: format!("sim-{name}"),
            title,
            x_label,
            y_label: y_label.to_owned(),
            scale: Scale::LogarithmicX,
            content,
        }
    }

    /// Misses of the evictions of the literature, with the same bytes as memory and disk together have.
    fn references(&self, sample: u64, survey: Survey) -> Result<Table, SweepError> {
        let mut table = Table::new(
            "Evictions of the literature, with the bytes of memory and store",
            &["eviction", "size, GB", "hits, %", "misses"],
        );
        let names = Reference::NAMES.into_iter().chain((survey.requests <= BELADY_REQUESTS_MAX).then_some(BELADY));
        let names: Vec<_> = names.collect();
        let pairs: Vec<_> = self.sizes.iter().flat_map(|size| names.iter().map(move |name| (*name, *size))).collect();
        let hits = parallel::map(&pairs, self.jobs, |(name, size_bytes)| {
            let requests = || Ok(self.open(sample)?.take(survey.requests as usize));
            let cache_bytes = (size_bytes + self.memory_bytes) / sample;
            let mut cache = match Reference::named(name, cache_bytes) {
                Some(cache) => cache,
                None => {
                    let keys: Vec<_> =
                        requests()?.filter(|asked| asked.is_storable).map(|asked| asked.request.key).collect();
                    Reference::belady(cache_bytes, NextUses::of(&keys))
                }
            };
            let warm_up = self.warm_up(survey.requests);
            let (mut asked, mut hits) = (0_u64, 0_u64);
            for (number, Asked { request, is_storable, .. }) in (0..).zip(requests()?) {
                let is_hit = is_storable && cache.request(request.key, request.size_bytes);
                asked += u64::from(number >= warm_up);
                hits += u64::from(is_hit && number >= warm_up);
            }
            Ok::<_, SweepError>((asked, hits))
        });
        for ((name, size_bytes), counted) in pairs.into_iter().zip(hits) {
            let (asked, hits) = counted?;
            let share = hits as f64 / asked.max(1) as f64;
            table.push(name, vec![size_bytes as f64 / 1e9, share * 100.0, (asked - hits) as f64]);
        }
        Ok(table)
    }
}

/// Name and label of a figure, and what it shows of an outcome.
type Measure = (&'static str, &'static str, fn(&Outcome) -> f64);

const MEASURES: [Measure; 4] = [
    ("rate", "requests per second", Outcome::per_s_most),
    ("hits", "hits, %", |outcome| outcome.hit_ratio() * 100.0),
    ("memory", "index, MB", |outcome| outcome.index_bytes / 1e6),
    ("writes", "bytes written per byte", Outcome::write_factor),
];

impl fmt::Display for RequestSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trace(path) => write!(f, "trace {}", path.display()),
            Self::Workload(name, seed) => write!(f, "workload {name}, seed {seed}"),
        }
    }
}

impl fmt::Display for SweepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trace(error) => error.fmt(f),
            Self::Workload(name) => {
                write!(f, "no such workload, there are {}: {name}", Workload::NAMES.join(", "))
            }
            Self::Store(name, error) => write!(f, "policy {name}: {error}"),
        }
    }
}

impl std::error::Error for SweepError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn sweep(source: RequestSource) -> Sweep {
        Sweep {
            policies: vec![Policy::named("log").unwrap(), Policy::named("hashcache-setmem").unwrap()],
            model: Model::open("ssd-sata").unwrap(),
            sizes: vec![64 << 20, 128 << 20],
            memory_bytes: 1 << 20,
            source,
            working_set_bytes: None,
            requests: Some(40_000),
            tuning: Tuning::default(),
            has_references: true,
            jobs: 2,
        }
    }

    #[test]
    fn a_larger_store_hits_more_and_no_row_beats_the_future() {
        let report = sweep(RequestSource::Workload("zipf".to_owned(), 1)).run(&|_| {}).unwrap();
        let hits: Vec<f64> = report.tables[0].rows.iter().map(|(_, values)| values[1]).collect();
        assert!(hits[2] > hits[0] && hits[3] > hits[1], "{hits:?}");
        assert_eq!(report.tables[1].rows.len(), 12);
        let of = |name: &str| {
            report.tables[1].rows.iter().filter(|row| row.0 == name).map(|row| row.1[1]).collect::<Vec<_>>()
        };
        for (at, belady) in of("belady").into_iter().enumerate() {
            assert!(
                belady > of("lru")[at] && hits[2 * at] < belady && hits[2 * at + 1] < belady,
                "{at}: {belady} {hits:?}"
            );
        }
        assert_eq!(report.figures.len(), 4);
        let error = sweep(RequestSource::Workload("zip".to_owned(), 1)).run(&|_| {}).unwrap_err();
        assert!(error.to_string().contains("polymix-4"), "{error}");
    }

    #[test]
    fn damaged_lines_of_a_trace_are_counted_and_the_rest_is_run() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"time,key,size\n1,7,100\nx,y\n2,7,100\n").unwrap();
        let report = sweep(RequestSource::Trace(file.path().to_owned())).run(&|_| {}).unwrap();
        let hits: Vec<f64> = report.tables[0].rows.iter().map(|(_, values)| values[1]).collect();
        assert_eq!(hits, [50.0; 4]);
        assert!(report.remarks.iter().any(|remark| remark.contains("1 damaged")), "{:?}", report.remarks);
    }
}
