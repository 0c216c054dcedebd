//! Admission: decides which offered entries may displace others once there is no free room.
//!
//! Pure decision over plain data. A long entry is admitted with a probability that falls with its length, because its
//! room could hold many short entries, each hit as often as the long one. The objective says how much length counts.
//! Keys that were recently refused or evicted are remembered: if offered again, they go to a main segment instead of
//! probation. Owns: that memory ([`SeenPlacings`]), the addresses that the index dropped although their records are
//! still in the log, and the addresses of recently removed entries.
//!
//! Invariant: an entry is refused, or put on probation, only if no older record of its address can resurface after a
//! crash. A dropped address still has such a record, so its entry is admitted to a main segment.
//!
//! Cost: [`SeenPlacings`]'s bits for every entry the volume holds, and 128 bits for each dropped address (fewer than
//! 0.5% of the entries) and for each entry removed within the last segments. There are no constants to tune. Ideas:
//! AdaptSize's size-dependent probability (NSDI 2017), S3-FIFO's ghost queue (SOSP 2023), with the filters of Maggs and
//! Sitaraman (CCR 2015).

mod seen;

use super::{index::IndexShape, layout::is_of_buffers};
use crate::{
    Objective, SplitMix64,
    format::{SegmentRow, SegmentUse},
    hash::KeyHash,
};
use seen::SeenPlacings;
use std::collections::HashMap;

/// Maximum number of bits of memory per entry that the index and admission take together, on volumes up to 1 TiB.
const BITS_PER_ENTRY_MAX: u64 = 60;
/// First value of `removed_max`, the number of remembered removals at which those that no longer matter are dropped.
const REMOVED_MAX: usize = 1024;
/// Peak memory of the index, divided by its mean memory. The peak is higher, because tables are less full while entries
/// come and go.
const INDEX_SLACK: f64 = 1.06;
/// Assumed share of the volume's bytes that current entries take. The other segments are free or being filled.
const LIVE_SHARE: f64 = 0.875;
/// Weight of one offered entry in the moving mean of lengths.
const MEAN_SHARE: f64 = 1.0 / 1024.0;
/// Number of equally likely outcomes of the random draw that decides, with the probability of admission, whether an
/// entry is stored.
const DICE_SIDES: u64 = 1 << 20;

/// The size of a store, as admission needs to know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmissionScale {
    /// Sectors of the volume for entries.
    pub(crate) sectors: u64,
    /// Shape of the index, which shares the memory limit with admission.
    pub(crate) index: IndexShape,
}

/// Returns the bits of memory per entry for remembering the keys of refused and evicted entries: 60 minus the bits of
/// the index, but at least 4 and at most 6.
pub(crate) fn seen_bits_per_entry(index: &IndexShape, entries: u64) -> u64 {
    let index_bits = index.bits_per_entry(entries.max(1));
    BITS_PER_ENTRY_MAX.saturating_sub((index_bits * INDEX_SLACK).ceil() as u64).clamp(4, 6)
}

/// An entry that a caller wants to store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryOffer {
    /// Hash of the entry's key.
    pub(crate) key_hash: KeyHash,
    pub(crate) sectors: u64,
}

/// Decides which offered entries are stored.
pub(crate) struct LogAdmission {
    seen: SeenPlacings,
    objective: Objective,
    index: IndexShape,
    sectors: f64,
    /// Moving mean of the lengths of offered entries, in sectors; 0 before the first offer.
    mean_sectors: f64,
    offer_count: u64,
    /// Moving mean of the lengths of evicted entries, in sectors.
    evicted_sectors: f64,
    evicted_count: u64,
    random: SplitMix64,
    /// Addresses, the hash bits by which the index distinguishes keys, that the index dropped although their records
    /// are still in the log. Each maps to the segment use that contains its record.
    dropped: HashMap<u64, SegmentUse>,
    /// Addresses (hash bits) of removed entries. Each maps to the segment use that contains the removal's record. An
    /// address is kept while that record takes precedence over entries on probation.
    removed: HashMap<u64, SegmentUse>,
    /// Size of `removed` at which the removals that no longer matter are next dropped.
    removed_max: usize,
}

impl LogAdmission {
    pub(crate) fn new(scale: AdmissionScale, objective: Objective) -> Self {
        assert!(scale.sectors > 0);
        Self {
            seen: SeenPlacings::new(),
            objective,
            index: scale.index,
            sectors: scale.sectors as f64,
            mean_sectors: 0.0,
            offer_count: 0,
            evicted_sectors: 0.0,
            evicted_count: 0,
            random: SplitMix64::new(scale.sectors),
            dropped: HashMap::new(),
            removed: HashMap::new(),
            removed_max: REMOVED_MAX,
        }
    }

