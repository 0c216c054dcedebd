//! Runs seeds on several threads, shows progress, and collects what broke a law.
//!
//! Owns: the loop over the seeds of one call. What a seed does, and how results are added up, is the caller's.

use crate::Arguments;
use larder_device::IgnorePoison;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Results of all seeds that have been run so far.
pub(crate) struct SeedResults<T> {
    pub(crate) total: T,
    pub(crate) done: u64,
    pub(crate) failures: Vec<String>,
    started: Instant,
}

impl<T> SeedResults<T> {
    /// Returns the results before any seed has been run. `total` is the initial sum.
    pub(crate) fn new(total: T) -> Self {
        Self { total, done: 0, failures: Vec::new(), started: Instant::now() }
    }

    /// Returns the time since the run began, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64().max(0.001)
    }
}

/// Functions that run one seed and describe its results.
pub(crate) struct SeedTrial<R, F, S> {
    /// Runs a seed. Returns a function that adds its result to the total, or an error text if it broke a law.
    pub(crate) run: R,
    /// Describes a seed that broke a law, with the command that repeats it.
    pub(crate) failure: F,
    /// Describes all results so far in one line.
    pub(crate) summary: S,
}

/// Runs the seeds of the command line on several threads. Stops at the first that breaks a law unless `--keep-going` is
/// given.
pub(crate) fn run<T: Send, A: FnOnce(&mut T)>(
    arguments: &Arguments,
    total: T,
    trial: SeedTrial<
        impl Fn(u64) -> Result<A, String> + Sync,
        impl Fn(u64, &str) -> String + Sync,
        impl Fn(&SeedResults<T>) -> String,
    >,
) -> SeedResults<T> {
    let next = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let results = Mutex::new(SeedResults::new(total));
    let work = || {
        while !is_over.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= arguments.seeds {
                return;
            }
            let seed = arguments.seed.wrapping_add(number);
            let outcome = catch_unwind(AssertUnwindSafe(|| (trial.run)(seed)));
            let outcome = outcome.unwrap_or_else(|_| Err("it panicked, see above".to_owned()));
            let mut results = results.lock().ignore_poison();
            results.done += 1;
            match outcome {
                Ok(add) => add(&mut results.total),
                Err(what) => {
                    let failure = (trial.failure)(seed, &what);
                    if arguments.keep_going {
                        eprintln!("{failure}");
                    }
                    results.failures.push(failure);
                    is_over.fetch_or(!arguments.keep_going, Ordering::Relaxed);
                }
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..arguments.thread_count()).map(|_| scope.spawn(work)).collect();
        let mut shown = 0;
        while workers.iter().any(|worker| !worker.is_finished()) {
            thread::park_timeout(PROGRESS_INTERVAL);
            shown += 1;
            if u64::is_multiple_of(shown, PRINTED_EVERY) {
                let results = results.lock().ignore_poison();
                eprintln!("{}, {} broken laws", (trial.summary)(&results), results.failures.len());
            }
        }
    });
    results.into_inner().ignore_poison()
}

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Number of [`PROGRESS_INTERVAL`]s between two lines of progress.
const PRINTED_EVERY: u64 = 60;
