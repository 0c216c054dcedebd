//! Sums of the exchange counters.
//!
//! Owns: the list of counters that are kept, and their names in the file. Invariant: a name that is unknown, because
//! another version wrote it, is ignored. A missing name counts as 0.

use std::{array, collections::BTreeMap};

use serde::{Deserialize, Serialize};

use super::SeriesPoint;
use crate::figures::{
    metrics::ProxyStats,
    outcome::{MissReason, Outcome},
};

/// The sums of all workers' exchange counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, u64>", into = "BTreeMap<String, u64>")]
pub(crate) struct ExchangeSums([u64; COUNT]);

impl ExchangeSums {
    pub(crate) fn of(stats: &ProxyStats) -> Self {
        let bytes = [stats.client_bytes, stats.origin_bytes, stats.saved_bytes];
        let mut counts = stats.requests.iter().chain(&stats.misses).chain(&bytes);
        Self(array::from_fn(|_| *counts.next().expect("these are all counts")))
    }

    /// Returns the counts that were added since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self(array::from_fn(|at| self.0[at].saturating_sub(before.0[at])))
    }

    pub(crate) fn add(&mut self, added: &Self) {
        self.0.iter_mut().zip(added.0).for_each(|(total, count)| *total = total.saturating_add(count));
    }

    pub(crate) fn outcome(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize]
    }

    pub(crate) fn missed(&self, reason: MissReason) -> u64 {
        self.0[MISSES + reason.index()]
    }

    pub(crate) fn requests(&self) -> u64 {
        self.count(|_| true)
    }

    pub(crate) fn hits(&self) -> u64 {
        self.count(Outcome::is_hit)
    }

    pub(crate) fn misses(&self) -> u64 {
        self.count(Outcome::is_miss)
    }

    pub(crate) fn client_bytes(&self) -> u64 {
        self.0[BYTES]
    }

    pub(crate) fn origin_bytes(&self) -> u64 {
        self.0[BYTES + 1]
    }

    /// Returns the number of body bytes that were sent from the cache, and that no origin had to send.
    pub(crate) fn hit_bytes(&self) -> u64 {
        self.0[BYTES + 2]
    }

    /// Returns the sums as a point of a series.
    pub(crate) fn point(&self) -> SeriesPoint {
        let hits = self.hits();
        let misses = self.misses();
        SeriesPoint {
            hits,
            misses,
            others: self.requests() - hits - misses,
            client_bytes: self.client_bytes(),
            origin_bytes: self.origin_bytes(),
            hit_bytes: self.hit_bytes(),
        }
    }

    fn count(&self, which: impl Fn(Outcome) -> bool) -> u64 {
        let counts = Outcome::ALL.into_iter().filter(|outcome| which(*outcome)).map(|outcome| self.outcome(outcome));
        counts.fold(0, u64::saturating_add)
    }
}

/// Returns the name of each number in the file, in the order of the numbers.
fn names() -> impl Iterator<Item = String> {
    let outcomes = Outcome::ALL.into_iter().map(|outcome| outcome.squid_code().to_owned());
    let misses = MissReason::ALL.into_iter().map(|reason| format!("miss {}", reason.token()));
    outcomes.chain(misses).chain(BYTE_NAMES.map(str::to_owned))
}

impl From<BTreeMap<String, u64>> for ExchangeSums {
    fn from(by_name: BTreeMap<String, u64>) -> Self {
        let mut sums = Self::default();
        for (total, name) in sums.0.iter_mut().zip(names()) {
            *total = by_name.get(&name).copied().unwrap_or(0);
        }
        sums
    }
}

impl From<ExchangeSums> for BTreeMap<String, u64> {
    fn from(sums: ExchangeSums) -> Self {
        names().zip(sums.0).filter(|(_, count)| *count > 0).collect()
    }
}

impl Default for ExchangeSums {
    fn default() -> Self {
        Self([0; COUNT])
    }
}

const MISSES: usize = Outcome::ALL.len();
const BYTES: usize = MISSES + MissReason::ALL.len();
const BYTE_NAMES: [&str; 3] = ["client bytes", "origin bytes", "hit bytes"];
const COUNT: usize = BYTES + BYTE_NAMES.len();
