//! Who is let in: admission as the engine of the log asks for it.
//!
//! Owns: the lock around [`Admission`], and whether room is short. Does not: decide. While there are free segments beyond the
//! reserve, or the segment that was reclaimed last was less than half full of entries, everything is let in. Cost: a hit asks
//! one word whether it is in the sample, and takes the lock if it is, one in 1,000 or fewer in stores of a million entries.

use super::{
    LogEngine,
    admission::{Admission, Offer, Scale, seen_bits_per_entry},
    index::LogIndex,
};
use crate::{
    hash::KeyHash,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    units::{Geometry, SECTOR_BYTES, sectors},
    volume::counters::add,
};

/// What stands before the log.
pub(super) struct Gate {
    admission: Mutex<Admission>,
    /// Hits of hashes with one of these bits are not noted.
    unsampled: u64,
    /// Whether whatever comes in pushes out something that is of use.
    is_short_of_room: AtomicBool,
}

impl Gate {
    /// For a volume of this geometry; `None` where the index cannot tell what was dropped.
    pub(super) fn new(index: &LogIndex, geometry: &Geometry) -> Option<Self> {
        let LogIndex::Buckets(buckets) = index else { return None };
        let admission = Admission::new(Scale {
            entries: index.entries_max(),
            sectors: u64::from(geometry.segment_count) * geometry.segment_bytes / SECTOR_BYTES,
            bits_per_entry: seen_bits_per_entry(buckets.shape().slot_bits()),
        });
        let unsampled = admission.sampled_by();
        Some(Self { admission: Mutex::new(admission), unsampled, is_short_of_room: AtomicBool::new(false) })
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.lock().memory_bytes()
    }

    fn lock(&self) -> MutexGuard<'_, Admission> {
        self.admission.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogEngine {
    /// Returns whether an entry of this length is to be stored; counts it as asked for. While the index is loaded every one
    /// is: an older one of its key might be loaded later, and count. So is one that replaces another.
    pub(super) fn is_worth_storing(&self, key_hash: KeyHash, len_bytes: u64) -> bool {
        let Some(gate) = &self.gate else { return true };
        let may_have_older =
            !self.volume.counters.loaded.load(Ordering::Acquire) || !self.index.peek(key_hash).is_empty();
        if may_have_older {
            return true;
        }
        let has_room =
            !gate.is_short_of_room.load(Ordering::Relaxed) || self.lock_log().free_count() > self.reserve_segments();
        let offer = Offer { key_hash, sectors: sectors(len_bytes) };
        let is_admitted = gate.lock().admits(offer, self.index.address(key_hash), has_room);
        if !is_admitted {
            add(&self.volume.counters.not_admitted, 1);
        }
        is_admitted
    }

    /// Notes that an entry was asked for that is there.
    pub(super) fn note_hit(&self, key_hash: KeyHash) {
        let Some(gate) = self.gate.as_ref().filter(|gate| key_hash.0 & gate.unsampled == 0) else { return };
        let matches = self.index.peek(key_hash);
        if let Some(slot) = matches.iter().next() {
            gate.lock().note_asked(Offer { key_hash, sectors: slot.size.sectors() });
        }
    }

    /// Notes how much of the segment that is reclaimed was still of use.
    pub(super) fn note_reclaimed(&self, live_sectors: u64) {
        if let Some(gate) = &self.gate {
            let is_full = live_sectors * 2 >= self.geometry.segment_bytes / SECTOR_BYTES;
            gate.is_short_of_room.store(is_full, Ordering::Relaxed);
        }
    }

    /// Notes that the index dropped an address whose record stays in the log.
    pub(super) fn note_dropped(&self, address: u64, sequence: u32) {
        if let Some(gate) = &self.gate {
            gate.lock().note_dropped(address, sequence);
        }
    }

    /// Notes that segments up to `sequence` are over.
    pub(super) fn forget_dropped(&self, sequence: u32) {
        if let Some(gate) = &self.gate {
            gate.lock().forget_through(sequence);
        }
    }
}
