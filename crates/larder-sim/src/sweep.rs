//! Compares policies at several sizes on the same requests, in one table.
//!
//! Owns: [`Sweep`], its settings, and its report. It does not rank policies. Invariant: every row of the report saw the
//! same requests. A disk too large for this machine's memory is scaled down, together with everything that depends on
//! it, by a factor that the report states.

mod source;
mod steps;

use crate::{
    Experiment, MemoryKind, Model, NextUses, Outcome, Report, Table, belady, eviction, eviction_names,
    figure::{Figure, FigureContent, FigureLine},
    parallel,
};
use larder_store::{Error, Policy, Tuning};
use larder_workload::{TraceError, Workload, WorkloadRequest};
use std::{fmt, io, path::PathBuf};
use steps::Point;

pub use source::{RequestSource, TraceFile};
pub use steps::Steps;

/// Largest simulated volume in bytes. Larger ones are scaled down.
const SIMULATED_BYTES_MAX: u64 = 8 << 30;
/// Name of the algorithm that needs to know future requests.
const BELADY: &str = "belady";
/// Maximum number of requests that are kept in memory for Belady's algorithm.
const BELADY_REQUESTS_MAX: u64 = 20_000_000;
/// Ratio of the greatest to the least rate above which the axis is logarithmic.
const FAR: f64 = 5.0;
/// Number of requests between two calls of `progress`.
const TOLD_EVERY: u64 = 8192;
const REQUESTS: std::ops::RangeInclusive<u64> = 200_000..=4_000_000;

/// Settings of a comparison of policies at several sizes.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The policies to compare.
    pub policies: Vec<&'static Policy>,
    /// The machine.
    pub model: Model,
    /// Size of the store in bytes, unless it is varied.
    pub disk_bytes: u64,
    /// Size of the memory cache in bytes, unless it is varied.
    pub memory_bytes: u64,
    /// The parameter that is varied, with its values.
    pub steps: Steps,
    /// Source of the requests.
    pub source: RequestSource,
    /// Bytes of the objects that a workload requests repeatedly. `None`: the largest of the sizes.
    pub working_set_bytes: Option<u64>,
    /// Number of requests. Half of a workload's requests are warm-up. `None`: the whole trace, or a suitable number for
    /// a workload.
    pub requests: Option<u64>,
    /// Constants of the policies.
    pub tuning: Tuning,
    /// Mean size of an entry in bytes, from which some policies compute the size of their index. `None`: the engine's
    /// default.
    pub mean_entry_bytes: Option<u64>,
    /// Whether to run the published algorithms too.
    pub has_references: bool,
    /// Number of simulations that run at the same time.
    pub jobs: usize,
}

/// Why a sweep has failed.
#[derive(Debug)]
pub enum SweepError {
    /// The trace cannot be read.
    Trace(TraceError),
    /// There is no workload with this name.
    Workload(String),
    /// The store of the named policy refused its options.
    Store(String, Error),
    /// The file with this path could not be written.
    Write(PathBuf, io::Error),
}

