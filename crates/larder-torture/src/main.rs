//! Runs schedules by seed and prints the results; `cargo xtask sim` calls it.
//!
//! Owns: the command line, progress, and the command that repeats a failure. Exit codes: 0 if all kept the law, 1 if
//! one broke it, 2 for wrong usage.

mod law_run;

use clap::Parser;
use larder_device::IgnorePoison;
use larder_store::{EngineRow, Policy};
use larder_torture::{
    Tally, faults,
    faults::Faults,
    schedule::{self, SchedulePlan},
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Whole-engine schedules by seed: stores in virtual time on faulty devices, several operations at once.
///
/// Each seed is one schedule of one row under one kind of faults; without --policy, --engine and --faults the seeds go
/// through all of them in turn.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask sim")]
struct Arguments {
    /// The face on trial: store, or values for the laws of the library's cache above it. Policies, faults and
    /// operations can be chosen for store only.
    #[arg(long, default_value = "store", value_parser = ["store", "values"])]
    face: String,
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

/// The names of the engines.
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
    if arguments.face == "values" {
        return law_run::run(&arguments);
    }
    let run = SeedRun::new(arguments);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..run.arguments.thread_count()).map(|_| scope.spawn(|| run.work())).collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            thread::park_timeout(PROGRESS_INTERVAL);
            run.show_progress();
        }
    });
    run.report()
}

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of progress lines if there is no terminal.
const PRINTED_EVERY: u64 = 60;

/// All schedules of one call.
struct SeedRun {
    arguments: Arguments,
    rows: Vec<&'static Policy>,
    kinds: Vec<Faults>,
    started: Instant,
    next: AtomicU64,
    done: AtomicU64,
    is_over: AtomicBool,
    state: Mutex<RunState>,
}

#[derive(Default)]
struct RunState {
    /// By policy, then by kind of faults.
    tallies: Vec<Vec<Tally>>,
    failures: Vec<String>,
    shown: u64,
}

impl SeedRun {
    fn new(arguments: Arguments) -> Self {
        let is_chosen = |row: &&Policy| match (arguments.policy, &arguments.engine) {
            (Some(policy), _) => row.name == policy.name,
            (None, Some(engine)) => engine_of(row) == engine,
            (None, None) => true,
        };
        let rows: Vec<_> = Policy::all().iter().filter(is_chosen).collect();
        let kinds = arguments.faults.clone().map_or_else(faults::all, |faults| vec![faults]);
        let tallies = vec![vec![Tally::default(); kinds.len()]; rows.len()];
        let state = Mutex::new(RunState { tallies, ..RunState::default() });
        Self {
            arguments,
            rows,
            kinds,
            started: Instant::now(),
            next: AtomicU64::new(0),
            done: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            state,
        }
    }

    /// Runs schedules until none is left or one failed.
    fn work(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.arguments.seeds {
                return;
            }
            let seed = self.arguments.seed.wrapping_add(number);
            // Depends on the seed only, not on the seed's position in this run, so that the seed alone repeats the
            // schedule.
            let row = (seed % self.rows.len() as u64) as usize;
            let kind = (seed / self.rows.len() as u64 % self.kinds.len() as u64) as usize;
            let policy = self.rows[row];
            let faults = &self.kinds[kind];
            let tell: Option<fn(&str)> = self.arguments.tell.then_some(|what| println!("{what}"));
            let plan = SchedulePlan { tell, ..SchedulePlan::of_seed(seed, policy, faults, self.arguments.operations) };
            let outcome = catch_unwind(AssertUnwindSafe(|| schedule::run(&plan)));
            let mut state = self.state.lock().ignore_poison();
            let told = state.failures.len();
            match outcome {
                Ok(Ok(end)) => state.tallies[row][kind] += end.tally,
                Ok(Err(law)) => state.failures.push(self.failure(seed, policy, faults, &law)),
                Err(_) => state.failures.push(self.failure(seed, policy, faults, "the engine panicked, see above")),
            }
            if let (true, Some(failure)) = (self.arguments.keep_going, state.failures.get(told)) {
                eprintln!("{failure}");
            }
            let is_over = !self.arguments.keep_going && !state.failures.is_empty();
            self.is_over.store(is_over, Ordering::Relaxed);
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn failure(&self, seed: u64, policy: &Policy, faults: &Faults, why: &str) -> String {
        let policy = policy.name;
        let faults = faults.name;
        let operations = self.arguments.operations;
        format!(
            "seed {seed}, row {policy}, faults {faults}: {why}\nrepeat: cargo xtask sim --seed {seed} --seeds 1 \
             --policy {policy} --faults {faults} --operations {operations}"
        )
    }

    fn show_progress(&self) {
        let mut state = self.state.lock().ignore_poison();
        state.shown += 1;
        if state.shown.is_multiple_of(PRINTED_EVERY) {
            eprintln!("{}, {} broken laws", self.summary(&state), state.failures.len());
        }
    }

    fn summary(&self, state: &RunState) -> String {
        let total = state.tallies.iter().flatten().fold(Tally::default(), |mut total, tally| {
            total += *tally;
            total
        });
        let seconds = self.started.elapsed().as_secs_f64().max(0.001);
        let done = self.done.load(Ordering::Relaxed);
        let seeds = self.arguments.seeds;
        format!(
            "{done} of {seeds} seeds in {seconds:.0} s, {:.0} operations/s: {total}",
            total.operations as f64 / seconds
        )
    }

    fn report(&self) -> ExitCode {
        let state = self.state.lock().ignore_poison();
        for (row, tallies) in self.rows.iter().zip(&state.tallies) {
            for (kind, tally) in self.kinds.iter().zip(tallies) {
                println!("{:18} {:12} {tally}", row.name, kind.name);
            }
        }
        println!("{}", self.summary(&state));
        let undemanded = self.undemanded(&state);
        for failure in state.failures.iter().chain(&undemanded) {
            eprintln!("{failure}");
        }
        if state.failures.is_empty() && undemanded.is_empty() {
            println!(
                "no wrong byte, nothing older than promised, no other key's bytes, nothing lost that had to be there"
            );
            return ExitCode::SUCCESS;
        }
        ExitCode::FAILURE
    }

    /// Returns the rows in which no lookup had to find anything. A run of such a row shows nothing: a store that
    /// loses everything would pass it.
    fn undemanded(&self, state: &RunState) -> Vec<String> {
        let is_whole = self.arguments.faults.is_none();
        let totals = self.rows.iter().zip(&state.tallies).filter(|_| is_whole).map(|(row, tallies)| {
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

/// Lookups from which on a row is judged by that.
const JUDGED_LOOKUPS: u64 = 20_000;
