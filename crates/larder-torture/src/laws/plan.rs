//! The seed of a schedule, and the counts of what happened in it.

use larder_store::SplitMix64;
use std::{fmt, ops::AddAssign};

/// The public API that is tested. Each such API is called a face.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// Caches of values: `larder_cache::Cache`.
    Values,
    /// Caches of HTTP responses: `larder_tower`.
    Responses,
}

/// A random test of a cache: a number of concurrent calls, all chosen by a seed.
#[derive(Clone, Copy, Debug)]
pub struct LawPlan {
    /// The API under test.
    pub face: Face,
    /// The seed, from which the whole schedule follows.
    pub seed: u64,
    /// Function that gets a line of text for every event, if set.
    pub tell: Option<fn(&str)>,
}

/// Counts of what happened in one or more schedules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LawTally {
    /// Number of acts, which are calls of the cache, changes of the origin, waits and kills.
    pub acts: u64,
    /// Number of acts that returned bytes.
    pub answers: u64,
    /// Number of acts that returned bytes from the cache.
    pub hits: u64,
    /// Number of times that the cache called the origin or ran a fetch.
    pub fetches: u64,
    /// Number of lookups that had to find a value.
    pub required: u64,
    /// Number of removals that the cache acknowledged.
    pub purges: u64,
    /// Number of times that the cache was killed.
    pub kills: u64,
}

/// Returns true with a probability of one in `count`.
pub(super) fn one_in(random: &mut SplitMix64, count: u64) -> bool {
    random.below(count) == 0
}

impl AddAssign for LawTally {
    fn add_assign(&mut self, other: Self) {
        self.acts += other.acts;
        self.answers += other.answers;
        self.hits += other.hits;
        self.fetches += other.fetches;
        self.required += other.required;
        self.purges += other.purges;
        self.kills += other.kills;
    }
}

impl fmt::Display for LawTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acts, answers, hits, fetches, required, purges, kills } = self;
        write!(
            f,
            "{acts} acts, {answers} answers, {hits} hits, {fetches} fetches, {required} required, {purges} purges, \
             {kills} kills"
        )
    }
}