/// Properties of a source, known after reading it once.
#[derive(Clone, Copy, Debug, Default)]
struct Survey {
    requests: u64,
    mean_bytes: u64,
    left_out: u64,
    damaged: u64,
    first_damage: Option<(u64, &'static str)>,
}

impl Sweep {
    /// Runs the sweep. Calls `progress` with the number of requests done since the last call, and the total number.
    ///
    /// # Errors
    /// If the source cannot be read, or a store refuses its options.
    pub fn run(&self, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Report, SweepError> {
        let points = self.points();
        let largest = largest_bytes(&points);
        let sample = match &self.source {
            RequestSource::Trace(_) => 1,
            RequestSource::Workload(..) => largest.div_ceil(SIMULATED_BYTES_MAX).next_power_of_two(),
        };
        let survey = self.survey(sample)?;
        let pairs: Vec<_> =
            points.iter().flat_map(|point| self.policies.iter().map(move |policy| (*policy, *point))).collect();
        let evictions = self.evictions(survey, &points);
        let of = (pairs.len() + evictions.len()) as u64 * survey.requests;
        let tell = |count: u64| progress(count, of);
        let outcomes = parallel::map(&pairs, self.jobs, |(policy, point)| {
            let mut experiment = Experiment::new(
                policy,
                self.model.clone().holding(point.disk_bytes),
                point.disk_bytes,
                point.memory_bytes,
            );
            experiment.memory_kind = MemoryKind::Proxy;
            experiment.utilization = point.utilization;
            experiment.mean_entry_bytes = self.mean_entry_bytes;
            experiment.tuning = self.tuning.clone();
            let warm_up = self.warm_up(survey.requests);
            let experiment = Experiment { warm_up, requests: survey.requests - warm_up, ..experiment.sampled(sample) };
            let outcome = experiment.run(told(self.open(sample)?, &tell));
            outcome.map_err(|error| SweepError::Store(policy.name.to_owned(), error))
        });
        let outcomes: Vec<Outcome> = outcomes.into_iter().collect::<Result<_, _>>()?;
        let mut report = Report::new(format!("Policies on {}", self.model.name));
        if !pairs.is_empty() {
            self.fill(&mut report, &pairs, &outcomes);
        }
        report.remarks = self.remarks(survey, sample);
        if self.has_references {
            let table = self.references(sample, survey, &evictions, &tell)?;
            let (x_label, scale) = self.steps.axis();
            report.figures.push(Figure {
                name: "sim-evictions".to_owned(),
                title: table.title.clone(),
                x_label: x_label.to_owned(),
                y_label: "hits, %".to_owned(),
                scale,
                content: FigureContent::by_name(&table),
            });
            report.tables.push(table);
        }
        Ok(report)
    }

    fn points(&self) -> Vec<Point> {
        self.steps.points(self.disk_bytes, self.memory_bytes)
    }

    /// Returns how many of `requests` are warm-up, and are not counted.
    fn warm_up(&self, requests: u64) -> u64 {
        match self.source {
            RequestSource::Trace(_) => 0,
            RequestSource::Workload(..) => requests / 2,
        }
    }

    /// Returns the requests, scaled down by the factor `sample`. If a trace becomes unreadable, it ends there.
    fn open(&self, sample: u64) -> Result<Box<dyn Iterator<Item = WorkloadRequest>>, SweepError> {
        match &self.source {
            RequestSource::Trace(file) => Ok(Box::new(file.open()?.map_while(Result::ok).map(WorkloadRequest::from))),
            RequestSource::Workload(name, seed) => {
                let set = self.working_set_bytes.unwrap_or_else(|| largest_bytes(&self.points()));
                let memory = self.memory_bytes / sample;
                let set = set / sample;
                let workload = Workload::named(name, *seed, memory.max(1 << 20), set.max(16 << 20));
                let workload = workload.ok_or_else(|| SweepError::Workload(name.clone()))?;
                Ok(Box::new(workload))
            }
        }
    }

    fn survey(&self, sample: u64) -> Result<Survey, SweepError> {
        let RequestSource::Trace(file) = &self.source else {
            let drawn: Vec<_> = self.open(sample)?.take(20_000).collect();
            let mean_bytes =
                drawn.iter().map(|asked| asked.request.size_bytes).sum::<u64>() / drawn.len().max(1) as u64;
            let set = self.working_set_bytes.unwrap_or_else(|| largest_bytes(&self.points())) / sample;
            let wanted = (8 * set / mean_bytes.max(1)).clamp(*REQUESTS.start(), *REQUESTS.end());
            return Ok(Survey { requests: self.requests.unwrap_or(wanted), mean_bytes, ..Survey::default() });
        };
        let mut trace = file.open()?;
        let mut count = 0_u64;
        let mut bytes = 0_u64;
        for request in trace.by_ref() {
            let request = request.map_err(SweepError::Trace)?;
            (count, bytes) = (count + 1, bytes.saturating_add(request.size_bytes));
        }
        let progress = trace.progress();
        progress.check(&file.name).map_err(SweepError::Trace)?;
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
        remarks.extend(self.steps.remark(self.disk_bytes));
        let capacity_bytes = self.model.disk.capacity_bytes();
        if largest_bytes(&self.points()) as f64 > capacity_bytes {
            remarks.push(format!(
                "The machine's disk has {} GB; a store that is larger has one of its own size, all of it in use.",
                capacity_bytes / 1e9
            ));
        }
        if sample > 1 {
            remarks.push(format!(
                "Disk, memory, caches and working set were {sample} times smaller; memory and entries are scaled up."
            ));
        }
        if survey.left_out + survey.damaged > 0 {
            let first = survey
                .first_damage
                .map_or_else(String::new, |(line, why)| format!(", the first is number {line}: {why}"));
            remarks.push(format!(
                "Lines that are no GET or were denied: {}; damaged: {}{first}.",
                survey.left_out, survey.damaged
            ));
        }
        remarks
    }

    fn fill(&self, report: &mut Report, pairs: &[(&'static Policy, Point)], outcomes: &[Outcome]) {
        let columns = [
            "policy",
            self.steps.name(),
            "hits, %",
            "bytes hit, %",
            "requests/s alone",
            "requests/s most",
            "reads per look-up",
            "bytes written per byte",
            "refused, %",
            "index, MB",
            "bits an entry",
        ];
        let mut table = Table::new("", &columns);
        for ((policy, point), outcome) in pairs.iter().zip(outcomes) {
            table.push(
                policy.name,
                vec![
                    point.at,
                    outcome.hit_ratio() * 100.0,
                    outcome.byte_hit_ratio() * 100.0,
                    outcome.per_s_alone(),
                    outcome.per_s_most(),
                    outcome.served.reads as f64 / (outcome.requests - outcome.memory_hits).max(1) as f64,
                    outcome.write_factor(),
                    outcome.refused_ratio() * 100.0,
                    outcome.index_bytes / 1e6,
                    outcome.index_bytes * 8.0 / outcome.entries.max(1.0),
                ],
            );
        }
        report.tables.push(table);
        report.figures.extend(MEASURES.iter().map(|measure| self.figure(measure, pairs, outcomes)));
    }

    fn figure(&self, measure: &Measure, pairs: &[(&'static Policy, Point)], outcomes: &[Outcome]) -> Figure {
        let Measure { name, title, label, is_by_ratios, value } = *measure;
        let of = |wanted: &'static Policy| {
            let found = pairs.iter().zip(outcomes).filter(move |((policy, _), _)| *policy == wanted);
            found.map(move |((_, point), outcome)| (point.at, value(outcome)))
        };
        let content = if pairs.len() > self.policies.len() {
            let line = |policy: &&'static Policy| FigureLine {
                label: policy.name.to_owned(),
                points: of(policy).collect(),
                ..FigureLine::default()
            };
            FigureContent::Lines(self.policies.iter().map(line).collect())
        } else {
            let bar = |policy: &&'static Policy| (policy.name.to_owned(), of(policy).map(|(_, value)| value).collect());
            FigureContent::Bars(vec![label.to_owned()], self.policies.iter().map(bar).collect())
        };
        let (x_label, scale) = self.steps.axis();
        let values = || outcomes.iter().map(value);
        let least = values().fold(f64::INFINITY, f64::min);
        let most = values().fold(0.0, f64::max);
        let is_far = is_by_ratios && most > FAR * least;
        Figure {
            name: format!("sim-{name}"),
            title: format!("{title}, on {}", self.model.name),
            x_label: x_label.to_owned(),
            y_label: label.to_owned(),
            scale: if is_far { scale.with_ratios_upwards() } else { scale },
            content,
        }
    }

    /// Returns the published algorithms to compare with, at every step.
    fn evictions(&self, survey: Survey, points: &[Point]) -> Vec<(&'static str, Point)> {
        if !self.has_references {
            return Vec::new();
        }
        let optimum = (survey.requests <= BELADY_REQUESTS_MAX).then_some(BELADY);
        let names = || eviction_names().chain(optimum);
        points.iter().flat_map(|point| names().map(move |name| (name, *point))).collect()
    }

    /// Runs the published algorithms. Each has as many bytes as memory and disk together.
    fn references(
        &self,
        sample: u64,
        survey: Survey,
        evictions: &[(&'static str, Point)],
        tell: &(dyn Fn(u64) + Sync),
    ) -> Result<Table, SweepError> {
        let mut table = Table::new(
            "Evictions of the literature, with the bytes of memory and store",
            &["eviction", self.steps.name(), "hits, %", "misses"],
        );
        let hits = parallel::map(evictions, self.jobs, |(name, point)| {
            let requests = || Ok(self.open(sample)?.take(survey.requests as usize));
            let cache_bytes = point.cache_bytes() / sample;
            let mut cache = match eviction(name, cache_bytes) {
                Some(cache) => cache,
                None => {
                    let keys: Vec<_> =
                        requests()?.filter(|asked| asked.is_storable).map(|asked| asked.request.key).collect();
                    belady(cache_bytes, NextUses::of(&keys))
                }
            };
            let warm_up = self.warm_up(survey.requests);
            let mut asked = 0_u64;
            let mut hits = 0_u64;
            for (number, WorkloadRequest { request, is_storable, .. }) in (0..).zip(told(requests()?, tell)) {
                let is_hit = is_storable && cache.request(request.key, request.size_bytes);
                asked += u64::from(number >= warm_up);
                hits += u64::from(is_hit && number >= warm_up);
            }
            Ok::<_, SweepError>((asked, hits))
        });
        for ((name, point), counted) in evictions.iter().zip(hits) {
            let (asked, hits) = counted?;
            let share = hits as f64 / asked.max(1) as f64;
            table.push(*name, vec![point.at, share * 100.0, (asked - hits) as f64]);
        }
        Ok(table)
    }
}

fn largest_bytes(points: &[Point]) -> u64 {
    points.iter().map(|point| point.disk_bytes).max().unwrap_or(0)
}

/// Returns the same requests, and calls `tell` for every [`TOLD_EVERY`] of them.
fn told(
    requests: impl Iterator<Item = WorkloadRequest>,
    tell: &(dyn Fn(u64) + Sync),
) -> impl Iterator<Item = WorkloadRequest> {
    requests.zip(1_u64..).map(move |(asked, number)| {
        if number.is_multiple_of(TOLD_EVERY) {
            tell(TOLD_EVERY);
        }
        asked
    })
}

/// The content of a figure of a sweep: its name, title and label, whether the values differ by orders of magnitude, and
/// the value of an outcome that it shows.
struct Measure {
    name: &'static str,
    title: &'static str,
    label: &'static str,
    is_by_ratios: bool,
    value: fn(&Outcome) -> f64,
}

const MEASURES: [Measure; 5] = [
    Measure {
        name: "rate",
        title: "Requests per second, as many as can be",
        label: "requests per second",
        is_by_ratios: true,
        value: Outcome::per_s_most,
    },
    Measure {
        name: "hits",
        title: "Hits",
        label: "hits, %",
        is_by_ratios: false,
        value: |outcome| outcome.hit_ratio() * 100.0,
    },
    Measure {
        name: "byte-hits",
        title: "Bytes that are hit",
        label: "bytes hit, %",
        is_by_ratios: false,
        value: |outcome| outcome.byte_hit_ratio() * 100.0,
    },
    Measure {
        name: "memory",
        title: "Memory of the index",
        label: "index, MB",
        is_by_ratios: false,
        value: |outcome| outcome.index_bytes / 1e6,
    },
    Measure {
        name: "writes",
        title: "Bytes written for each byte that is stored",
        label: "bytes written per byte",
        is_by_ratios: false,
        value: Outcome::write_factor,
    },
];

impl fmt::Display for SweepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trace(error) => error.fmt(f),
            Self::Workload(name) => {
                write!(f, "no such workload, there are {}: {name}", Workload::NAMES.join(", "))
            }
            Self::Store(name, error) => write!(f, "policy {name}: {error}"),
            Self::Write(path, error) => write!(f, "cannot write {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for SweepError {}

#[cfg(test)]
mod tests;
