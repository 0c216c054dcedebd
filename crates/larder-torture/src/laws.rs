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
use std::fmt;

/// A broken law, with the shortest schedule that was found to break it.
#[derive(Clone, Debug)]
pub struct BrokenLaw {
    /// The law and what broke it.
    pub what: String,
    /// The acts, one per line.
    pub schedule: String,
}

/// Runs the schedule of `plan`, and shortens it if it breaks a law.
///
/// # Errors
/// The law that it broke.
pub fn run(plan: LawPlan) -> Result<LawTally, BrokenLaw> {
    match plan.face {
        Face::Values => judge(plan, values::acts(plan.seed), values::run),
        Face::Responses => judge(plan, responses::acts(plan.seed), responses::run),
    }
}

/// Runs acts, and shortens them if they break a law.
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

impl fmt::Display for BrokenLaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.what, self.schedule.trim_end())
    }
}
