//! Runs the laws of a face by seed, and prints the broken ones with their shortened schedules.

use crate::{
    Arguments,
    seeds::{self, SeedResults, SeedTrial},
};
use larder_torture::laws::{self, Face, LawPlan, LawTally};
use std::process::ExitCode;

/// Tests one public API of the cache (`face`) with each seed of the command line, and prints the laws that it broke.
pub(crate) fn run(arguments: &Arguments, face: Face) -> ExitCode {
    let tell: Option<fn(&str)> = arguments.tell.then_some(|what| println!("{what}"));
    let run = |seed| match laws::run(LawPlan { face, seed, tell }) {
        Ok(tally) => Ok(move |total: &mut LawTally| *total += tally),
        Err(broken) => Err(broken.to_string()),
    };
    let name = match face {
        Face::Values => "values",
        Face::Responses => "responses",
    };
    let failure = |seed, what: &str| {
        format!("seed {seed}, face {name}: {what}\nrepeat: cargo xtask sim --face {name} --seed {seed} --seeds 1")
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
