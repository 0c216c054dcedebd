//! Compares all evictions on the same requests: the policies of the shipping engine and the published algorithms, at
//! several shares of the footprint.
//!
//! Owns: [`Evictions`], the settings, and its table. It does not rank them. Invariant: all see the same requests and
//! have the same bytes. A policy's record heads, segments and reserve are part of these bytes; the published algorithms
//! have no such overhead. Cost: 16 bytes of memory per request, of one source at a time.

use crate::{
    Kangaroo, Model, Report, RequestSource, SimStore, SimStoreOptions, SweepError, Table, eviction, eviction_names,
    figure::{Figure, FigureContent, Scale},
    memory_cache::MemoryCacheSimulation,
    parallel,
};
use larder_store::{Objective, Policy, Tuning, Writer};
use larder_workload::{TraceError, Workload, WorkloadRequest};
use std::collections::HashMap;

/// Size of a cache for a workload: about a quarter of the bytes that it requests.
const WORKLOAD_BYTES: u64 = 512 << 20;
const WORKLOAD_REQUESTS: u64 = 1_500_000;
/// A machine on which every policy can run. The times on it are not used.
const MODEL: &str = "ssd-sata";
const KANGAROO_SEED: u64 = 7;

/// Settings of a comparison.
#[derive(Clone, Debug)]
pub struct Evictions {
    /// The policies to compare.
    pub policies: Vec<&'static Policy>,
    /// Sources of the requests. There is a table for each source, and one for all together.
    pub sources: Vec<RequestSource>,
    /// Sizes of the cache, in percent of the bytes of all requested objects.
    pub percentages: Vec<f64>,
    /// Number of requests. `None`: the whole trace, or a suitable number for a workload.
    pub requests: Option<u64>,
    /// The constants of the policies.
    pub tuning: Tuning,
    /// Mean size of an entry in bytes, from which some policies compute the size of their index. `None`: the engine's
    /// default.
    pub mean_entry_bytes: Option<u64>,
    /// Whether to add Kangaroo to the comparison. It is made for objects that are much shorter than its sets of 4 KiB.
    pub has_kangaroo: bool,
    /// Number of simulations that run at the same time.
    pub jobs: usize,
}

/// The algorithms that ignore the sizes of objects. The report compares the first of its policies with the best of
/// these algorithms, and also with the best of those in `SIZED`.
const BLIND: [&str; 5] = ["lru", "sieve", "s3-fifo", "arc", "w-tinylfu"];
const SIZED: [&str; 2] = ["gdsf", "lhd"];

