//! The requests of PolyMix's robots in order of time: the pages of many robots at once.
//!
//! Owns: when a robot sends each request. A page's images follow its HTML, over four connections, each of which waits
//! for its response. Objects are chosen in [`PolyMix`]. Invariant: times do not fall, and all robots are there: a
//! simulation of a part of the objects leaves requests out instead of robots, so that as many requests of others lie
//! between two of a page as in the benchmark. Cost: a heap of the requests of a few seconds.

use super::{
    HITS_SHARE, MEAN_BYTES, OBJECTS_MIN, PolyMix, PolyMixNature, PolyMixRequest, PolyMixVersion, SERVERS, key,
};
use crate::{Random, Request, WorkloadRequest, random::mix};
use std::{cmp::Reverse, collections::BinaryHeap};

/// The load that PolyMix's robots (simulated clients) together put on a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolyMixLoad {
    /// Version of PolyMix.
    pub version: PolyMixVersion,
    /// Bytes of all objects that are requested again.
    pub working_set_bytes: u64,
    /// Requests per second of all robots together.
    pub requests_per_s: f64,
    /// Share of the requests that would be hits in a cache of unlimited size.
    pub hits_share: f64,
}

/// An endless sequence of the requests of all robots, with their times.
pub struct PolyMixRobots {
    random: Random,
    polymix: PolyMix,
    arrivals_per_s: f64,
    robots: u64,
    next_arrival_s: f64,
    waiting: BinaryHeap<Reverse<TimedRequest>>,
    count: u64,
}

/// A request that a robot (a simulated client) will send at a known time.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct TimedRequest {
    time_us: u64,
    /// Number of the request, which decides the order of requests with the same time.
    count: u64,
    key: u64,
    client: u64,
    group: u64,
    size_bytes: u64,
    is_storable: bool,
}

/// A view of a page, or a request for another object, by one robot.
struct RobotView {
    client: u64,
    group: u64,
    is_revisit: bool,
}

impl PolyMixLoad {
    /// Returns the load of the benchmark at its peak rate. The working set is what a cache stores at this rate during
    /// one plateau, a phase of constant load.
    pub fn of_peak(version: PolyMixVersion, requests_per_s: f64) -> Self {
        let storable_share = match version {
            PolyMixVersion::Three => 0.75,
            PolyMixVersion::Four => 0.80,
        };
        let objects = requests_per_s * NEW_SHARE * storable_share * PLATEAU_S;
        let working_set_bytes = (objects * MEAN_BYTES) as u64;
        Self { version, working_set_bytes, requests_per_s, hits_share: HITS_SHARE }
    }
}

impl PolyMixRobots {
    /// Creates the requests of the robots of `load`.
    pub fn new(load: PolyMixLoad, seed: u64) -> Self {
        let objects = (load.working_set_bytes as f64 / MEAN_BYTES).max(OBJECTS_MIN) as u64;
        Self {
            random: Random::new(seed),
            polymix: PolyMix::new(load.version, objects).offering(load.hits_share),
            arrivals_per_s: load.requests_per_s / PolyMix::requests_per_arrival(),
            robots: (load.requests_per_s / ROBOT_REQUESTS_PER_S).max(1.0) as u64,
            next_arrival_s: 0.0,
            waiting: BinaryHeap::new(),
            count: 0,
        }
    }

    /// Draws the next view of a page or request for another object, and schedules its requests.
    fn arrive(&mut self) {
        let start_s = self.next_arrival_s;
        self.next_arrival_s += self.random.exponential(1.0 / self.arrivals_per_s);
        let made: u64 = self.polymix.made.iter().sum();
        let (first, embedded) = self.polymix.arrival(&mut self.random, 1.0, 0.0);
        let is_revisit = self.polymix.made.iter().sum::<u64>() == made;
        let view = RobotView { client: self.random.below(self.robots), group: key(first.object), is_revisit };
        let mut connections = [self.send(&view, first, start_s); CONNECTIONS];
        for request in embedded {
            let free = connections.iter_mut().min_by(|a, b| a.total_cmp(b)).expect("there are several");
            *free = self.send(&view, request, *free);
        }
    }

