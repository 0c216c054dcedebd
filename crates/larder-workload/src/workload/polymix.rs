//! PolyMix-3 and PolyMix-4 of Web Polygraph: the objects requested, their order, and the kinds of requests.
//!
//! There are pages with their images, downloads and other objects. With a given probability, a request is for an
//! earlier object, from a working set that stops growing. Owns: the objects, by class and number only; length,
//! storability and life cycle are derived from these. Host names and time are unknown here. Arrivals are those of all
//! robots together, each of which would send 0.4 requests per second. PolyMix-3 has plain requests, reloads and
//! If-Modified-Since only; PolyMix-4 adds POST, HEAD and clients that go away.
//!
//! Invariant: images come only with their page, and those of a revisited page are revisited too. Source: the workload
//! files of Polygraph 4.9.0.

mod robots;

use super::WorkloadRequest;
use crate::{
    Random, Request,
    random::{Zipf, mix},
};
pub use robots::{PolyMixLoad, PolyMixRobots};

/// The version of PolyMix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolyMixVersion {
    /// PolyMix-3.
    Three,
    /// PolyMix-4. Unlike in PolyMix-3, short objects are requested again more often.
    Four,
}

/// The classes of PolyMix's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolyMixClass {
    /// An image of a page.
    Image,
    /// A page.
    Html,
    /// A long object, such as a program.
    Download,
    /// Any other object.
    Other,
}

/// One object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PolyMixObject {
    /// The object's class.
    pub class: PolyMixClass,
    /// The object's number in its class.
    pub number: u64,
}

/// The properties of an object that follow from its class and number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolyMixNature {
    /// Length of the body in bytes.
    pub len_bytes: u64,
    /// Whether a cache may store the object.
    pub is_storable: bool,
    /// Time between two modifications of the object, in seconds.
    pub cycle_s: u64,
}

/// The kinds of requests that PolyMix sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// A plain GET.
    Basic,
    /// A GET with If-Modified-Since, and a time before the last modification.
    ImsOld,
    /// A GET with If-Modified-Since, and the time of the last modification.
    ImsNew,
    /// A GET with `Cache-Control: no-cache`, which asks for a response from the origin.
    Reload,
    /// A HEAD.
    Head,
    /// A POST with a body of this many bytes.
    Post(u64),
}

/// One request of PolyMix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolyMixRequest {
    /// The requested object.
    pub object: PolyMixObject,
    /// The kind of request.
    pub kind: RequestKind,
    /// Whether the client closes the connection before it has the whole response.
    pub goes_away: bool,
}

/// The workload: the objects that exist so far, and how requests are drawn.
#[derive(Clone, Debug)]
pub struct PolyMix {
    version: PolyMixVersion,
    /// Number of objects of each class of [`DIRECT`] that were requested so far.
    made: [u64; DIRECT.len()],
    working_set: u64,
    hits_share: f64,
    images: Zipf,
}

/// PolyMix as a cache's disk sees it: one request after the other, all of them plain and completed.
pub struct PolyMixRequests {
    random: Random,
    polymix: PolyMix,
    /// The requests of the latest page view that are still to come, the last one first.
    pending: Vec<PolyMixRequest>,
    client: u64,
    group: u64,
}

impl PolyMixClass {
    /// Returns the class of an object of which only a number is known. The classes have the shares that they have in
    /// PolyMix.
    pub fn of(number: u64) -> Self {
        match mix(number ^ PAGE_SALT) % 1000 {
            0..650 => Self::Image,
            650..800 => Self::Html,
            800..805 => Self::Download,
            _ => Self::Other,
        }
    }
}

impl PolyMixObject {
    /// Returns the properties of this object, which follow from its class and number.
    pub fn nature(self) -> PolyMixNature {
        let mut random = Random::new(mix(mix(self.number) ^ (self.class as u64 + 1) << 56));
        let (kilobytes, storable, days) = match self.class {
            PolyMixClass::Image => (random.exponential(4.5), 0.80, random.lognormal_by_mean(30.0, 7.0)),
            PolyMixClass::Html => (random.exponential(8.5), 0.90, random.lognormal_by_mean(7.0, 1.0)),
            PolyMixClass::Download => {
                (random.lognormal_by_mean(300.0, 300.0), 0.95, random.lognormal_by_mean(182.5, 30.0))
            }
            PolyMixClass::Other => (random.lognormal_by_mean(25.0, 10.0), 0.72, 1.0 + 364.0 * random.share()),
        };
        PolyMixNature {
            len_bytes: ((kilobytes * 1024.0) as u64).clamp(LEN_BYTES_MIN, LEN_BYTES_MAX),
            is_storable: random.happens(storable),
            cycle_s: ((days * 86_400.0) as u64).max(CYCLE_S_MIN),
        }
    }
}

impl PolyMix {
    /// Creates a workload in which no object was requested yet. At most `working_set` objects are requested again.
    pub fn new(version: PolyMixVersion, working_set: u64) -> Self {
        let images = Zipf::new(IMAGES_MAX, 1.0);
        Self { version, made: [0; DIRECT.len()], working_set, hits_share: HITS_SHARE, images }
    }

