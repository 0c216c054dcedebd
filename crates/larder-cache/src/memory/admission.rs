//! Decides which values that were read from the store enter memory, before they are copied and weighed.
//!
//! A value enters memory if there is room, or if its key was requested before. Most values of a large store are never
//! requested again, and each of them would displace another. Where values are requested again soon or never, this rule
//! costs a hit for each value. So a sample of the keys shows its cost: every first request in the sample is refused,
//! and [`ReturnSample`] counts how many keys return while memory would still have their values. While many do, the
//! first requests of all other keys are admitted too.
//!
//! Cost: a lock for one key in [`SAMPLE_SHARE`]. Idea: the door of TinyLFU (Einziger et al., ACM Transactions on
//! Storage 2017), and set dueling (Qureshi et al., ISCA 2007).

use larder_device::IgnorePoison;
use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// Decides whether values enter a full memory on their first known request. A sample of keys shows whether requests for
/// such keys return.
pub(super) struct MemoryAdmission {
    sample: Mutex<ReturnSample>,
    admits_first_requests: AtomicBool,
}

/// The number of sampled keys that were refused, and of those that were requested again soon. Recent requests count
/// most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ReturnSample {
    refused: u32,
    returned: u32,
}

impl Default for MemoryAdmission {
    /// Returns the initial state, which admits everything until the sample has seen requests.
    fn default() -> Self {
        Self { sample: Mutex::default(), admits_first_requests: AtomicBool::new(true) }
    }
}

impl MemoryAdmission {
    /// Counts a request for a key that is not in memory while memory is full. Returns whether its value may displace
    /// others.
    ///
    /// `returned_after` is the time since the key's previous request, in requests per value in memory. `None` if it is
    /// unknown.
    pub(super) fn admits(&self, key_hash: u64, returned_after: Option<f32>) -> bool {
        let is_known = returned_after.is_some();
        if (key_hash >> SAMPLE_SHIFT).is_multiple_of(SAMPLE_SHARE) {
            let is_soon = returned_after.is_some_and(|after| after <= STAY);
            let mut sample = self.sample.lock().ignore_poison();
            sample.note(is_known, is_soon);
            self.admits_first_requests.store(sample.shows_returns(), Relaxed);
            return is_known;
        }
        is_known || self.admits_first_requests.load(Relaxed)
    }
}

impl ReturnSample {
    fn note(&mut self, is_known: bool, is_soon: bool) {
        self.returned += u32::from(is_known && is_soon);
        self.refused += u32::from(!is_known);
        if self.refused >= SAMPLE_COUNT_MAX {
            self.refused /= 2;
            self.returned /= 2;
        }
    }

    /// Returns whether so many refused keys were requested again that it pays to copy each value to memory at its first
    /// request. One hit from disk costs as much as many copies.
    fn shows_returns(self) -> bool {
        self.returned * RETURN_SHARE >= self.refused
    }
}

/// The sample contains one key in `SAMPLE_SHARE`. Sampled keys are refused at their first request, which costs a hit
/// each if they are requested again soon.
const SAMPLE_SHARE: u64 = 32;
/// Position of the hash bits that choose the sampled keys. Other bits choose the shard and the bucket of a ghost (the
/// count of a key that is not in memory).
const SAMPLE_SHIFT: u32 = 35;
/// Time for which a value stays in memory after a single request, in requests per value in memory. An estimate.
const STAY: f32 = 1.0;
/// Values are admitted at their first request while at least one refused key in `RETURN_SHARE` is requested again soon.
const RETURN_SHARE: u32 = 8;
/// Number of refused keys in the sample at which both of its counts are halved, so that older requests count less.
const SAMPLE_COUNT_MAX: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_requests_are_admitted_while_an_eighth_of_the_refused_keys_returns_soon() {
        let mut sample = ReturnSample::default();
        assert!(sample.shows_returns(), "nothing is known yet");
        (0..16).for_each(|_| sample.note(false, false));
        sample.note(true, true);
        assert!(!sample.shows_returns());
        sample.note(true, false);
        assert!(!sample.shows_returns(), "it returned too late");
        sample.note(true, true);
        assert!(sample.shows_returns());
        (0..SAMPLE_COUNT_MAX).for_each(|_| sample.note(false, false));
        assert!(!sample.shows_returns() && sample.refused < SAMPLE_COUNT_MAX, "{sample:?}");
    }
}
