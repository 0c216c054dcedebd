//! Runs independent simulations on several threads; results are in the order of the items.
//!
//! Invariant: the number of threads affects only the time. Cost: one thread per job, for the duration of the call.

use larder_device::IgnorePoison;
use std::{
    num::NonZeroUsize,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Calls `work` for each of `items`, on up to `jobs` threads. Returns the results in the order of the items.
pub(crate) fn map<T: Sync, R: Send>(items: &[T], jobs: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let answers: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    *answers[at].lock().ignore_poison() = Some(work(item));
                }
            });
        }
    });
    let answers = answers.into_iter().map(|answer| answer.into_inner().ignore_poison());
    answers.map(|answer| answer.expect("every item was worked on")).collect()
}

/// Returns the number of threads that this machine can run at the same time.
pub fn jobs_default() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

#[cfg(test)]
mod tests {
    #[test]
    fn answers_come_in_the_order_of_the_questions() {
        let items: Vec<u64> = (0..100).collect();
        let expected: Vec<u64> = items.iter().map(|item| item * item).collect();
        for jobs in [1, 3, 200] {
            assert_eq!(super::map(&items, jobs, |item| item * item), expected);
        }
        assert!(super::map(&[], 4, |item: &u64| *item).is_empty());
    }
}
