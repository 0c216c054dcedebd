//! A sample of the entries that reclaim has seen, and the number of requests for each since then, whether it was kept
//! or not.
//!
//! Requests for each entry are counted for the same time, so that dropped entries are judged like kept ones. The idea
//! is that of LRB's training data (Song et al., NSDI 2020). Invariant: an entry stays in the sample for [`EPOCHS`]
//! epochs or one less. Only keys whose hash passes a filter are added. The filter becomes finer as more entries pass,
//! so that the sample spans all of that time on volumes of any size. Cost: 4 bytes of memory for each entry of the
//! sample; a load and a comparison for each lookup, without a lock.

use super::learned::EntryClass;
use crate::{SplitMix64, hash::KeyHash};
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of epochs for which the requests for a sampled entry are counted.
pub(crate) const EPOCHS: u32 = 16;
/// Sectors of the volume for each slot of the sample.
const SECTORS_PER_ENTRY: u64 = 512;
const ENTRIES_MIN: u64 = 64;
const ENTRIES_MAX: u64 = 8_192;

/// Widths of the fields in a slot's word, from the lowest bit: epoch, requests, class, a part of the hash, and a bit
/// that is always 1.
const EPOCH_BITS: u32 = 6;
const REQUEST_BITS: u32 = 6;
const TAG_BITS: u32 = 12;
const REQUESTS_SHIFT: u32 = EPOCH_BITS;
const CLASS_SHIFT: u32 = REQUESTS_SHIFT + REQUEST_BITS;
const TAG_SHIFT: u32 = CLASS_SHIFT + EntryClass::BITS;
/// The bit that is 1 in the word of each used slot.
const IN_USE: u32 = 1 << (TAG_SHIFT + TAG_BITS);
/// Mask of the finest filter, which one in 2^20 keys passes.
const FILTER_MAX: u32 = (1 << 20) - 1;
const REQUESTS_MAX: u32 = (1 << REQUEST_BITS) - 1;
const _: () = assert!(TAG_SHIFT + TAG_BITS == 31 && EPOCHS < 1 << EPOCH_BITS);

/// A sample of entries, each with the number of requests for it.
pub(crate) struct RequestSample {
    entries: Box<[AtomicU32]>,
    /// Mask of hash bits. Only keys whose hash bits under the mask are all 0 can be in the sample.
    filter: AtomicU32,
    /// Epoch in which the filter last changed.
    changed_in: AtomicU32,
}

/// The place that a key would have in the sample: its slot, and the part of its hash that the slot contains.
#[derive(Clone, Copy)]
struct SamplePlace {
    at: usize,
    tag: u32,
}

impl RequestSample {
    /// Creates an empty sample for a volume with this number of sectors.
    pub(crate) fn new(sectors: u64) -> Self {
        let count = (sectors / SECTORS_PER_ENTRY).clamp(ENTRIES_MIN, ENTRIES_MAX);
        let count = 1 << count.ilog2();
        Self {
            entries: (0..count).map(|_| AtomicU32::new(0)).collect(),
            filter: AtomicU32::new(0),
            changed_in: AtomicU32::new(0),
        }
    }

