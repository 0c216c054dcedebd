//! Level 2 of the laws: whole caches by seed, through their public API, above a device that fails.
//!
//! Owns: the run of a seed, and the shortening of a schedule that broke a law. The model states what the documentation
//! of the caches promises, and nothing of their insides. One thread runs everything: the actors in an
//! order by seed, the tasks of the caches, and the device, in virtual time. Each seed is killed and opened again once.

mod chronicle;
mod plan;
mod responses;
mod stage;
mod theatre;
mod values;

pub use plan::{Face, LawPlan, LawTally};
use std::{
    fmt,
    time::{Duration, Instant},
};

/// A broken law, and the shortest schedule found that breaks it.
#[derive(Clone, Debug)]
pub struct BrokenLaw {
    /// Number of the law, and what broke it.
    pub what: String,
    /// The acts of the schedule, one per line.
    pub schedule: String,
}

/// Runs the schedule of `plan`. If it breaks a law, searches for a shorter schedule that breaks the same law.
///
/// # Errors
/// The broken law.
pub fn run(plan: LawPlan) -> Result<LawTally, BrokenLaw> {
    match plan.face {
        Face::Values => judge(plan, values::acts(plan.seed), values::run),
        Face::Responses => judge(plan, responses::acts(plan.seed), responses::run),
    }
}

/// Runs a sequence of acts. If it breaks a law, leaves out acts for as long as the rest still breaks that law.
///
/// # Errors
/// The broken law.
fn judge<A: Clone + fmt::Debug>(
    plan: LawPlan,
    acts: Vec<A>,
    run: impl Fn(LawPlan, &[A]) -> Result<LawTally, String>,
) -> Result<LawTally, BrokenLaw> {
    let broken = match run(plan, &acts) {
        Ok(tally) => return Ok(tally),
        Err(broken) => broken,
    };
    let quiet = LawPlan { tell: None, ..plan };
    let (acts, what) = shorten(acts, broken, |acts| run(quiet, acts).err());
    let schedule = acts.iter().map(|act| format!("  {act:?}\n")).collect();
    Err(BrokenLaw { what, schedule })
}

/// Leaves out acts as long as the others still break the same law. Tries to leave out halves first, then ever smaller
/// parts, down to single acts.
fn shorten<A: Clone>(acts: Vec<A>, what: String, fails: impl Fn(&[A]) -> Option<String>) -> (Vec<A>, String) {
    let law = |what: &str| what.split(':').next().map(str::to_owned);
    let mut shortest = acts;
    let mut told = what;
    let mut part = shortest.len().div_ceil(2);
    let mut tries = 0;
    let started = Instant::now();
    while part > 0 {
        let mut from = 0;
        while from < shortest.len() && tries < SHORTEN_TRIES && started.elapsed() < SHORTEN_TIME {
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

/// Maximum number of schedules that [`shorten`] runs.
const SHORTEN_TRIES: u32 = 400;
/// Time after which [`shorten`] runs no more schedules. One that leaves something behind waits for it for long.
const SHORTEN_TIME: Duration = Duration::from_secs(30);

impl fmt::Display for BrokenLaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.what, self.schedule.trim_end())
    }
}
