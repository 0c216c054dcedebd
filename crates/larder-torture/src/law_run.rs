//! Runs the laws of a face by seed, and prints the broken ones with their shortened schedules.

use crate::{
    Arguments,
    seeds::{self, SeedResults, SeedTrial},
};
use larder_torture::laws::{self, LawPlan, LawTally};
use std::process::ExitCode;

/// Runs the seeds of the face of values.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let tell: Option<fn(&str)> = arguments.tell.then_some(|what| println!("{what}"));
    let run = |seed| match laws::run(LawPlan { seed, tell }) {
        Ok(tally) => Ok(move |total: &mut LawTally| *total += tally),
        Err(broken) => Err(broken.to_string()),
    };
    let failure = |seed, what: &str| {
        format!("seed {seed}, face values: {what}\nrepeat: cargo xtask sim --face values --seed {seed} --seeds 1")
    };
    let summary = |results: &SeedResults<LawTally>| {
        let SeedResults { total, done, .. } = results;
        let seconds = results.seconds();
        let seeds = arguments.seeds;
        format!("{done} of {seeds} seeds in {seconds:.0} s, {:.0} seeds/s: {total}", *done as f64 / seconds)
    };
    let results = seeds::run(arguments, LawTally::default(), SeedTrial { run, failure, summary });
    println!("{}, {} broken laws", summary(&results), results.failures.len());
    results.failures.iter().for_each(|failure| eprintln!("{failure}"));
    if results.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