    /// Decides whether to store an entry whose address (the hash bits by which the index distinguishes keys) has no
    /// slot. If the entry is refused, remembers its key.
    ///
    /// `has_room` means that nothing is evicted for the entry. The entry is then always admitted.
    pub(crate) fn admits(&mut self, offer: EntryOffer, address: u64, has_room: bool) -> bool {
        self.offer_count += 1;
        let share = MEAN_SHARE.max(1.0 / self.offer_count as f64);
        self.mean_sectors += (offer.sectors as f64 - self.mean_sectors) * share;
        assert!(self.mean_sectors.is_finite() && self.mean_sectors >= 0.0, "a mean of lengths");
        if self.dropped.contains_key(&address) || has_room {
            return true;
        }
        let is_admitted = (self.random.below(DICE_SIDES) as f64) < self.odds(offer.sectors) * DICE_SIDES as f64;
        if !is_admitted {
            self.remember(offer.key_hash);
        }
        is_admitted
    }

    /// Returns the probability that an entry of this length is admitted: 1 if it is not longer than the mean. A longer
    /// entry evicts several others, but is not requested more often than a short one.
    fn odds(&self, sectors: u64) -> f64 {
        let exponent = 2.0 * self.objective.length_exponent();
        (self.mean_sectors.max(1.0) / sectors.max(1) as f64).powf(exponent).min(1.0)
    }

    /// Returns whether a key was refused or evicted recently, or its address was dropped or removed recently.
    pub(crate) fn knows(&self, key_hash: KeyHash, address: u64) -> bool {
        self.dropped.contains_key(&address) || self.removed.contains_key(&address) || self.seen.knows(key_hash)
    }

    /// Notes that an entry with a length of `sectors` was evicted.
    pub(crate) fn note_evicted(&mut self, key_hash: KeyHash, sectors: u64) {
        self.evicted_count += 1;
        let share = MEAN_SHARE.max(1.0 / self.evicted_count as f64);
        self.evicted_sectors += (sectors as f64 - self.evicted_sectors) * share;
        assert!(self.evicted_sectors.is_finite() && self.evicted_sectors >= 0.0, "a mean of lengths");
        self.remember(key_hash);
    }

    /// Remembers a key until about as many other keys have been remembered as the volume has entries. Entries that are
    /// requested less often than that are not worth storing.
    fn remember(&mut self, key_hash: KeyHash) {
        // Some entries are stored without an offer, so the lengths of evicted entries describe the store better.
        let mean_sectors = if self.evicted_count > 0 { self.evicted_sectors } else { self.mean_sectors };
        let entries = self.sectors / mean_sectors.max(1.0);
        debug_assert!(entries.is_finite() && entries >= 0.0, "the store has a number of entries: {entries}");
        let held = (entries * LIVE_SHARE) as u64;
        let bits = held * seen_bits_per_entry(&self.index, held);
        self.seen.note(key_hash, entries as u64, bits);
    }

    /// Notes that the index dropped an address, although the address's record is still in the segment use `of`.
    pub(crate) fn note_dropped(&mut self, address: u64, of: SegmentUse) {
        let kept = self.dropped.entry(address).or_insert(of);
        if kept.order() < of.order() {
            *kept = of;
        }
        debug_assert!(kept.order() >= of.order(), "the newest use that an entry was dropped of is kept");
    }

    /// Notes that an entry of this address was removed. The record of the removal is in the segment use `of`. Removal
    /// records in main segments before `first_sequence` no longer take precedence over entries on probation.
    pub(crate) fn note_removed(&mut self, address: u64, of: SegmentUse, first_sequence: u32) {
        if self.removed.len() >= self.removed_max {
            self.removed.retain(|_, kept| kept.sequence >= first_sequence);
            self.removed_max = (self.removed.len() * 2).max(REMOVED_MAX);
        }
        self.removed.insert(address, of);
        assert!(self.removed.len() <= self.removed_max, "what counts no more was forgotten");
    }

    /// Notes that a record which waited in memory for others of its group is now in the segment use `of`. The record's
    /// address was dropped or removed in the meantime.
    pub(crate) fn note_released(&mut self, address: u64, of: SegmentUse) {
        let kept = [self.dropped.get_mut(&address), self.removed.get_mut(&address)];
        for kept in kept.into_iter().flatten().filter(|kept| is_of_buffers(kept.sequence)) {
            *kept = of;
        }
    }

