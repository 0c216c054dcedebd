//! Decides which values that were read from the store enter memory, before they are copied and weighed.
//!
//! A value enters memory if there is room, or if its key was requested before. Most values of a large store are never
//! requested again, and each of them would displace another. Where values are requested again soon or never, this rule
//! costs a hit for each value. So a sample of the keys shows its cost: every first request in the sample is refused,
//! and [`ReturnSample`] counts how many keys return while memory would still have their values. While many do, the
//! first requests of all other keys are admitted too.
//!
//! Memory: two bytes for each [`BYTES_PER_MARK`] of the capacity. Cost: two atomic operations for each value that is
//! read; a check of the whole memory for one request in [`LOOK_EACH`], and a lock for one key in [`SAMPLE_SHARE`].
//! Idea: the door of TinyLFU (Einziger et al., ACM Transactions on Storage 2017), and set dueling (Qureshi et al., ISCA
//! 2007).

use larder_device::IgnorePoison;
use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed},
};

/// The keys that were requested last, and what their requests show.
pub(super) struct MemoryAdmission {
    /// A tag of the last key with this slot, and for a key of the sample also the tick of its request.
    marks: Box<[AtomicU16]>,
    request_count: AtomicU64,
    has_room: AtomicBool,
    sample: Mutex<ReturnSample>,
    admits_first_requests: AtomicBool,
}

/// The use of the memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryUse {
    pub(super) value_count: u64,
    pub(super) has_room: bool,
}

/// Counts of refused keys and of those that returned. Recent requests count most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ReturnSample {
    refused: u32,
    returned: u32,
}

impl MemoryAdmission {
    /// Creates the admission to a memory of `capacity_bytes`. It admits everything until it has seen requests.
    pub(super) fn new(capacity_bytes: u64) -> Self {
        let count = usize::try_from(capacity_bytes / BYTES_PER_MARK).unwrap_or(usize::MAX).clamp(MARKS_MIN, MARKS_MAX);
        Self {
            marks: (0..count).map(|_| AtomicU16::new(0)).collect(),
            request_count: AtomicU64::new(0),
            has_room: AtomicBool::new(true),
            sample: Mutex::default(),
            admits_first_requests: AtomicBool::new(true),
        }
    }

    /// Notes a request that was answered by the store, and returns whether the value should enter memory.
    pub(super) fn admits(&self, key_hash: u64, memory: impl Fn() -> MemoryUse) -> bool {
        let request = self.request_count.fetch_add(1, Relaxed);
        if request.is_multiple_of(LOOK_EACH) {
            self.has_room.store(memory().has_room, Relaxed);
        }
        if self.has_room.load(Relaxed) {
            return true;
        }
        let is_sampled = (key_hash >> SAMPLE_SHIFT).is_multiple_of(SAMPLE_SHARE);
        // A value without further requests stays in memory for about this many requests.
        let tick = match is_sampled {
            true => request / (memory().value_count / STAY_SHARE).div_ceil(TICKS_OF_STAY).max(1),
            false => 0,
        };
        let [tag, ..] = key_hash.to_be_bytes();
        let mark = u16::from_be_bytes([tag, tick as u8]);
        let slot = &self.marks[(key_hash % self.marks.len() as u64) as usize];
        let [tag_before, tick_before] = slot.swap(mark, Relaxed).to_be_bytes();
        let is_known = tag_before == tag;
        if is_sampled {
            let is_soon = u64::from((tick as u8).wrapping_sub(tick_before)) <= TICKS_OF_STAY;
            self.note_sampled(is_known, is_soon);
            return is_known;
        }
        is_known || self.admits_first_requests.load(Relaxed)
    }

    fn note_sampled(&self, is_known: bool, is_soon: bool) {
        let mut sample = self.sample.lock().ignore_poison();
        sample.note(is_known, is_soon);
        self.admits_first_requests.store(sample.shows_returns(), Relaxed);
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

    /// Returns whether enough refused keys return for a copy of each value to pay off: one hit from disk costs as much
    /// as many copies.
    fn shows_returns(self) -> bool {
        self.returned * RETURN_SHARE >= self.refused
    }
}

/// Capacity in bytes for which one key is remembered.
const BYTES_PER_MARK: u64 = 4 << 10;
/// Number of requests between two checks of how full the memory is.
const LOOK_EACH: u64 = 64;
const MARKS_MIN: usize = 64;
const MARKS_MAX: usize = 1 << 26;
/// One key in this many is in the sample. Those keys lose a hit where values are requested again soon.
const SAMPLE_SHARE: u64 = 32;
/// The bits of the hash that choose the sample. They are neither those of the tag nor those of the slot.
const SAMPLE_SHIFT: u32 = 40;
/// A value that was requested once stays for as many requests as there are values in memory, divided by this.
const STAY_SHARE: u64 = 16;
/// Ticks for which a value that was requested once stays in memory.
const TICKS_OF_STAY: u64 = 16;
/// First requests are admitted while one refused key in this many returns soon.
const RETURN_SHARE: u32 = 8;
/// Refused keys that the sample counts before older ones count half.
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
