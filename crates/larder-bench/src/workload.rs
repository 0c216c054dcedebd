//! The requests: objects by popularity, kinds of requests, phases of load.
//!
//! Owns: the workloads and the schedule of their phases. Sending and time are elsewhere. Invariant: one seed gives the
//! same requests, and for each it is known whether an ideal cache without limits would hit. Cost: the numbers of all
//! storable objects requested so far, about 40 bytes each.

mod phases;

use crate::content::{BenchObject, LEN_BYTES_MAX, ObjectClass};
pub(crate) use larder_workload::RequestKind as Kind;
use larder_workload::{PolyMix, PolyMixClass, PolyMixObject, PolyMixRequest, PolyMixVersion, Random, Request, Zipf};
pub use phases::Phase;
use std::{
    collections::{HashMap, HashSet},
    time::{SystemTime, UNIX_EPOCH},
    vec,
};

/// The workloads of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Web Polygraph's PolyMix in this version, with its phases shortened.
    PolyMix(PolyMixVersion),
    /// A fixed set of objects with PolyMix's lengths. Their popularity follows Zipf's law.
    Zipf,
    /// Requests for a few objects that are all in the cache.
    AllHit,
    /// Requests for objects that were never requested before.
    AllMiss,
    /// Requests for a few long objects.
    Big,
    /// Requests for ranges of long objects.
    Ranges,
    /// The requests of a trace, in the order of the trace.
    Trace,
}

impl Workload {
    /// Every workload except a trace, with its name on the command line.
    pub const ALL: [(&'static str, Self); 7] = [
        ("polymix-3", Self::PolyMix(PolyMixVersion::Three)),
        ("polymix-4", Self::PolyMix(PolyMixVersion::Four)),
        ("zipf", Self::Zipf),
        ("all-hit", Self::AllHit),
        ("all-miss", Self::AllMiss),
        ("big", Self::Big),
        ("ranges", Self::Ranges),
    ];

    /// Returns the workload with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|&(_, workload)| workload)
    }

    /// Returns the name of the workload on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, workload)| *workload == self).map_or("trace", |(name, _)| name)
    }

    /// Returns the version of PolyMix that this workload is, or `None` for every other workload.
    pub fn polymix(self) -> Option<PolyMixVersion> {
        if let Self::PolyMix(version) = self { Some(version) } else { None }
    }
}

/// Parameters of a workload. Each workload uses only some of them.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadOptions {
    /// Number of objects in a fixed set. In PolyMix, the maximum size of the working set.
    pub object_count: u64,
    /// Length of each object in bytes, in workloads with a single length.
    pub object_bytes: u64,
    /// Exponent of Zipf's law.
    pub alpha: f64,
    /// Seed of the random numbers. The same seed gives the same requests.
    pub seed: u64,
    /// Number of arrivals after which the workload ends.
    pub arrivals_max: u64,
}

impl WorkloadOptions {
    /// Maximum length of an object of the origin, in bytes.
    pub const OBJECT_BYTES_MAX: u64 = LEN_BYTES_MAX;

    /// Returns the default parameters of `workload`.
    pub fn new(workload: Workload) -> Self {
        let (object_count, object_bytes) = match workload {
            Workload::PolyMix(_) => (1_000_000, 0),
            Workload::Zipf => (50_000, 0),
            Workload::AllHit => (1000, 10 << 10),
            Workload::AllMiss => (u64::MAX, 10 << 10),
            Workload::Big => (4, 64 << 20),
            Workload::Ranges => (16, 32 << 20),
            Workload::Trace => (0, 0),
        };
        // URLs that are new in this run must not have been used in an earlier one, so the seed depends on the time.
        let now_s = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let seed = if workload == Workload::AllMiss { now_s() % SEEDS_OF_TIME } else { 1 };
        Self { object_count, object_bytes, alpha: 0.8, seed, arrivals_max: u64::MAX }
    }
}

/// A request of the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BenchRequest {
    pub(crate) object: BenchObject,
    pub(crate) kind: Kind,
    /// The requested range: its first byte and its length. `None` requests the whole object.
    pub(crate) range: Option<(u64, u64)>,
    /// Whether the client disconnects in the middle of the response.
    pub(crate) goes_away: bool,
    /// Whether a cache without limits could answer the request.
    pub(crate) is_offered: bool,
}

/// One arrival: a request, for example for a page, and the requests that follow its response, for example for the
/// images.
#[derive(Clone, Debug, Default)]
pub(crate) struct BenchArrival {
    pub(crate) first: Option<BenchRequest>,
    pub(crate) embedded: Vec<BenchRequest>,
}

/// Generates the arrivals of a workload.
pub(crate) struct RequestSource {
    workload: Workload,
    options: WorkloadOptions,
    random: Random,
    zipf: Zipf,
    polymix: PolyMix,
    next: u64,
    seen: HashSet<BenchObject>,
    trace: vec::IntoIter<Request>,
    /// For each object of the trace, the length in bytes with which it was first requested.
    lengths: HashMap<u64, u64>,
}