    /// Schedules a request at `time_s`. Returns the time of its response in seconds.
    fn send(&mut self, view: &RobotView, request: PolyMixRequest, time_s: f64) -> f64 {
        let PolyMixNature { len_bytes, is_storable, .. } = request.object.nature();
        self.count += 1;
        self.waiting.push(Reverse(TimedRequest {
            time_us: (time_s * 1e6) as u64,
            count: self.count,
            key: key(request.object),
            client: view.client,
            group: view.group,
            size_bytes: len_bytes,
            is_storable,
        }));
        let think_s = (THINK_S.0 + THINK_S.1 * self.random.normal()).max(0.0);
        time_s + if view.is_revisit && is_storable { HIT_S } else { think_s }
    }
}

impl Iterator for PolyMixRobots {
    type Item = WorkloadRequest;

    fn next(&mut self) -> Option<WorkloadRequest> {
        let is_next = |waiting: &BinaryHeap<Reverse<TimedRequest>>, arrival_s: f64| {
            waiting.peek().is_some_and(|Reverse(first)| first.time_us as f64 <= arrival_s * 1e6)
        };
        while !is_next(&self.waiting, self.next_arrival_s) {
            self.arrive();
        }
        let Reverse(TimedRequest { time_us, key, client, group, size_bytes, is_storable, .. }) = self.waiting.pop()?;
        let site = mix(group) % SERVERS;
        let request = Request { time_ms: time_us / 1000, key, size_bytes, site, client };
        Some(WorkloadRequest { request, is_storable, group })
    }
}

/// Share of all requests that are for objects requested for the first time.
const NEW_SHARE: f64 = 0.45;
/// Length of a plateau, a phase of constant load, in seconds.
const PLATEAU_S: f64 = 4.0 * 3600.0;
/// Number of connections that a robot uses for a page.
const CONNECTIONS: usize = 4;
/// Requests per second that one robot sends.
const ROBOT_REQUESTS_PER_S: f64 = 0.4;
/// Mean time that an origin waits before it responds, in seconds, and its standard deviation.
const THINK_S: (f64, f64) = (2.5, 1.0);
/// Assumed time of a hit in seconds: between that of an idle cache and that of a cache at its limit.
const HIT_S: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    const LOAD: PolyMixLoad = PolyMixLoad {
        version: PolyMixVersion::Four,
        working_set_bytes: 1 << 30,
        requests_per_s: 200.0,
        hits_share: HITS_SHARE,
    };

    /// Guards against results that are too good, because the objects of a page come one after the other and are stored
    /// together.
    #[test]
    fn requests_of_other_robots_lie_between_those_of_a_page() {
        let requests: Vec<_> = PolyMixRobots::new(LOAD, 3).take(100_000).collect();
        assert!(requests.is_sorted_by_key(|asked| asked.request.time_ms));
        let mut last: HashMap<u64, usize> = HashMap::new();
        let mut gaps = 0;
        let mut count = 0;
        for (at, asked) in requests.iter().enumerate() {
            if let Some(before) = last.insert(asked.group, at).filter(|before| at - before < 5000) {
                (gaps, count) = (gaps + at - before, count + 1);
            }
        }
        assert!(count > 20_000 && gaps / count > 20, "{gaps} requests between {count} pairs");
    }

    /// Guards against a load other than the requested one.
    #[test]
    fn robots_send_as_many_requests_as_the_load_says() {
        let mut seen = HashSet::new();
        let mut hits = 0;
        let mut last_ms = 0;
        for WorkloadRequest { request, is_storable, .. } in PolyMixRobots::new(LOAD, 5).take(200_000) {
            hits += u32::from(is_storable && !seen.insert(request.key));
            last_ms = request.time_ms;
        }
        let rate = 200_000.0 / (last_ms as f64 / 1e3);
        assert!((rate / LOAD.requests_per_s - 1.0).abs() < 0.05, "{rate} requests/s");
        let share = f64::from(hits) / 200_000.0;
        assert!((share - 0.55).abs() < 0.03, "{share} are for objects requested before");
    }
}
