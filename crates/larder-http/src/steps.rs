//! Counts the steps of parsers, so that the fuzz targets can bound the cost of an input.
//!
//! A bound on time would fail on a slow machine and pass on a fast one.
//!
//! A parser calls [`take`] where it examines octets, with their number. Octets that are examined again and again are
//! then counted as often, so an input of a few kilobytes shows a cost that grows with the square of the length.
//! Invariant: nothing is counted, and the calls cost nothing, unless this crate is tested, fuzzed, or compiled with
//! the feature `count-steps`, as for the tests of other crates. Steps inside other crates are not seen; each octet that
//! they get counts once.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The steps counted so far on all threads of the process.
static TOTAL: AtomicU64 = AtomicU64::new(0);

/// Counts the steps of the parser that runs on this thread.
pub fn take(count: usize) {
    if cfg!(any(test, fuzzing, feature = "count-steps")) {
        COUNT.set(COUNT.get().wrapping_add(count as u64));
        TOTAL.fetch_add(count as u64, Relaxed);
    }
}

/// Returns the steps of this process so far. Use it for a parser that works on several threads.
pub fn total() -> u64 {
    TOTAL.load(Relaxed)
}

/// Runs a parser on an input of `octet_count` octets.
///
/// # Panics
/// If the parser takes more than [`PER_OCTET_MAX`] steps for each octet.
pub fn bounded<T>(octet_count: usize, parse: impl FnOnce() -> T) -> T {
    let before = COUNT.get();
    let parsed = parse();
    let steps = COUNT.get().wrapping_sub(before);
    let most = (octet_count as u64 + FREE_OCTETS) * PER_OCTET_MAX;
    assert!(steps <= most, "{steps} steps for an input of {octet_count} octets, at most {most}");
    parsed
}

/// Largest number of steps for each octet. A parser may examine an octet several times, but not more often in a longer
/// input.
pub const PER_OCTET_MAX: u64 = 32;
/// Octets that are added to the length of an input, because each parser has some work for an empty one.
const FREE_OCTETS: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Examines all remaining octets at each octet, a quadratic cost.
    fn examine_all_after_each(input: &[u8]) {
        (0..input.len()).for_each(|at| take(input[at..].len()));
    }

    #[test]
    fn cost_in_proportion_to_the_length_passes() {
        for len in [0, 1, 100, 10_000] {
            let input = vec![b'x'; len];
            bounded(len, || (0..PER_OCTET_MAX).for_each(|_| take(input.len())));
        }
    }

    #[test]
    #[should_panic(expected = "steps for an input of 4096 octets")]
    fn cost_that_grows_with_the_square_of_the_length_does_not() {
        let input = [b'x'; 4096];
        bounded(input.len(), || examine_all_after_each(&input));
    }
}
