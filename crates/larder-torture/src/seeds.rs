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

/// The results of all seeds so far.
pub(crate) struct SeedResults<T> {
    pub(crate) total: T,
    pub(crate) done: u64,
    pub(crate) failures: Vec<String>,
    started: Instant,
}

impl<T> SeedResults<T> {
    /// Returns the results before the first seed.
    pub(crate) fn new(total: T) -> Self {
        Self { total, done: 0, failures: Vec::new(), started: Instant::now() }
    }

    /// Returns the time since the beginning, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64().max(0.001)
    }
}

/// What the seeds of a call have in common.
pub(crate) struct SeedTrial<R, F, S> {
    /// Runs a seed. Returns what adds its result to the total, or what went wrong.
    pub(crate) run: R,
    /// Names a seed that went wrong, and the command that repeats it.
    pub(crate) failure: F,
    /// Describes the results for a line of progress.
    pub(crate) summary: S,
}

/// Runs the seeds of `arguments` until none is left or one failed.
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
/// Interval of progress lines, in such intervals.
const PRINTED_EVERY: u64 = 60;