/// A policy or a published algorithm that takes part in the comparison.
#[derive(Clone, Copy, Debug)]
enum Contender {
    Row(&'static Policy),
    Literature(&'static str),
    /// The memory cache of Larder's proxy.
    MemoryCache,
    Kangaroo,
}

/// The requests, hits and bytes of one contender.
#[derive(Clone, Copy, Debug, Default)]
struct ContenderCounts {
    asked: u64,
    hits: u64,
    asked_bytes: u64,
    hit_bytes: u64,
    bits_per_entry: f64,
    written_bytes: u64,
    admitted_bytes: u64,
}

/// The keys and sizes of all requests, in their order. The first `warm_up` of them are not counted.
struct RequestList {
    all: Vec<(u64, u64)>,
    warm_up: usize,
    footprint_bytes: u64,
    mean_bytes: u64,
}

impl Evictions {
    /// Runs the comparison. Calls `progress` with the number of runs done since the last call, and the total number.
    ///
    /// # Errors
    /// If a source cannot be read, or a store refuses its options.
    pub fn run(&self, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Report, SweepError> {
        let named: Vec<_> = self.sources.iter().map(ToString::to_string).collect();
        let mut report = Report::new(format!("Evictions on {}", named.join(", ")));
        let mut together = self.together();
        for (source, name) in self.sources.iter().zip(&named) {
            let requests = self.requests(source)?;
            let table = self.on_requests(name, &requests, &mut together, progress)?;
            report.figures.push(Figure {
                name: format!("sim-evictions-{}", report.figures.len() + 1),
                title: format!("Evictions on {name}"),
                x_label: "size of the cache, % of the footprint".to_owned(),
                y_label: "hits, %".to_owned(),
                scale: Scale::LogarithmicX,
                content: FigureContent::by_name(&table),
            });
            report.tables.push(table);
            report.remarks.push(format!(
                "{name}: {} requests, of which the first {} only warm up; footprint {:.1} MB, {} bytes on average.",
                requests.all.len(),
                requests.warm_up,
                requests.footprint_bytes as f64 / 1e6,
                requests.mean_bytes
            ));
        }
        report.tables.push(together);
        report.remarks.extend([
            "Policies: the shipping engine with its defaults, its segments and reserve included. Objects over 1 MiB count as 1 MiB."
                .to_owned(),
            "The literature keeps no heads and no reserve; its bits an entry are not counted.".to_owned(),
            "The memory cache is the one in front of the store. Its tables are part of the bytes.".to_owned(),
        ]);
        if self.has_kangaroo {
            report.remarks.push(
                "Kangaroo has its headers and sets, and the memory of its published index. It admits 90% of the objects."
                    .to_owned(),
            );
        }
        Ok(report)
    }

    /// Runs all contenders on the same requests. Adds a row for each size of the cache to `together`, with the ratio
    /// that the objective maximizes.
    fn on_requests(
        &self,
        name: &str,
        requests: &RequestList,
        together: &mut Table,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Table, SweepError> {
        let contenders = self.contenders();
        let cases: Vec<_> =
            self.percentages.iter().flat_map(|share| contenders.iter().map(move |one| (*share, *one))).collect();
        let runs_count = (cases.len() * self.sources.len()) as u64;
        let outcomes = parallel::map(&cases, self.jobs, |&(percentage, contender)| {
            let bytes = (requests.footprint_bytes as f64 * percentage / 100.0) as u64;
            let counts = match contender {
                Contender::Row(policy) => requests.on_row(policy, bytes, &self.tuning, self.mean_entry_bytes),
                Contender::Literature(name) => Ok(requests.on_literature(name, bytes)),
                Contender::MemoryCache => Ok(requests.on_memory_cache(bytes)),
                Contender::Kangaroo => Ok(requests.on_kangaroo(bytes)),
            };
            progress(1, runs_count);
            counts
        });
        let columns = [
            "eviction",
            "footprint, %",
            "hits, %",
            "bytes hit, %",
            "bits an entry",
            "bytes written per byte requested",
            "bytes written per byte admitted",
        ];
        let mut table = Table::new(name, &columns);
        let mut all_counts = Vec::new();
        for ((percentage, contender), counts) in cases.iter().zip(outcomes) {
            let counts = counts?;
            all_counts.push(counts);
            let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
            let values = vec![
                *percentage,
                counts.hits_percent(Objective::Requests),
                counts.hits_percent(Objective::Bytes),
                counts.bits_per_entry,
                share(counts.written_bytes, counts.asked_bytes),
                share(counts.written_bytes, counts.admitted_bytes),
            ];
            table.push(contender.name(), values);
        }
        for (percentage, of_size) in self.percentages.iter().zip(all_counts.chunks(contenders.len())) {
            let hits: Vec<_> = of_size.iter().map(|counts| counts.hits_percent(self.tuning.objective)).collect();
            let best_of = |names: &[&str]| {
                let of_names = contenders.iter().zip(&hits).filter(|(one, _)| names.contains(&one.name()));
                of_names.map(|(_, hits)| *hits).fold(f64::NAN, f64::max)
            };
            let ahead = |names: &[&str]| hits[0] - best_of(names);
            let values = std::iter::once(*percentage).chain(hits.iter().copied()).chain([ahead(&BLIND), ahead(&SIZED)]);
            together.push(name, values.collect());
        }
        Ok(table)
    }

    /// Creates the table for all sources together, without rows yet.
    fn together(&self) -> Table {
        let what = if self.tuning.objective == Objective::Bytes { "bytes hit, %" } else { "hits, %" };
        let contenders = self.contenders();
        let first = contenders[0].name();
        let blind = format!("{first} over the best of {}", BLIND.join(", "));
        let sized = format!("{first} over {}", SIZED.join(", "));
        let names = contenders.iter().map(|one| one.name());
        let columns: Vec<_> = ["requests", "footprint, %"].into_iter().chain(names).chain([&*blind, &*sized]).collect();
        Table::new(format!("All, {what}"), &columns)
    }

    fn contenders(&self) -> Vec<Contender> {
        let rows = self.policies.iter().map(|policy| Contender::Row(policy));
        let literature = eviction_names().map(Contender::Literature);
        let kangaroo = self.has_kangaroo.then_some(Contender::Kangaroo);
        rows.chain(literature).chain([Contender::MemoryCache]).chain(kangaroo).collect()
    }

    fn requests(&self, source: &RequestSource) -> Result<RequestList, SweepError> {
        let size =
            |asked: WorkloadRequest| (asked.request.key, asked.request.size_bytes.clamp(1, Writer::BODY_MAX_BYTES));
        let limit = |count: u64| usize::try_from(self.requests.unwrap_or(count)).unwrap_or(usize::MAX);
        let (mut all, warm_up_divisor): (Vec<(u64, u64)>, usize) = match source {
            RequestSource::Trace(file) => {
                let mut trace = file.open()?;
                let read = trace.by_ref().take(limit(u64::MAX));
                let read = read.map(|request| request.map(WorkloadRequest::from).map(size));
                let requests = read.collect::<Result<_, TraceError>>().map_err(SweepError::Trace)?;
                trace.progress().check(&file.name).map_err(SweepError::Trace)?;
                (requests, usize::MAX)
            }
            RequestSource::Workload(name, seed) => {
                let workload = Workload::named(name, *seed, 1 << 20, WORKLOAD_BYTES);
                let workload = workload.ok_or_else(|| SweepError::Workload(name.clone()))?;
                (workload.filter(|asked| asked.is_storable).take(limit(WORKLOAD_REQUESTS)).map(size).collect(), 2)
            }
        };
        // An object has the size of its first request.
        let mut sizes = HashMap::new();
        all.iter_mut().for_each(|(key, size_bytes)| *size_bytes = *sizes.entry(*key).or_insert(*size_bytes));
        let footprint_bytes: u64 = sizes.values().sum();
        let warm_up = all.len() / warm_up_divisor;
        let mean_bytes = footprint_bytes / sizes.len().max(1) as u64;
        Ok(RequestList { all, warm_up, footprint_bytes, mean_bytes: mean_bytes.max(1) })
    }
}

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Self::Row(policy) => policy.name,
            Self::Literature(name) => name,
            Self::MemoryCache => "memory cache",
            Self::Kangaroo => "kangaroo",
        }
    }
}

impl ContenderCounts {
    /// Returns the hit ratio that `objective` maximizes, in percent. For [`Objective::Balanced`], returns the request
    /// hit ratio.
    fn hits_percent(&self, objective: Objective) -> f64 {
        let (part, whole) = match objective {
            Objective::Bytes => (self.hit_bytes, self.asked_bytes),
            Objective::Requests | Objective::Balanced => (self.hits, self.asked),
        };
        part as f64 / whole.max(1) as f64 * 100.0
    }
}

impl RequestList {
    fn on_literature(&self, name: &str, bytes: u64) -> ContenderCounts {
        let Some(mut cache) = eviction(name, bytes) else { return ContenderCounts::default() };
        self.count(|_, key, size_bytes| cache.request(key, size_bytes))
    }