    /// Changes the share of requests that would be hits in a cache of unlimited size.
    #[must_use]
    pub fn offering(mut self, hits_share: f64) -> Self {
        self.hits_share = hits_share;
        self
    }

    /// Returns the mean number of requests per arrival. An arrival is one object, or a page with its images, so the
    /// mean is more than 1.
    pub fn requests_per_arrival() -> f64 {
        let harmonic: f64 = (1..=IMAGES_MAX).map(|count| 1.0 / count as f64).sum();
        1.0 + DIRECT[0].1 / direct_total() * IMAGES_MAX as f64 / harmonic
    }

    /// Returns the next arrival: a request and, for a page, those for its images. `recurrence` and `specials`, from 0
    /// to 1, scale the shares of repeated requests and of special requests.
    pub fn arrival(
        &mut self,
        random: &mut Random,
        recurrence: f64,
        specials: f64,
    ) -> (PolyMixRequest, Vec<PolyMixRequest>) {
        let mut drawn = random.share() * direct_total();
        let at = DIRECT.iter().position(|(_, share)| {
            drawn -= share;
            drawn < 0.0
        });
        let at = at.unwrap_or(DIRECT.len() - 1);
        let class = DIRECT[at].0;
        let is_revisit = self.made[at] > 0 && random.happens(self.recurrence() * recurrence);
        let number = if is_revisit { self.revisited(random, at) } else { self.made[at] };
        self.made[at] += u64::from(!is_revisit);
        let first = self.request(random, PolyMixObject { class, number }, is_revisit, specials);
        let embedded = match (class, first.kind) {
            (_, RequestKind::Head | RequestKind::Post(_)) => Vec::new(),
            (PolyMixClass::Html, _) => {
                let count = self.images.draw(&mut Random::new(mix(number ^ PAGE_SALT))) + 1;
                let image = |at| PolyMixObject { class: PolyMixClass::Image, number: number * IMAGES_MAX + at };
                (0..count).map(|at| self.request(random, image(at), is_revisit, specials)).collect()
            }
            _ => Vec::new(),
        };
        (first, embedded)
    }

    /// Returns the probability that a request is for an earlier object. It is higher than the intended share of hits,
    /// because only 80% of the objects are storable and, in PolyMix-3, only 95% of the requests can be hits.
    fn recurrence(&self) -> f64 {
        match self.version {
            PolyMixVersion::Three => self.hits_share / (0.80 * 0.95),
            PolyMixVersion::Four => self.hits_share / 0.80,
        }
    }

    /// Draws an object of the working set for a repeated request. One draw in ten is from the hottest 1%. In PolyMix-4,
    /// 90% of the draws return the shortest of three candidates, which makes the byte hit ratio lower than the hit
    /// ratio.
    fn revisited(&self, random: &mut Random, at: usize) -> u64 {
        let share = DIRECT[at].1 / direct_total() / Self::requests_per_arrival();
        let window = ((self.working_set as f64 * share) as u64).clamp(1, self.made[at]);
        let oldest = self.made[at] - window;
        let hot = (window / 100).max(1);
        let draw = |random: &mut Random| {
            oldest + if random.happens(HOT_REQUESTS) { random.below(hot) } else { random.below(window) }
        };
        let first = draw(random);
        if self.version == PolyMixVersion::Three || !random.happens(DISCRIMINATION) {
            return first;
        }
        let candidates = [first, draw(random), draw(random)];
        let len = |number: &u64| PolyMixObject { class: DIRECT[at].0, number: *number }.nature().len_bytes;
        candidates.into_iter().min_by_key(len).unwrap_or(first)
    }

    /// Draws the kind of a request for `object`, and whether its client closes the connection early.
    fn request(&self, random: &mut Random, object: PolyMixObject, is_revisit: bool, specials: f64) -> PolyMixRequest {
        let has_methods = self.version == PolyMixVersion::Four;
        let goes_away = random.happens(ABORTS * specials) && has_methods;
        let drawn = random.share() / specials.max(f64::MIN_POSITIVE);
        let takes_methods = has_methods && object.class != PolyMixClass::Image;
        let kind = match drawn {
            // Special kinds are for objects requested before; methods are for objects requested directly.
            0.0..0.05 if is_revisit => RequestKind::ImsOld,
            0.05..0.15 if is_revisit => RequestKind::ImsNew,
            0.15..0.20 if is_revisit => RequestKind::Reload,
            0.20..0.215 if takes_methods => RequestKind::Post(random.below(POST_BYTES_MAX)),
            0.215..0.216 if takes_methods => RequestKind::Head,
            _ => RequestKind::Basic,
        };
        PolyMixRequest { object, kind, goes_away }
    }
}

