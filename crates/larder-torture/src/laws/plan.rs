//! The seed of a schedule, and the counts of what happened in it.

use larder_store::SplitMix64;
use std::{fmt, ops::AddAssign};

/// The public API on trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// Values: `larder_cache::Cache`.
    Values,
    /// Responses: an HTTP cache, `larder_tower`.
    Responses,
}

/// A schedule of actors in front of a cache.
#[derive(Clone, Copy, Debug)]
pub struct LawPlan {
    /// The face on trial.
    pub face: Face,
    /// The seed that determines everything.
    pub seed: u64,
    /// Called for every event, if set.
    pub tell: Option<fn(&str)>,
}

/// Counts of what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LawTally {
    /// Acts of all actors.
    pub acts: u64,
    /// Acts that ended with bytes.
    pub answers: u64,
    /// Answers from what was stored.
    pub hits: u64,
    /// Calls of an origin or a fetch.
    pub fetches: u64,
    /// Lookups that had to find something.
    pub required: u64,
    /// Removals that were acknowledged.
    pub purges: u64,
    /// Kills.
    pub kills: u64,
}

/// Returns whether an event with a chance of one in `count` happens.
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
