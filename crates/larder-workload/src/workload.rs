//! Workloads made from a seed: the same requests on every machine.
//!
//! Owns: [`Workload`] and the list of workloads. Simulation is elsewhere.

mod markatos;
mod polymix;

use crate::{Random, Request, random::Zipf};
pub use markatos::{Document, Markatos};
pub use polymix::{
    PolyMix, PolyMixClass, PolyMixLoad, PolyMixNature, PolyMixObject, PolyMixRequest, PolyMixRequests, PolyMixRobots,
    PolyMixVersion, RequestKind,
};
use std::ops::RangeInclusive;

/// Median size of the objects of [`Workload::Zipf`], in bytes. Sizes vary as those of Markatos' documents do.
const SIZE_MEDIAN_BYTES: f64 = 6000.0;
const SIZE_SIGMA: f64 = 1.05;
const SIZE_BYTES_MAX: f64 = 8_388_608.0;
/// Range of the sizes of objects in the workload `small-objects`, in bytes.
const SMALL_BYTES: RangeInclusive<u64> = 100..=200;
/// Number of sizes that are drawn. Each object has one of them.
const SIZE_COUNT: usize = 1 << 16;

/// A request, and what a cache may do with the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadRequest {
    /// The request.
    pub request: Request,
    /// Whether a cache may store the response.
    pub is_storable: bool,
    /// Number of the group of requests that are made together; 0 for no group.
    pub group: u64,
}

impl From<Request> for WorkloadRequest {
    fn from(request: Request) -> Self {
        Self { request, is_storable: true, group: 0 }
    }
}

/// An endless sequence of requests.
///
/// ```
/// use larder_workload::Workload;
///
/// let requests = Workload::named("zipf", 1, 1 << 20, 1 << 30).unwrap();
/// let bytes: u64 = requests.take(100).map(|next| next.request.size_bytes).sum();
/// assert!(bytes > 0);
/// ```
pub enum Workload {
    /// Requests for objects whose popularity follows Zipf's law.
    Zipf(ZipfRequests),
    /// Requests like those in the trace of Markatos et al.
    Markatos(Box<Markatos>),
    /// Requests like those of Web Polygraph's PolyMix-3 or PolyMix-4.
    PolyMix(Box<PolyMixRequests>),
}

impl Workload {
    /// The names that [`Self::named`] accepts.
    pub const NAMES: [&'static str; 7] =
        ["zipf", "zipf-0.8", "zipf-1.0", "small-objects", "markatos", "polymix-3", "polymix-4"];

    /// Returns the workload with this name; `None` if it is unknown. The number of its objects depends on the sizes of
    /// the cache's memory and disk.
    pub fn named(name: &str, seed: u64, memory_bytes: u64, disk_bytes: u64) -> Option<Self> {
        let polymix = |version| Self::PolyMix(Box::new(PolyMixRequests::new(version, seed, disk_bytes)));
        Some(match name {
            "zipf" => Self::Zipf(ZipfRequests::new(seed, disk_bytes, 0.9)),
            "zipf-0.8" => Self::Zipf(ZipfRequests::new(seed, disk_bytes, 0.8)),
            "zipf-1.0" => Self::Zipf(ZipfRequests::new(seed, disk_bytes, 1.0)),
            "small-objects" => Self::Zipf(ZipfRequests::of_small_objects(seed, disk_bytes)),
            "markatos" => Self::Markatos(Box::new(Markatos::new(seed, memory_bytes, disk_bytes))),
            "polymix-3" => polymix(PolyMixVersion::Three),
            "polymix-4" => polymix(PolyMixVersion::Four),
            _ => return None,
        })
    }
}

impl Iterator for Workload {
    type Item = WorkloadRequest;

    fn next(&mut self) -> Option<WorkloadRequest> {
        match self {
            Self::Zipf(requests) => Some(requests.draw().into()),
            Self::Markatos(documents) => documents.next().map(|document| {
                let Document { number, size_bytes, server, client, view } = document;
                let request = Request { time_ms: 0, key: number, size_bytes, site: server, client };
                WorkloadRequest { request, is_storable: true, group: view }
            }),
            Self::PolyMix(requests) => Some(requests.draw()),
        }
    }
}

/// Requests for objects whose popularity follows Zipf's law, by default with the exponent 0.9. All objects together
/// have four times the bytes of the disk.
pub struct ZipfRequests {
    random: Random,
    ranks: Zipf,
    sizes: Vec<u32>,
}

impl ZipfRequests {
    fn new(seed: u64, disk_bytes: u64, exponent: f64) -> Self {
        let mean_bytes = SIZE_MEDIAN_BYTES * libm::exp(SIZE_SIGMA * SIZE_SIGMA / 2.0);
        let size =
            |random: &mut Random| random.lognormal(SIZE_MEDIAN_BYTES, SIZE_SIGMA).clamp(80.0, SIZE_BYTES_MAX) as u32;
        Self::sized(seed, 4.0 * disk_bytes as f64 / mean_bytes, exponent, size)
    }

    /// Creates requests for objects of 100 to 200 bytes, such as those of social networks and sensors.
    fn of_small_objects(seed: u64, disk_bytes: u64) -> Self {
        let (least, most) = SMALL_BYTES.into_inner();
        let mean_bytes = (least + most) as f64 / 2.0;
        let size = |random: &mut Random| (least + random.below(most - least + 1)) as u32;
        Self::sized(seed, 4.0 * disk_bytes as f64 / mean_bytes, 0.9, size)
    }

    fn sized(seed: u64, count: f64, exponent: f64, size: impl Fn(&mut Random) -> u32) -> Self {
        let mut random = Random::new(0x5EED);
        let sizes = std::iter::repeat_with(|| size(&mut random)).take(SIZE_COUNT).collect();
        Self { random: Random::new(seed), ranks: Zipf::new(count.max(1000.0) as u64, exponent), sizes }
    }

    fn draw(&mut self) -> Request {
        let rank = self.ranks.draw(&mut self.random);
        let size_bytes = u64::from(self.sizes[Random::new(rank).below(SIZE_COUNT as u64) as usize]);
        Request { time_ms: 0, key: rank, size_bytes, site: rank % 1000, client: self.random.below(1000) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_requests() {
        for name in Workload::NAMES {
            let drawn = |seed| Workload::named(name, seed, 16 << 20, 256 << 20).unwrap().take(2000).collect::<Vec<_>>();
            assert_eq!(drawn(5), drawn(5), "{name}");
            assert_ne!(drawn(5), drawn(6), "{name}");
        }
        assert!(Workload::named("no-such", 1, 1, 1).is_none());
    }
}