    /// Forgets dropped addresses whose records are in the segment use `of` or an older one. If `of` is a probation
    /// segment, addresses with records in main segments stay.
    pub(crate) fn forget_through(&mut self, of: SegmentUse) {
        let is_of_main_only =
            |kept: &SegmentUse| (of.generation(), kept.generation()) == (SegmentRow::Probation, SegmentRow::Main);
        self.dropped.retain(|_, kept| kept.order() > of.order() || is_of_main_only(kept));
    }

    /// Returns the memory that the filters of refused and evicted keys take, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.seen.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an offer of an entry that is so short that its length does not matter.
    fn offer(n: u64) -> EntryOffer {
        EntryOffer { key_hash: KeyHash(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ n << 40), sectors: 1 }
    }

    /// Returns an admission to which 2,000 entries of 16 sectors were offered while there was room.
    fn admission(objective: Objective) -> LogAdmission {
        let mut admission =
            LogAdmission::new(AdmissionScale { sectors: 160_000, index: IndexShape::new(160_000) }, objective);
        for n in 0..2_000 {
            assert!(admission.admits(EntryOffer { sectors: 16, ..offer(n) }, n, true), "there is room");
        }
        admission
    }

    #[test]
    fn what_was_evicted_is_known_until_as_much_again_was() {
        let mut admission = admission(Objective::Requests);
        let known = |admission: &LogAdmission, keys: std::ops::Range<u64>| {
            keys.filter(|&n| admission.knows(offer(n).key_hash, n)).count()
        };
        (0..2_000).for_each(|n| admission.note_evicted(offer(n).key_hash, 16));
        assert_eq!(known(&admission, 0..2_000), 2_000);
        let falsely = known(&admission, 2_000..4_000);
        assert!(falsely <= 60, "{falsely} of 2000 taken for seen");
        (100_000..130_000).for_each(|n| admission.note_evicted(offer(n).key_hash, 16));
        let remembered = known(&admission, 0..2_000);
        assert!(remembered <= 80, "{remembered} of 2000 remembered for longer");
    }

    #[test]
    fn where_there_is_room_everything_is_admitted() {
        let mut admission = admission(Objective::Requests);
        assert!((0..2_000).all(|n| admission.admits(EntryOffer { sectors: 2_000, ..offer(n) }, n, true)));
    }

    /// Offers 20,000 entries of 112 sectors and 20,000 of 16 sectors. Returns how many of the longer entries are
    /// admitted.
    fn admitted(objective: Objective) -> usize {
        let mut admission = admission(objective);
        let mut is_admitted = |n, sectors| admission.admits(EntryOffer { sectors, ..offer(n) }, n, false);
        (0..20_000)
            .filter(|n| {
                assert!(is_admitted(2 * n, 16), "it is shorter than the mean");
                is_admitted(2 * n + 1, 112)
            })
            .count()
    }

    #[test]
    fn a_long_entry_gets_in_as_often_as_the_objective_says() {
        assert_eq!(admitted(Objective::Bytes), 20_000);
        // The mean length is 64 sectors, four sevenths of the long entries' length.
        let balanced = admitted(Objective::Balanced);
        let requests = admitted(Objective::Requests);
        assert!((10_500..12_500).contains(&balanced), "{balanced}");
        assert!((5_700..7_500).contains(&requests), "{requests}");
    }

    #[test]
    fn what_was_removed_is_known_while_that_may_count_more() {
        let mut admission = admission(Objective::Requests);
        (0..3_000).for_each(|n| admission.note_removed(n, SegmentUse::main(5), 5));
        assert!(admission.knows(offer(1).key_hash, 1));
        (3_000..9_000).for_each(|n| admission.note_removed(n, SegmentUse::main(7), 6));
        assert!(!admission.knows(offer(1).key_hash, 1) && admission.knows(offer(1).key_hash, 8_999));
    }

    #[test]
    fn a_dropped_address_is_admitted_until_its_segment_is_over() {
        let mut admission = admission(Objective::Requests);
        admission.note_dropped(1, SegmentUse::main(5));
        admission.note_dropped(2, SegmentUse::main(6));
        admission.forget_through(SegmentUse { sequence: 9, anchor: 9 });
        assert!(admission.knows(offer(1).key_hash, 1), "it is not in a segment of probation");
        admission.forget_through(SegmentUse::main(5));
        let long = EntryOffer { sectors: 100_000, ..offer(1) };
        assert!(!admission.admits(long, 1, false) && !admission.knows(offer(3).key_hash, 1));
        assert!(admission.admits(long, 2, false) && admission.knows(offer(3).key_hash, 2));
    }
}