impl PolyMixRequests {
    pub(super) fn new(version: PolyMixVersion, seed: u64, disk_bytes: u64) -> Self {
        let objects = disk_bytes as f64 * WORKING_SET_SHARE / MEAN_BYTES;
        let polymix = PolyMix::new(version, objects.max(OBJECTS_MIN) as u64);
        Self { random: Random::new(seed), polymix, pending: Vec::new(), client: 0, group: 0 }
    }

    pub(super) fn draw(&mut self) -> WorkloadRequest {
        let PolyMixRequest { object, .. } = match self.pending.pop() {
            Some(request) => request,
            None => {
                let (first, embedded) = self.polymix.arrival(&mut self.random, 1.0, 0.0);
                self.pending.extend(embedded.into_iter().rev());
                self.client = self.random.below(ROBOTS);
                self.group = key(first.object);
                first
            }
        };
        let PolyMixNature { len_bytes, is_storable, .. } = object.nature();
        let site = mix(self.group) % SERVERS;
        let request = Request { time_ms: 0, key: key(object), size_bytes: len_bytes, site, client: self.client };
        WorkloadRequest { request, is_storable, group: self.group }
    }
}

/// Returns one number that stands for class and number of an object. It is never 0, because 0 means no group.
fn key(object: PolyMixObject) -> u64 {
    object.number << 3 | (object.class as u64 + 1)
}

/// The classes of objects that are requested directly, each with its share of all requests.
const DIRECT: [(PolyMixClass, f64); 3] =
    [(PolyMixClass::Html, 0.15), (PolyMixClass::Download, 0.005), (PolyMixClass::Other, 0.195)];

fn direct_total() -> f64 {
    DIRECT.iter().map(|(_, share)| share).sum()
}

/// Maximum number of images on a page. The number follows Zipf's law.
const IMAGES_MAX: u64 = 13;
const HOT_REQUESTS: f64 = 0.1;
const DISCRIMINATION: f64 = 0.9;
const ABORTS: f64 = 0.001;
const POST_BYTES_MAX: u64 = 8 << 10;
const PAGE_SALT: u64 = 0x5041_4745;
const LEN_BYTES_MIN: u64 = 128;
const LEN_BYTES_MAX: u64 = 4 << 30;
const CYCLE_S_MIN: u64 = 3600;
/// Share of requests that are hits in the benchmark, for a cache of unlimited size.
const HITS_SHARE: f64 = 0.55;
/// Mean length of a response in bytes, over all classes.
const MEAN_BYTES: f64 = 10_854.0;
/// Bytes of the working set, as a share of the disk.
const WORKING_SET_SHARE: f64 = 0.8;
const OBJECTS_MIN: f64 = 1000.0;
const ROBOTS: u64 = 700;
const SERVERS: u64 = 570;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Guards against caches, simulated and real, that are measured with another load than the benchmark's. In
    /// PolyMix-4, 80% of the objects are storable, a response has 10.6 KB on average, and a cache of unlimited size has
    /// 55% hits.
    #[test]
    fn the_mix_is_the_benchmarks() {
        for version in [PolyMixVersion::Three, PolyMixVersion::Four] {
            let mut requests = PolyMixRequests::new(version, 3, 1 << 30);
            let mut seen = HashSet::new();
            let mut storable = 0_u32;
            let mut hits = 0_u32;
            let mut bytes = 0_u64;
            let count = 300_000;
            for _ in 0..count {
                let WorkloadRequest { request, is_storable, .. } = requests.draw();
                storable += u32::from(is_storable);
                hits += u32::from(is_storable && !seen.insert(request.key));
                bytes += request.size_bytes;
            }
            let share = |part: u32| f64::from(part) / f64::from(count);
            let mean = bytes as f64 / f64::from(count) / 1024.0;
            println!("{version:?}: {:.3} storable, {:.3} hits, {mean:.2} KB", share(storable), share(hits));
            assert!((share(storable) - 0.80).abs() < 0.01);
            let offered = requests.polymix.recurrence() * 0.80;
            assert!((share(hits) - offered).abs() < 0.03, "{}", share(hits));
            assert!((mean / 10.6 - 1.0).abs() < 0.25, "{mean}");
        }
    }

    /// Guards against a workload that is called PolyMix and is not.
    #[test]
    fn lengths_and_storable_shares_are_polymix() {
        for (class, kilobytes, storable) in [
            (PolyMixClass::Image, 4.5, 0.8),
            (PolyMixClass::Html, 8.5, 0.9),
            (PolyMixClass::Download, 300.0, 0.95),
            (PolyMixClass::Other, 25.0, 0.72),
        ] {
            let natures: Vec<_> = (0..50_000).map(|number| PolyMixObject { class, number }.nature()).collect();
            let mean = natures.iter().map(|nature| nature.len_bytes as f64).sum::<f64>() / 50_000.0 / 1024.0;
            assert!((mean / kilobytes - 1.0).abs() < 0.05, "{class:?}: {mean}");
            let share = natures.iter().filter(|nature| nature.is_storable).count() as f64 / 50_000.0;
            assert!((share - storable).abs() < 0.01, "{class:?}: {share}");
        }
    }
}