    fn on_memory_cache(&self, bytes: u64) -> ContenderCounts {
        let cache = MemoryCacheSimulation::new(bytes);
        self.count(|_, key, size_bytes| cache.request(key, size_bytes))
    }

    fn on_kangaroo(&self, bytes: u64) -> ContenderCounts {
        let mut cache = Kangaroo::new(bytes, KANGAROO_SEED);
        let mut before = cache.counts();
        let mut counts = self.count(|number, key, size_bytes| {
            if number == self.warm_up {
                before = cache.counts();
            }
            cache.request(key, size_bytes)
        });
        let after = cache.counts();
        counts.written_bytes = after.written_bytes - before.written_bytes;
        counts.admitted_bytes = after.admitted_bytes - before.admitted_bytes;
        counts.bits_per_entry = cache.index_bits(self.mean_bytes) as f64 / cache.len().max(1) as f64;
        counts
    }

    fn on_row(
        &self,
        policy: &'static Policy,
        bytes: u64,
        tuning: &Tuning,
        mean_entry_bytes: Option<u64>,
    ) -> Result<ContenderCounts, SweepError> {
        let refused = |error| SweepError::Store(policy.name.to_owned(), error);
        let model = Model::open(MODEL).expect("the laboratory has this machine");
        let mut options = SimStoreOptions::new(policy, bytes / 4096 * 4096);
        options.mean_entry_bytes = mean_entry_bytes;
        options.tuning = tuning.clone();
        let mut bed = SimStore::new(&model, &options).map_err(refused)?;
        let mut written_before = 0;
        let mut admitted_bytes = 0;
        let mut counts = self.count(|number, key, size_bytes| {
            if number == self.warm_up {
                (written_before, admitted_bytes) = (bed.stats().written_bytes, 0);
            }
            let is_hit = bed.look_up(key) == Some(true);
            if !is_hit {
                let stored_before = bed.happened().stored;
                bed.store(key, size_bytes, 0, 0);
                admitted_bytes += if bed.happened().stored > stored_before { size_bytes } else { 0 };
            }
            is_hit
        });
        let stats = bed.stats();
        (counts.written_bytes, counts.admitted_bytes) = (stats.written_bytes - written_before, admitted_bytes);
        counts.bits_per_entry = stats.index_bytes as f64 * 8.0 / stats.entries.max(1) as f64;
        Ok(counts)
    }

