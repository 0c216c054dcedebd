//! Runs the laws of values by seed, and prints the broken ones with their shortened schedules.

use crate::{Arguments, PRINTED_EVERY};
use larder_device::IgnorePoison;
use larder_torture::laws::{self, LawPlan, LawTally};
use std::{
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// The results so far.
#[derive(Default)]
struct LawState {
    tally: LawTally,
    done: u64,
    failures: Vec<String>,
}

/// Runs the seeds of the face of values.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let state = Mutex::new(LawState::default());
    let work = || {
        while !is_over.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= arguments.seeds {
                return;
            }
            let seed = arguments.seed.wrapping_add(number);
            let tell: Option<fn(&str)> = arguments.tell.then_some(|what| println!("{what}"));
            let outcome = laws::run(LawPlan { seed, tell });
            let mut state = state.lock().ignore_poison();
            state.done += 1;
            match outcome {
                Ok(tally) => state.tally += tally,
                Err(broken) => {
                    let failure = format!(
                        "seed {seed}, face values: {broken}\nrepeat: cargo xtask sim --face values --seed {seed} --seeds 1"
                    );
                    if arguments.keep_going {
                        eprintln!("{failure}");
                    }
                    state.failures.push(failure);
                    is_over.fetch_or(!arguments.keep_going, Ordering::Relaxed);
                }
            }
        }
    };
    let summary = || {
        let LawState { tally, done, failures } = &*state.lock().ignore_poison();
        let seconds = started.elapsed().as_secs_f64().max(0.001);
        let pace = *done as f64 / seconds;
        let seeds = arguments.seeds;
        let broken = failures.len();
        format!("{done} of {seeds} seeds in {seconds:.0} s, {pace:.0} seeds/s, {broken} broken laws: {tally}")
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..arguments.thread_count()).map(|_| scope.spawn(work)).collect();
        let mut shown = 0;
        while workers.iter().any(|worker| !worker.is_finished()) {
            thread::park_timeout(Duration::from_secs(1));
            shown += 1;
            if u64::is_multiple_of(shown, PRINTED_EVERY) {
                eprintln!("{}", summary());
            }
        }
    });
    println!("{}", summary());
    let failures = &state.lock().ignore_poison().failures;
    failures.iter().for_each(|failure| eprintln!("{failure}"));
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
