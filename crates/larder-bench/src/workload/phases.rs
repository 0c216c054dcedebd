//! The course of a run: the rise and fall of load, revisits and special requests.
//!
//! Owns: the phases of PolyMix-3 and PolyMix-4, scaled to the given time, and the single phase of the other workloads.
//! Invariant: pure; the lengths add up to the time of the run, except for the filling phase, which may last longer.

use super::Workload;
use larder_workload::PolyMixVersion;
use std::time::Duration;

/// A part of a run, in which load and kinds of requests change steadily.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// The name of the phase.
    pub name: &'static str,
    /// The duration of the phase.
    pub time: Duration,
    /// Load at the start and at the end of the phase, as shares of the maximum load.
    pub load: (f64, f64),
    /// Rate of revisits at the start and at the end of the phase, as shares of the full rate.
    pub recurrence: (f64, f64),
    /// Rate of special requests at the start and at the end of the phase, as shares of the full rate.
    pub specials: (f64, f64),
    /// Whether the results of the report include this phase.
    pub counts: bool,
    /// Whether the phase lasts until the cache has been filled, if the size of the fill is given.
    pub fills: bool,
}

impl Phase {
    /// Returns the phases of a run of `workload` that lasts `time`.
    pub fn of(workload: Workload, time: Duration) -> Vec<Self> {
        let Some(version) = workload.polymix() else {
            let load = (1.0, 1.0);
            let recurrence = (1.0, 1.0);
            let specials = recurrence;
            return vec![Self { name: "run", time, load, recurrence, specials, counts: true, fills: false }];
        };
        let published: &[PublishedPhase] = match version {
            PolyMixVersion::Three => &POLYMIX_3,
            PolyMixVersion::Four => &POLYMIX_4,
        };
        let total: f64 = published.iter().map(|phase| phase.minutes).sum();
        let phases = published.iter().map(|&PublishedPhase { name, minutes, load }| Self {
            name,
            time: time.mul_f64(minutes / total),
            load,
            recurrence: match name {
                "warm" | "framp" | "fill" => (RECURRENCE_AT_FIRST, RECURRENCE_AT_FIRST),
                "fexit" => (RECURRENCE_AT_FIRST, 1.0),
                _ => (1.0, 1.0),
            },
            specials: match name {
                "warm" | "framp" | "fill" => (SPECIALS_AT_FIRST, SPECIALS_AT_FIRST),
                "fexit" => (SPECIALS_AT_FIRST, 1.0),
                _ => (1.0, 1.0),
            },
            counts: name.starts_with("top"),
            fills: name == "fill",
        });
        phases.collect()
    }

    /// Interpolates between the value at the start and at the end of a phase. `share` is the elapsed part of the phase,
    /// from 0 to 1.
    pub(crate) fn at(pair: (f64, f64), share: f64) -> f64 {
        pair.0 + (pair.1 - pair.0) * share.clamp(0.0, 1.0)
    }
}

/// A phase as PolyMix's authors published it. In the original, the phase `fill` has no fixed length: it lasts until the
/// cache was filled twice.
struct PublishedPhase {
    name: &'static str,
    minutes: f64,
    /// Load at the start and at the end of the phase, as shares of the maximum load.
    load: (f64, f64),
}

impl PublishedPhase {
    const fn new(name: &'static str, minutes: f64, load: (f64, f64)) -> Self {
        Self { name, minutes, load }
    }
}

const POLYMIX_3: [PublishedPhase; 12] = [
    PublishedPhase::new("warm", 3.0, (0.1, 0.1)),
    PublishedPhase::new("framp", 30.0, (0.1, 1.0)),
    PublishedPhase::new("fill", 120.0, (1.0, 1.0)),
    PublishedPhase::new("fexit", 30.0, (1.0, 0.1)),
    PublishedPhase::new("inc1", 30.0, (0.1, 1.0)),
    PublishedPhase::new("top1", 240.0, (1.0, 1.0)),
    PublishedPhase::new("dec1", 30.0, (1.0, 0.1)),
    PublishedPhase::new("idle", 30.0, (0.1, 0.1)),
    PublishedPhase::new("inc2", 30.0, (0.1, 1.0)),
    PublishedPhase::new("top2", 240.0, (1.0, 1.0)),
    PublishedPhase::new("dec2", 30.0, (1.0, 0.1)),
    PublishedPhase::new("cool", 1.0, (0.1, 0.1)),
];
/// The published phases of PolyMix-4. Its lowest load is that of a single robot, because PolyMix-4 lowers the number of
/// robots and not their rates.
const POLYMIX_4: [PublishedPhase; 10] = [
    PublishedPhase::new("framp", 20.0, (0.05, 1.0)),
    PublishedPhase::new("fill", 120.0, (1.0, 1.0)),
    PublishedPhase::new("fexit", 20.0, (1.0, 0.05)),
    PublishedPhase::new("inc1", 20.0, (0.05, 1.0)),
    PublishedPhase::new("top1", 240.0, (1.0, 1.0)),
    PublishedPhase::new("dec1", 20.0, (1.0, 0.1)),
    PublishedPhase::new("idle", 20.0, (0.1, 0.1)),
    PublishedPhase::new("inc2", 20.0, (0.1, 1.0)),
    PublishedPhase::new("top2", 240.0, (1.0, 1.0)),
    PublishedPhase::new("dec2", 20.0, (1.0, 0.05)),
];
const RECURRENCE_AT_FIRST: f64 = 0.05 / 0.55;
const SPECIALS_AT_FIRST: f64 = 0.1;