    /// Counts hits. Calls `ask` with the number, key and size of each request; it returns whether that is a hit.
    fn count(&self, mut ask: impl FnMut(usize, u64, u64) -> bool) -> ContenderCounts {
        let mut counts = ContenderCounts::default();
        for (number, &(key, size_bytes)) in self.all.iter().enumerate() {
            let is_hit = ask(number, key, size_bytes);
            if number >= self.warm_up {
                counts.asked += 1;
                counts.asked_bytes += size_bytes;
                counts.hits += u64::from(is_hit);
                counts.hit_bytes += if is_hit { size_bytes } else { 0 };
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At stake: the promise of the default policy. It has as many hits as the best published algorithm that ignores
    /// sizes, and writes few bytes.
    #[test]
    fn the_default_policy_hits_as_often_as_the_best_known_where_popularity_lasts() {
        let compared = Evictions {
            policies: vec![Policy::default_policy(), Policy::named("log-clock").expect("it is in the table")],
            sources: vec![RequestSource::Workload("zipf".to_owned(), 7)],
            percentages: vec![20.0],
            requests: Some(150_000),
            tuning: Tuning::default(),
            mean_entry_bytes: None,
            has_kangaroo: false,
            jobs: 2,
        };
        let report = compared.run(&|_, _| {}).unwrap();
        let of = |name: &str| {
            let row = report.tables[0].rows.iter().find(|(row, _)| row == name);
            row.unwrap_or_else(|| panic!("{name} is not in the table")).1.clone()
        };
        let log = of("log");
        let clock = of("log-clock");
        let together = &report.tables[1].rows[0].1;
        assert_eq!(together[..4], [20.0, log[1], clock[1], of("lru")[1]]);
        let best = BLIND.iter().map(|name| of(name)[1]).fold(0.0, f64::max);
        assert_eq!(together[together.len() - 2], log[1] - best);
        for name in ["lru", "sieve", "s3-fifo", "arc"] {
            assert!(log[1] + 1.0 >= of(name)[1], "log {}, {name} {}", log[1], of(name)[1]);
        }
        assert!(log[1] >= clock[1] + 3.0 && log[4] <= clock[4] * 0.7, "log {log:?}, log-clock {clock:?}");
    }

    /// At stake: the purpose of `tiny`. docs/internals/tiny.md has the results of longer runs.
    #[test]
    fn tiny_hits_as_often_as_kangaroo_with_objects_of_100_to_200_bytes_and_less_memory() {
        let compared = Evictions {
            policies: vec![Policy::named("tiny").unwrap()],
            sources: vec![RequestSource::Workload("small-objects".to_owned(), 11)],
            percentages: vec![10.0],
            requests: Some(800_000),
            tuning: Tuning::default(),
            mean_entry_bytes: Some(150),
            has_kangaroo: true,
            jobs: 2,
        };
        let report = compared.run(&|_, _| {}).unwrap();
        let of = |name: &str| &report.tables[0].rows.iter().find(|(row, _)| row == name).unwrap().1;
        let tiny = of("tiny");
        let kangaroo = of("kangaroo");
        assert!(tiny[1] + 0.2 >= kangaroo[1], "hits: tiny {tiny:?}, Kangaroo {kangaroo:?}");
        assert!(tiny[3] <= kangaroo[3] && tiny[3] <= 9.0, "bits: tiny {tiny:?}, Kangaroo {kangaroo:?}");
        assert!(tiny[5] <= kangaroo[5] * 1.3, "bytes written: tiny {tiny:?}, Kangaroo {kangaroo:?}");
    }
}
