//! PolyMix-3 and PolyMix-4 of Web Polygraph, as far as a cache's disk sees them: what is asked for, not when.
//!
//! Robots ask for pages with their images, downloads and other objects; what was asked for before is asked for again
//! with a given probability, from a working set that stops growing. Left out: request types besides plain ones, aborts,
//! expiry, think times and phases, which move load and not objects. Owns: which objects there are, by number only; kind,
//! size and storability follow from the number. Source: the workload files of Polygraph 4.9.0 (SYSTEMS.md section 6).

use super::Asked;
use crate::{Random, Request, random::Zipf};

/// Mean bytes of a reply over the mix.
const MEAN_BYTES: u64 = 10_854;
/// The working set is frozen when it has so much of the disk's bytes.
const WORKING_SET_SHARE: f64 = 0.8;
/// The part of the working set that is asked for more, and how much more.
const HOT_SHARE: f64 = 0.01;
const HOT_REQUESTS: f64 = 0.10;
/// PolyMix-4: of two candidates the smaller one is asked for again.
const SMALLER_SHARE: f64 = 0.90;
const EMBEDDED_MAX: u64 = 13;
/// A page's images have the numbers behind its own.
const NUMBERS_A_PAGE: u64 = 16;
const ROBOTS: u64 = 700;
const SERVERS: u64 = 570;

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolyMixVersion {
    /// PolyMix-3.
    Three,
    /// PolyMix-4.
    Four,
}

/// An endless stream of requests.
pub struct PolyMix {
    version: PolyMixVersion,
    random: Random,
    embedded: Zipf,
    /// What was asked for directly, and may be again.
    standing: Vec<Object>,
    standing_max: usize,
    next_number: u64,
    /// Images of the page that was asked for, last first.
    pending: Vec<Object>,
    client: u64,
    group: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Image,
    Page,
    Download,
    Other,
}

#[derive(Clone, Copy, Debug)]
struct Object {
    number: u64,
    kind: Kind,
}

impl Kind {
    /// Share of replies that are storable.
    fn storable_share(self) -> f64 {
        match self {
            Self::Image => 0.80,
            Self::Page => 0.90,
            Self::Download => 0.95,
            Self::Other => 0.72,
        }
    }
}

impl Object {
    fn size_bytes(self) -> u64 {
        let mut random = Random::new(self.number ^ 0x512E);
        let size = match self.kind {
            Kind::Image => random.exponential(4.5 * 1024.0),
            Kind::Page => random.exponential(8.5 * 1024.0),
            Kind::Download => random.lognormal_by_mean(300.0 * 1024.0, 300.0 * 1024.0),
            Kind::Other => random.lognormal_by_mean(25.0 * 1024.0, 10.0 * 1024.0),
        };
        size.clamp(64.0, 16e6) as u64
    }
}

impl PolyMix {
    /// Requests for a cache with a disk of `disk_bytes`.
    pub fn new(version: PolyMixVersion, seed: u64, disk_bytes: u64) -> Self {
        let objects = disk_bytes as f64 * WORKING_SET_SHARE / MEAN_BYTES as f64;
        // Of all objects, so many are asked for directly.
        let standing_max = (objects * 0.35).max(1000.0);
        Self {
            version,
            random: Random::new(seed),
            embedded: Zipf::new(EMBEDDED_MAX, 1.0),
            standing: Vec::new(),
            standing_max: standing_max as usize,
            next_number: 0,
            pending: Vec::new(),
            client: 0,
            group: 0,
        }
    }

    /// How often a request is for an object that was asked for before.
    fn recurrence(&self) -> f64 {
        match self.version {
            PolyMixVersion::Three => 0.55 / (0.80 * 0.95),
            PolyMixVersion::Four => 0.55 / 0.80,
        }
    }

