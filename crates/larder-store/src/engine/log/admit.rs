//! Applies admission to a log volume.
//!
//! [`super::admission`] makes the decision, behind the lock of [`LogGate`]. Every entry is admitted while segments
//! beyond the reserve are free, or if live entries filled less than half of the last segment reclaimed. Cost: one lock
//! for each entry offered, stored or evicted; none for a hit.

use super::{
    LogEngine,
    admission::EntryOffer,
    gate::LogGate,
    layout::{LogState, MovedRecord},
};
use crate::{
    format::{SegmentRow, SegmentUse},
    hash::KeyHash,
    sync::atomic::Ordering,
    units::{SegmentId, sectors},
    volume::counters::add,
};

impl LogEngine {
    /// Returns whether an entry of this length is worth evicting others for. The call counts as a request for the
    /// entry.
    ///
    /// A replacement of a stored entry is always admitted. So is every entry while the index is being loaded: a refused
    /// entry's older version could otherwise be loaded later and be taken for the newest.
    pub(crate) fn admits(&self, key_hash: KeyHash, len_bytes: u64) -> bool {
        let Some(gate) = &self.gate else { return true };
        let may_have_older =
            !self.volume.counters.loaded.load(Ordering::Acquire) || !self.index.peek(key_hash).is_empty();
        if may_have_older {
            return true;
        }
        if self.wear_left_bytes() < len_bytes {
            add(&self.volume.counters.write_limit_refused, 1);
            return false;
        }
        let has_room = self.gate_is_open(gate);
        let offer = EntryOffer { key_hash, sectors: sectors(len_bytes) };
        let is_admitted = gate.lock().admits(offer, self.index.address(key_hash), has_room);
        if !is_admitted {
            add(&self.volume.counters.not_admitted, 1);
        }
        is_admitted
    }

    /// Returns whether every entry would be admitted now, whatever its length.
    pub(crate) fn has_room(&self) -> bool {
        self.gate.as_ref().is_none_or(|gate| self.gate_is_open(gate))
    }

    /// Returns how many bytes may be written before the daily write limit is reached; `u64::MAX` if there is no limit.
    pub(super) fn wear_left_bytes(&self) -> u64 {
        let Some(limit) = &self.volume.wear else { return u64::MAX };
        let written = self.volume.counters.written_bytes.load(Ordering::Relaxed) + self.lock_log().dirty_bytes();
        limit.left_bytes(self.volume.clock.now(), written)
    }

    /// Returns whether every entry is admitted now, because storing it evicts nothing useful.
    pub(super) fn gate_is_open(&self, gate: &LogGate) -> bool {
        !gate.is_short_of_room.load(Ordering::Relaxed) || self.lock_log().free_count() > self.reserve_segments()
    }

    /// Returns whether nothing is known about an entry without a slot in the index: it was neither refused, evicted,
    /// dropped nor removed recently.
    pub(super) fn is_unknown(&self, key_hash: KeyHash) -> bool {
        let Some(gate) = &self.gate else { return false };
        !gate.lock().knows(key_hash, self.index.address(key_hash))
    }

    /// Notes that an entry with a length of `sectors` was evicted.
    pub(super) fn note_evicted(&self, key_hash: KeyHash, sectors: u64) {
        if let Some(gate) = &self.gate {
            gate.lock().note_evicted(key_hash, sectors);
        }
    }

    /// Notes that a segment with `live_bytes` of current entries was reclaimed.
    pub(super) fn note_reclaimed(&self, live_bytes: u64) {
        if let Some(gate) = &self.gate {
            let is_full = live_bytes * 2 >= self.geometry.segment_bytes;
            gate.is_short_of_room.store(is_full, Ordering::Relaxed);
        }
    }

    /// Notes that the index dropped an address, although the address's record is still in `segment`.
    pub(super) fn note_dropped(&self, address: u64, segment: Option<SegmentId>) {
        if let (Some(gate), Some(segment)) = (&self.gate, segment) {
            gate.lock().note_dropped(address, self.segments.segment_use(segment));
        }
    }

    /// Notes the new places of moved records that have no slot in the index.
    pub(super) fn note_released(&self, absent: &[MovedRecord]) {
        let Some(gate) = &self.gate else { return };
        for moved in absent {
            let segment = self.geometry.segment_of(moved.to).expect("a record moves to a place in a segment");
            gate.lock().note_released(self.index.address(moved.key_hash), self.segments.segment_use(segment));
        }
    }

    /// Notes that an entry left the index, but the record of its removal or replacement is still in `segment`. The next
    /// entry of the key must take precedence over that record.
    pub(super) fn note_removed(&self, key_hash: KeyHash, segment: Option<SegmentId>, log: &LogState) {
        if let (Some(gate), Some(segment), true) = (&self.gate, segment, log.has_probation()) {
            let address = self.index.address(key_hash);
            let of = self.segments.segment_use(segment);
            // A later probation segment takes precedence over the records of an earlier one, so only main segments
            // matter.
            if of.generation() == SegmentRow::Main {
                gate.lock().note_removed(address, of, log.first_sequence_over_probation());
            }
        }
    }

    /// Notes that the segment use `of` has ended, so that dropped addresses with records in it no longer matter.
    pub(super) fn forget_dropped(&self, of: SegmentUse) {
        if let Some(gate) = &self.gate {
            gate.lock().forget_through(of);
        }
    }
}