    /// Counts a request for a key, if the key is in the sample.
    pub(crate) fn note_request(&self, key_hash: KeyHash) {
        let Some(place) = self.place(key_hash) else { return };
        let word = &self.entries[place.at];
        let seen = word.load(Ordering::Relaxed);
        if seen >> TAG_SHIFT == place.tag && (seen >> REQUESTS_SHIFT) & REQUESTS_MAX < REQUESTS_MAX {
            // If another thread changed the word first, one request is not counted. A sample need not be exact.
            let more = seen + (1 << REQUESTS_SHIFT);
            _ = word.compare_exchange(seen, more, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Adds an entry of `class` to the sample, unless another key has its slot.
    pub(crate) fn note_entry(&self, key_hash: KeyHash, class: EntryClass, epoch: u32) {
        let Some(place) = self.place(key_hash) else { return };
        let word = (place.tag << TAG_SHIFT) | (u32::from(class.number()) << CLASS_SHIFT) | (epoch % (1 << EPOCH_BITS));
        let entry = &self.entries[place.at];
        _ = entry.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Removes the entries whose requests were counted long enough. Passes the class and the number of requests of each
    /// removed entry to `take`.
    pub(crate) fn take_due(&self, epoch: u32, mut take: impl FnMut(EntryClass, u32)) {
        let mut in_use = 0_usize;
        for entry in &self.entries {
            let word = entry.load(Ordering::Relaxed);
            if word == 0 {
                continue;
            }
            let age = epoch.wrapping_sub(word) % (1 << EPOCH_BITS);
            if age < EPOCHS {
                in_use += 1;
                continue;
            }
            let word = entry.swap(0, Ordering::Relaxed);
            let class = ((word >> CLASS_SHIFT) as u8) & ((1 << EntryClass::BITS) - 1);
            take(EntryClass::numbered(class), (word >> REQUESTS_SHIFT) & REQUESTS_MAX);
        }
        assert!(in_use <= self.entries.len(), "a place has one entry");
        self.follow_use(in_use, epoch);
    }

    /// Makes the filter finer when more than three quarters of the slots are used. Makes it coarser when fewer than a
    /// quarter are used, provided that the sample had time to fill.
    fn follow_use(&self, in_use: usize, epoch: u32) {
        let filter = self.filter.load(Ordering::Relaxed);
        let has_settled = epoch.wrapping_sub(self.changed_in.load(Ordering::Relaxed)) > EPOCHS;
        if in_use * 4 > self.entries.len() * 3 && filter < FILTER_MAX {
            self.filter.store(filter << 1 | 1, Ordering::Relaxed);
            // The sample does not show which entries would not pass the new filter. Requests for those are no longer
            // counted, so all entries are removed.
            self.entries.iter().for_each(|entry| entry.store(0, Ordering::Relaxed));
        } else if in_use * 4 < self.entries.len() && filter > 0 && has_settled {
            self.filter.store(filter >> 1, Ordering::Relaxed);
        } else {
            return;
        }
        self.changed_in.store(epoch, Ordering::Relaxed);
        debug_assert!(self.filter.load(Ordering::Relaxed) <= FILTER_MAX, "a filter has its bits");
    }

    fn place(&self, key_hash: KeyHash) -> Option<SamplePlace> {
        // The index uses the same hash for its own slots, so the bits are mixed first.
        let mixed = SplitMix64::mix(key_hash.0);
        if mixed as u32 & self.filter.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let at = (mixed >> 32) as usize & (self.entries.len() - 1);
        let tag = (mixed >> (u64::BITS - TAG_BITS)) as u32 | IN_USE >> TAG_SHIFT;
        Some(SamplePlace { at, tag })
    }

    /// Returns the memory of the sample in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.entries) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::SegmentRow;

    const CLASS: fn(u8) -> EntryClass = |hits| EntryClass::of(SegmentRow::Probation, hits, 100);

    fn key(n: u64) -> KeyHash {
        KeyHash(SplitMix64::new(n).next_u64())
    }

    #[test]
    fn requests_are_counted_for_their_time() {
        let sample = RequestSample::new(1 << 30);
        sample.note_entry(key(1), CLASS(2), 70);
        (0..5).for_each(|_| sample.note_request(key(1)));
        sample.note_request(key(2));
        sample.take_due(70 + EPOCHS - 1, |_, _| panic!("it is not over yet"));
        let mut taken = Vec::new();
        sample.take_due(70 + EPOCHS, |class, requests| taken.push((class, requests)));
        sample.take_due(70 + EPOCHS, |class, requests| taken.push((class, requests)));
        assert_eq!(taken, [(CLASS(2), 5)]);
    }

    #[test]
    fn a_place_is_not_taken_from_whom_it_has_and_counts_no_more_than_it_can() {
        let sample = RequestSample::new(1 << 30);
        sample.note_entry(key(1), CLASS(0), 0);
        sample.note_entry(key(1), CLASS(3), 9);
        (0..1_000).for_each(|_| sample.note_request(key(1)));
        let mut taken = Vec::new();
        sample.take_due(EPOCHS, |class, requests| taken.push((class, requests)));
        assert_eq!(taken, [(CLASS(0), REQUESTS_MAX)]);
    }

    #[test]
    fn it_spans_its_time_however_many_entries_there_are() {
        let sample = RequestSample::new(1 << 30);
        let mut oldest_noted = 0;
        for epoch in 0..40 * EPOCHS {
            (0..20_000).for_each(|n| sample.note_entry(key(u64::from(epoch) << 32 | n), CLASS(1), epoch));
            let mut taken = 0;
            sample.take_due(epoch, |_, _| taken += 1);
            oldest_noted = taken;
        }
        // 20,000 entries per epoch: as many as there are slots for 16 epochs.
        assert!((100..1_000).contains(&oldest_noted), "{oldest_noted} entries end in one epoch");
    }
}
