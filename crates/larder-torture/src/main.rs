//! Runs schedules by seed and prints the results; `cargo xtask sim` calls it.
//!
//! Owns: the command line, progress, and the command that repeats a failure. Exit codes: 0 if all kept the law, 1 if
//! one broke it, 2 for wrong usage.

mod law_run;
mod seeds;

use clap::{Parser, ValueEnum};
use larder_store::{EngineRow, Policy};
use larder_torture::{
    Tally, faults,
    faults::Faults,
    laws::Face,
    schedule::{self, SchedulePlan},
};
use seeds::{SeedResults, SeedTrial};
use std::{process::ExitCode, thread};

/// Whole-engine schedules by seed: stores in virtual time on faulty devices, several operations at once.
///
/// Each seed is one schedule of one row under one kind of faults; without --policy, --engine and --faults the seeds go
/// through all of them in turn.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask sim")]
struct Arguments {
    /// The part to test: the store, or the laws of the caches above it (values for the library's cache, responses for
    /// the HTTP cache). Policies, faults and operations can be chosen for store only.
    #[arg(long, value_enum, default_value_t = TrialFace::Store)]
    face: TrialFace,
    /// Number of seeds.
    #[arg(long, default_value_t = 256)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Only this policy row.
    #[arg(long, value_parser = policy)]
    policy: Option<&'static Policy>,
    /// Only the rows of this engine: log, mapped, table, clusters or tiny.
    #[arg(long, conflicts_with = "policy", value_parser = ENGINES)]
    engine: Option<String>,
    /// Only this kind of faults: none, slow, torn, lost, misdirected, flipped, errors, syncs, full, dead, once, all or
    /// panics.
    #[arg(long, value_parser = kind_of_faults)]
    faults: Option<Faults>,
    /// Operations of each schedule.
    #[arg(long, default_value_t = 300)]
    operations: u64,
    /// Schedules run at once; 0 is one per core.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Continue after a broken law, and list all of them at the end.
    #[arg(long)]
    keep_going: bool,
    /// Print everything that happens.
    #[arg(long)]
    tell: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TrialFace {
    Store,
    Values,
    Responses,
}

impl Arguments {
    fn thread_count(&self) -> usize {
        match self.threads {
            0 => thread::available_parallelism().map_or(1, usize::from),
            count => count,
        }
    }
}

fn policy(name: &str) -> Result<&'static Policy, String> {
    let names = || Policy::all().iter().map(|policy| policy.name).collect::<Vec<_>>().join(", ");
    Policy::named(name).ok_or_else(|| format!("the rows are {}", names()))
}

/// Names of the engines, as given to `--engine`.
const ENGINES: [&str; 5] = ["log", "mapped", "table", "clusters", "tiny"];

/// Returns the name of a policy's engine, one of [`ENGINES`].
fn engine_of(policy: &Policy) -> &'static str {
    let engine = policy.engine;
    let matches = [
        matches!(engine, EngineRow::Log(_)),
        matches!(engine, EngineRow::Mapped(_)),
        matches!(engine, EngineRow::Table(_)),
        engine == EngineRow::Clusters,
        engine == EngineRow::Tiny,
    ];
    ENGINES[matches.iter().position(|is_it| *is_it).expect("every engine has a name")]
}

fn kind_of_faults(name: &str) -> Result<Faults, String> {
    let names = || faults::all().iter().map(|faults| faults.name).collect::<Vec<_>>().join(", ");
    faults::named(name).ok_or_else(|| format!("the kinds are {}", names()))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.face {
        TrialFace::Store => store_run(&arguments),
        TrialFace::Values => law_run::run(&arguments, Face::Values),
        TrialFace::Responses => law_run::run(&arguments, Face::Responses),
    }
}

/// Runs the schedules of the store for all seeds, and prints the counts for each policy and kind of faults.
fn store_run(arguments: &Arguments) -> ExitCode {
    let run = StoreRun::new(arguments);
    let tallies = vec![vec![Tally::default(); run.kinds.len()]; run.rows.len()];
    let trial = SeedTrial {
        run: |seed| run.trial(seed),
        failure: |seed, what: &str| run.failure(seed, what),
        summary: |results: &SeedResults<Tallies>| run.summary(results),
    };
    let results = seeds::run(arguments, tallies, trial);
    run.report(&results)
}

/// Counts by policy (outer index) and kind of faults (inner index).
type Tallies = Vec<Vec<Tally>>;