    pub(super) fn draw(&mut self) -> Asked {
        if let Some(image) = self.pending.pop() {
            return self.asked(image);
        }
        self.client = self.random.below(ROBOTS);
        // Images come with their pages only: of what is asked for directly, so many are each.
        let place = self.random.share() * 35.0;
        let kind = if place < 15.0 {
            Kind::Page
        } else if place < 15.5 {
            Kind::Download
        } else {
            Kind::Other
        };
        let object = self.object(kind);
        self.group = object.number;
        if kind == Kind::Page {
            // A page that is asked for again has the images it had.
            let count = self.embedded.draw(&mut Random::new(object.number ^ 0xE3BED)) + 1;
            let image = |at| Object { number: object.number + at, kind: Kind::Image };
            self.pending.extend((1..=count).rev().map(image));
        }
        self.asked(object)
    }

    /// An object of a kind, one that was asked for before or a new one.
    fn object(&mut self, kind: Kind) -> Object {
        if self.random.happens(self.recurrence())
            && let Some(object) = self.standing_object(kind)
        {
            return object;
        }
        self.next_number += NUMBERS_A_PAGE;
        let object = Object { number: self.next_number, kind };
        // A frozen working set goes on changing: what is new takes a place.
        if self.standing.len() < self.standing_max {
            self.standing.push(object);
        } else {
            let at = self.random.below(self.standing.len() as u64) as usize;
            self.standing[at] = object;
        }
        object
    }

    /// One of the working set, of this kind if a few looks find one.
    fn standing_object(&mut self, kind: Kind) -> Option<Object> {
        let mut found: Option<Object> = None;
        for _ in 0..64 {
            let object = self.any_standing()?;
            if object.kind != kind {
                continue;
            }
            match found {
                None if self.version == PolyMixVersion::Three || !self.random.happens(SMALLER_SHARE) => {
                    return Some(object);
                }
                None => found = Some(object),
                Some(other) if object.size_bytes() < other.size_bytes() => return Some(object),
                Some(other) => return Some(other),
            }
        }
        found
    }

    fn any_standing(&mut self) -> Option<Object> {
        let count = self.standing.len() as u64;
        if count == 0 {
            return None;
        }
        let hot = ((count as f64 * HOT_SHARE) as u64).max(1);
        let reach = if self.random.happens(HOT_REQUESTS) { hot } else { count };
        Some(self.standing[self.random.below(reach) as usize])
    }

    fn asked(&self, object: Object) -> Asked {
        let Object { number, kind } = object;
        let (site, client) = (number / NUMBERS_A_PAGE % SERVERS, self.client);
        let request = Request { time_ms: 0, key: number, size_bytes: object.size_bytes(), site, client };
        let is_storable = Random::new(number ^ 0x0C0FFEE).happens(kind.storable_share());
        Asked { request, is_storable, group: self.group }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// At stake: simulated caches under another load than the benchmark's. SYSTEMS.md section 6: 80% storable, mean reply
    /// 10.6 KB, document hit ratio 55% of an endless cache.
    #[test]
    fn the_mix_is_the_benchmarks() {
        for version in [PolyMixVersion::Three, PolyMixVersion::Four] {
            let mut requests = PolyMix::new(version, 3, 1 << 30);
            let mut seen = HashSet::new();
            let (mut storable, mut hits, mut bytes) = (0_u32, 0_u32, 0_u64);
            let count = 300_000;
            for _ in 0..count {
                let Asked { request, is_storable, .. } = requests.draw();
                storable += u32::from(is_storable);
                hits += u32::from(is_storable && !seen.insert(request.key));
                bytes += request.size_bytes;
            }
            let share = |part: u32| f64::from(part) / f64::from(count);
            let mean = bytes as f64 / f64::from(count) / 1024.0;
            println!("{version:?}: {:.3} storable, {:.3} hits, {mean:.2} KB", share(storable), share(hits));
            assert!((share(storable) - 0.80).abs() < 0.01);
            let offered = requests.recurrence() * 0.80;
            assert!((share(hits) - offered).abs() < 0.03, "{}", share(hits));
            assert!((mean / 10.6 - 1.0).abs() < 0.25, "{mean}");
        }
    }
}
