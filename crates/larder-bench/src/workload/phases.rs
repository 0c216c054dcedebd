//! The course of a run: the rise and fall of load, revisits and special requests.
//!
//! Owns: PolyMix-4's phases, scaled to the given time, and the single phase of the other workloads. Invariant: pure;
//! the lengths add up to the time of the run, except for the filling phase, which may last longer.

use super::Workload;
use std::time::Duration;

/// A stretch of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// The name.
    pub name: &'static str,
    /// The duration.
    pub time: Duration,
    /// Load at its start and its end, as a share of the maximum.
    pub load: (f64, f64),
    /// Share of the full rate of revisits, at its start and its end.
    pub recurrence: (f64, f64),
    /// Share of the full rate of special requests, at its start and its end.
    pub specials: (f64, f64),
    /// Whether results are taken from it.
    pub counts: bool,
    /// Whether the phase lasts until the cache was filled twice, provided that a size was given.
    pub fills: bool,
}

impl Phase {
    /// Returns the phases of a run of `workload` that takes `time`.
    pub fn of(workload: Workload, time: Duration) -> Vec<Self> {
        if workload != Workload::PolyMix4 {
            let (load, recurrence) = ((1.0, 1.0), (1.0, 1.0));
            let specials = recurrence;
            return vec![Self { name: "run", time, load, recurrence, specials, counts: true, fills: false }];
        }
        let total: f64 = POLYMIX_4.iter().map(|phase| phase.1).sum();
        let phases = POLYMIX_4.iter().map(|&(name, minutes, load)| Self {
            name,
            time: time.mul_f64(minutes / total),
            load,
            recurrence: match name {
                "framp" | "fill" => (RECURRENCE_AT_FIRST, RECURRENCE_AT_FIRST),
                "fexit" => (RECURRENCE_AT_FIRST, 1.0),
                _ => (1.0, 1.0),
            },
            specials: match name {
                "framp" | "fill" => (SPECIALS_AT_FIRST, SPECIALS_AT_FIRST),
                "fexit" => (SPECIALS_AT_FIRST, 1.0),
                _ => (1.0, 1.0),
            },
            counts: name.starts_with("top"),
            fills: name == "fill",
        });
        phases.collect()
    }

    /// Returns the value between a start and an end value at a share of the phase's time.
    pub(crate) fn at(pair: (f64, f64), share: f64) -> f64 {
        pair.0 + (pair.1 - pair.0) * share.clamp(0.0, 1.0)
    }
}

/// Name, minutes in the original, load at start and end. The original fill phase has no fixed length: it lasts until
/// the cache was filled twice.
const POLYMIX_4: [(&str, f64, (f64, f64)); 10] = [
    ("framp", 20.0, (0.05, 1.0)),
    ("fill", 120.0, (1.0, 1.0)),
    ("fexit", 20.0, (1.0, 0.05)),
    ("inc1", 20.0, (0.05, 1.0)),
    ("top1", 240.0, (1.0, 1.0)),
    ("dec1", 20.0, (1.0, 0.1)),
    ("idle", 20.0, (0.1, 0.1)),
    ("inc2", 20.0, (0.1, 1.0)),
    ("top2", 240.0, (1.0, 1.0)),
    ("dec2", 20.0, (1.0, 0.05)),
];
const RECURRENCE_AT_FIRST: f64 = 0.05 / 0.55;
const SPECIALS_AT_FIRST: f64 = 0.1;