/// The policies and kinds of faults among which the seeds of one command are divided.
struct StoreRun<'a> {
    arguments: &'a Arguments,
    rows: Vec<&'static Policy>,
    kinds: Vec<Faults>,
}

impl<'a> StoreRun<'a> {
    fn new(arguments: &'a Arguments) -> Self {
        let is_chosen = |row: &&Policy| match (arguments.policy, &arguments.engine) {
            (Some(policy), _) => row.name == policy.name,
            (None, Some(engine)) => engine_of(row) == engine,
            (None, None) => true,
        };
        let rows: Vec<_> = Policy::all().iter().filter(is_chosen).collect();
        let kinds = arguments.faults.clone().map_or_else(faults::all, |faults| vec![faults]);
        Self { arguments, rows, kinds }
    }

    /// Runs the schedule of `seed`. Returns a function that adds its counts to the total.
    ///
    /// # Errors
    /// The broken law.
    fn trial(&self, seed: u64) -> Result<impl FnOnce(&mut Tallies) + use<>, String> {
        let (row, kind) = self.places(seed);
        let policy = self.rows[row];
        let faults = &self.kinds[kind];
        let tell: Option<fn(&str)> = self.arguments.tell.then_some(|what| println!("{what}"));
        let plan = SchedulePlan { tell, ..SchedulePlan::of_seed(seed, policy, faults, self.arguments.operations) };
        let end = schedule::run(&plan)?;
        Ok(move |tallies: &mut Tallies| tallies[row][kind] += end.tally)
    }

    /// Returns the index of the policy and of the kind of faults that `seed` tests. They depend only on the seed, so
    /// the seed alone repeats the schedule.
    fn places(&self, seed: u64) -> (usize, usize) {
        let row = (seed % self.rows.len() as u64) as usize;
        let kind = (seed / self.rows.len() as u64 % self.kinds.len() as u64) as usize;
        (row, kind)
    }

    fn failure(&self, seed: u64, why: &str) -> String {
        let (row, kind) = self.places(seed);
        let policy = self.rows[row].name;
        let faults = self.kinds[kind].name;
        let operations = self.arguments.operations;
        format!(
            "seed {seed}, row {policy}, faults {faults}: {why}\nrepeat: cargo xtask sim --seed {seed} --seeds 1 \
             --policy {policy} --faults {faults} --operations {operations}"
        )
    }

    fn summary(&self, results: &SeedResults<Tallies>) -> String {
        let total = results.total.iter().flatten().fold(Tally::default(), |mut total, tally| {
            total += *tally;
            total
        });
        let seconds = results.seconds();
        let done = results.done;
        let seeds = self.arguments.seeds;
        format!(
            "{done} of {seeds} seeds in {seconds:.0} s, {:.0} operations/s: {total}",
            total.operations as f64 / seconds
        )
    }

    fn report(&self, results: &SeedResults<Tallies>) -> ExitCode {
        for (row, tallies) in self.rows.iter().zip(&results.total) {
            for (kind, tally) in self.kinds.iter().zip(tallies) {
                println!("{:18} {:12} {tally}", row.name, kind.name);
            }
        }
        println!("{}", self.summary(results));
        let undemanded = self.undemanded(&results.total);
        for failure in results.failures.iter().chain(&undemanded) {
            eprintln!("{failure}");
        }
        if results.failures.is_empty() && undemanded.is_empty() {
            println!(
                "no wrong byte, nothing older than promised, no other key's bytes, nothing lost that had to be there"
            );
            return ExitCode::SUCCESS;
        }
        ExitCode::FAILURE
    }

    /// Describes the policies for which no lookup had to find an entry. Their runs prove nothing, because a store that
    /// loses everything passes them.
    fn undemanded(&self, tallies: &Tallies) -> Vec<String> {
        let is_whole = self.arguments.faults.is_none();
        let totals = self.rows.iter().zip(tallies).filter(|_| is_whole).map(|(row, tallies)| {
            let add = |mut total: Tally, tally: &Tally| {
                total += *tally;
                total
            };
            (row, tallies.iter().fold(Tally::default(), add))
        });
        let is_idle = |total: &Tally| total.lookups >= JUDGED_LOOKUPS && total.required == 0;
        let undemanded = totals.filter(|(_, total)| is_idle(total));
        undemanded
            .map(|(row, total)| format!("row {}: none of {} lookups had to find something", row.name, total.lookups))
            .collect()
    }
}

/// Minimum number of lookups of a policy for which [`StoreRun::undemanded`] judges the policy.
const JUDGED_LOOKUPS: u64 = 20_000;
