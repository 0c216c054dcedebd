//! Level 2 of the laws: whole caches by seed, through their public API, above a device that fails.
//!
//! Owns: the run of a seed, and the shortening of a schedule that broke a law. The model states what the documentation
//! of the caches promises, and nothing of their insides. One thread runs everything: the actors in an
//! order by seed, the tasks of the caches, and the device, in virtual time. Each seed is killed and opened again once.

mod chronicle;
mod model;
mod stage;
mod theatre;
mod values;

use larder_store::SplitMix64;
use std::{fmt, ops::AddAssign};

/// A schedule of actors in front of a cache.
#[derive(Clone, Copy, Debug)]
pub struct LawPlan {
    /// The seed that determines everything.
    pub seed: u64,
    /// Called for every event, if set.
    pub tell: Option<fn(&str)>,
}

/// A broken law, with the shortest schedule that was found to break it.
#[derive(Clone, Debug)]
pub struct BrokenLaw {
    /// The law and what broke it.
    pub what: String,
    /// The acts, one per line.
    pub schedule: String,
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

/// Runs the schedule of `plan`, and shortens it if it breaks a law.
///
/// # Errors
/// The law that it broke.
pub fn run(plan: LawPlan) -> Result<LawTally, BrokenLaw> {
    let acts = values::acts(plan.seed);
    let broken = match values::run(plan, &acts) {
        Ok(tally) => return Ok(tally),
        Err(broken) => broken,
    };
    let quiet = LawPlan { tell: None, ..plan };
    let (acts, what) = shorten(acts, broken, |acts| values::run(quiet, acts).err());
    let schedule = acts.iter().map(|act| format!("  {act:?}\n")).collect();
    Err(BrokenLaw { what, schedule })
}

/// Leaves out acts as long as the rest breaks the same law: first halves, then smaller parts, at last single ones.
fn shorten<A: Clone>(acts: Vec<A>, what: String, fails: impl Fn(&[A]) -> Option<String>) -> (Vec<A>, String) {
    let law = |what: &str| what.split(':').next().map(str::to_owned);
    let mut shortest = acts;
    let mut told = what;
    let mut part = shortest.len().div_ceil(2);
    let mut tries = 0;
    while part > 0 {
        let mut from = 0;
        while from < shortest.len() && tries < SHORTEN_TRIES {
            tries += 1;
            let mut fewer = shortest.clone();
            fewer.drain(from..(from + part).min(shortest.len()));
            match fails(&fewer).filter(|again| law(again) == law(&told)) {
                Some(again) => (shortest, told) = (fewer, again),
                None => from += part,
            }
        }
        part /= 2;
    }
    (shortest, told)
}

/// Most schedules that are tried to shorten one.
const SHORTEN_TRIES: u32 = 400;

/// Returns whether an event with a chance of one in `count` happens.
fn one_in(random: &mut SplitMix64, count: u64) -> bool {
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

impl fmt::Display for BrokenLaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.what, self.schedule.trim_end())
    }
}