impl RequestSource {
    pub(crate) fn new(workload: Workload, options: WorkloadOptions, trace: Vec<Request>) -> Self {
        let version = workload.polymix().unwrap_or(PolyMixVersion::Four);
        let zipf_count = if workload == Workload::Zipf { options.object_count } else { 1 };
        Self {
            workload,
            options,
            random: Random::new(options.seed),
            zipf: Zipf::new(zipf_count, options.alpha),
            polymix: PolyMix::new(version, options.object_count),
            next: options.seed << 40,
            seen: HashSet::new(),
            trace: trace.into_iter(),
            lengths: HashMap::new(),
        }
    }

    /// Returns the next arrival. `None` if there are no more.
    ///
    /// `recurrence` and `specials` scale the rates of revisits and of special requests, from 0 to 1.
    pub(crate) fn arrival(&mut self, recurrence: f64, specials: f64) -> Option<BenchArrival> {
        self.options.arrivals_max = self.options.arrivals_max.checked_sub(1)?;
        let mut arrival = match self.workload {
            Workload::Trace => BenchArrival { first: Some(self.replayed()?), embedded: Vec::new() },
            Workload::PolyMix(_) => {
                let (first, embedded) = self.polymix.arrival(&mut self.random, recurrence, specials);
                BenchArrival {
                    first: Some(first.into()),
                    embedded: embedded.into_iter().map(BenchRequest::from).collect(),
                }
            }
            _ => BenchArrival { first: Some(self.one()), embedded: Vec::new() },
        };
        for asked in arrival.first.iter_mut().chain(&mut arrival.embedded) {
            asked.is_offered = offered(asked, &mut self.seen);
        }
        Some(arrival)
    }

    /// Returns requests for all objects that must be in the cache when the workload starts.
    pub(crate) fn warm_up(&mut self) -> Vec<BenchRequest> {
        let numbers = match self.workload {
            Workload::AllHit | Workload::Big | Workload::Ranges => 0..self.options.object_count,
            Workload::PolyMix(_) | Workload::Zipf | Workload::AllMiss | Workload::Trace => 0..0,
        };
        let objects =
            numbers.map(|number| BenchObject { class: ObjectClass::Fixed(self.options.object_bytes), number });
        let mut asked: Vec<_> = objects.map(basic).collect();
        asked.iter_mut().for_each(|asked| asked.is_offered = offered(asked, &mut self.seen));
        asked
    }

    /// Returns the next request of the trace. An object keeps the length with which it was first requested.
    fn replayed(&mut self) -> Option<BenchRequest> {
        let Request { key, size_bytes, .. } = self.trace.next()?;
        let len_bytes = *self.lengths.entry(key).or_insert(size_bytes.clamp(1, LEN_BYTES_MAX));
        Some(basic(BenchObject { class: ObjectClass::Fixed(len_bytes), number: key }))
    }

    fn one(&mut self) -> BenchRequest {
        let class = ObjectClass::Fixed(self.options.object_bytes);
        let number = match self.workload {
            Workload::Zipf => {
                let number = self.zipf.draw(&mut self.random);
                let is_mixed = self.options.object_bytes == 0;
                let class = if is_mixed { ObjectClass::Mix(PolyMixClass::of(number)) } else { class };
                return basic(BenchObject { class, number });
            }
            Workload::AllMiss => {
                self.next += 1;
                self.next
            }
            _ => self.random.below(self.options.object_count),
        };
        let mut asked = basic(BenchObject { class, number });
        if self.workload == Workload::Ranges {
            let len = 1 + self.random.below(RANGE_BYTES_MAX.min(self.options.object_bytes));
            asked.range = Some((self.random.below(self.options.object_bytes - len + 1), len));
        }
        asked
    }
}

impl From<PolyMixRequest> for BenchRequest {
    fn from(PolyMixRequest { object: PolyMixObject { class, number }, kind, goes_away }: PolyMixRequest) -> Self {
        Self { kind, goes_away, ..basic(BenchObject { class: ObjectClass::Mix(class), number }) }
    }
}

/// Returns a GET request for a whole object.
pub(crate) fn basic(object: BenchObject) -> BenchRequest {
    BenchRequest { object, kind: Kind::Basic, range: None, goes_away: false, is_offered: false }
}

/// Returns whether a cache without limits has the requested object. Adds the object to `seen` if such a cache would
/// store it.
fn offered(asked: &BenchRequest, seen: &mut HashSet<BenchObject>) -> bool {
    match asked.kind {
        Kind::Post(_) => false,
        Kind::Head => seen.contains(&asked.object),
        Kind::Basic | Kind::ImsOld | Kind::ImsNew | Kind::Reload => {
            let is_new = asked.object.nature().is_storable && !asked.goes_away && seen.insert(asked.object);
            !is_new && asked.kind != Kind::Reload && seen.contains(&asked.object)
        }
    }
}

/// Number of different seeds that the time of the start can give. Each seed has room for 2^40 objects.
const SEEDS_OF_TIME: u64 = 1 << 24;
const RANGE_BYTES_MAX: u64 = 256 << 10;

#[cfg(test)]
mod tests;
