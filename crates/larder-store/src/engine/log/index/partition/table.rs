//! The size of a partition's table, and the buckets of an address in it.
//!
//! This module does not search, add or remove slots. Invariant: a rebuilt table has every slot of the previous one.

use super::{Address, IndexPartition, LooseSlot, slot_number, ways};
use crate::engine::log::index::{
    WAYS,
    image::{self, FILL_BYTES},
};

/// Share of used slots, in percent, above which a table grows. Below it, one of the two buckets of an address nearly
/// always has a free place.
const GROW_PERCENT: u64 = 95;
/// Share of used slots, in percent, below which a table shrinks.
const SHRINK_PERCENT: u64 = 86;
/// Minimum number of buckets that a table grows by. Each growth moves every slot, and a share of a small table would be
/// a single bucket. At most 400 bytes more stay unused in a table, which are 12 MiB per TiB of volume.
const GROWTH_MIN: u32 = 4;
/// Share of used slots in a rebuilt table, in percent.
const REBUILT_PERCENT: u64 = 91;
/// Share of used slots in a table that is rebuilt during loading, in percent. It is low, because many slots follow.
const REBUILT_LOADING_PERCENT: u64 = 70;

/// The two buckets that may have the slots of an address.
#[derive(Clone, Copy)]
pub(super) struct AddressPlaces {
    pub(super) first: u32,
    /// The other bucket, which may be the same.
    pub(super) second: u32,
    /// The bits of the address that the first bucket does not determine.
    pub(super) remainder: u32,
}

impl AddressPlaces {
    /// Returns the tag of a slot in one of the two buckets.
    pub(super) fn tag_in(self, bucket: u32) -> u32 {
        debug_assert!([self.first, self.second].contains(&bucket), "one of the two buckets");
        self.remainder << 1 | u32::from(bucket != self.first)
    }
}

impl IndexPartition {
    /// Returns whether the table must grow before another slot is added.
    pub(super) fn is_crowded(&self) -> bool {
        self.bytes.is_empty() || (self.entries + 1) * 100 > self.slot_count() * GROW_PERCENT
    }

    /// Replaces the table by a larger table. Returns `false` if the memory limit does not allow that.
    pub(super) fn grow(&mut self) -> bool {
        let percent = if self.loading.is_some() { REBUILT_LOADING_PERCENT } else { REBUILT_PERCENT };
        let wanted = self.buckets_for(percent).max(self.bucket_count + GROWTH_MIN);
        match self.bytes.is_empty() {
            true => self.rebuild(1),
            false => self.rebuild(wanted) || self.rebuild(self.bucket_count + 1),
        }
    }

    /// Returns the number of buckets with which the table is `percent` full after one more slot.
    fn buckets_for(&self, percent: u64) -> u32 {
        ((self.entries + 1) * 100).div_ceil(percent * WAYS as u64) as u32
    }

    /// Moves all slots to a table with `bucket_count` buckets. Returns `false` if the memory limit does not allow that.
    fn rebuild(&mut self, bucket_count: u32) -> bool {
        // The budget is checked first, because every insertion at the limit gets here.
        if !self.budget.replace(self.bytes.len(), self.table_bytes(bucket_count)) {
            return false;
        }
        let loose = self.loose();
        self.reset(bucket_count);
        while !self.place_all(&loose) {
            // This is extremely rare. A slot that does not fit must not be lost, so a larger table is tried.
            let larger = self.bucket_count + 1 + self.bucket_count / WAYS as u32;
            self.budget.overdraw(self.table_bytes(larger) - self.bytes.len());
            self.reset(larger);
        }
        assert_eq!(self.entries, loose.len() as u64, "no slot is lost");
        true
    }

    /// Adds slots to an empty table. Returns `false` if there is no place for one of the slots. Counts the slots in
    /// each bucket, so that the next free way is known without reading the bucket.
    fn place_all(&mut self, all: &[LooseSlot]) -> bool {
        debug_assert_eq!(self.entries, 0, "the table is empty");
        let mut fills = vec![0_u8; self.bucket_count as usize];
        let mut without_room = Vec::new();
        for &loose in all {
            let places = self.places_of(loose.address);
            let AddressPlaces { first, second, .. } = places;
            let emptier = if fills[second as usize] < fills[first as usize] { second } else { first };
            let fill = &mut fills[emptier as usize];
            if usize::from(*fill) == WAYS {
                without_room.push(loose);
                continue;
            }
            let at = (emptier, usize::from(*fill));
            *fill += 1;
            image::write(&mut self.bytes, self.widths, at, self.widths.pack(places.tag_in(emptier), loose.bits));
            self.loading.iter_mut().for_each(|loading| loading.set_fingerprint(slot_number(at), loose.fingerprint));
        }
        self.entries = fills.iter().map(|&fill| u64::from(fill)).sum();
        without_room.into_iter().all(|loose| self.place(loose))
    }

    /// Replaces the table by an empty one with `bucket_count` buckets.
    fn reset(&mut self, bucket_count: u32) {
        self.bytes = vec![0; self.table_bytes(bucket_count)].into();
        (self.bucket_count, self.widths) = (bucket_count, self.volume.in_table(bucket_count));
        self.entries = 0;
        assert!(!self.bytes.is_empty(), "a table has a bucket");
        let slot_count = self.slot_count() as usize;
        self.loading.iter_mut().for_each(|loading| loading.forget_fingerprints(slot_count));
        self.changed = true;
    }

    pub(super) fn table_bytes(&self, bucket_count: u32) -> usize {
        bucket_count as usize * self.volume.in_table(bucket_count).bucket_bytes() + FILL_BYTES
    }

    /// Replaces the table by a smaller one if few of its slots are used.
    pub(super) fn shrink_if_due(&mut self) {
        if self.loading.is_some() || self.bytes.is_empty() {
            return;
        }
        if self.entries == 0 {
            let bytes = std::mem::take(&mut self.bytes);
            self.budget.give_back(bytes.len());
            (self.bucket_count, self.widths) = (1, self.volume.in_table(1));
            return;
        }
        let wanted = self.buckets_for(REBUILT_PERCENT);
        // A table that has just grown must not shrink with the next removal.
        let is_worth_it = wanted + GROWTH_MIN < self.bucket_count;
        if is_worth_it && self.entries * 100 < self.slot_count() * SHRINK_PERCENT {
            self.rebuild(wanted);
        }
    }

    /// Returns all slots with their addresses, from which their places in another table follow.
    pub(super) fn loose(&self) -> Vec<LooseSlot> {
        let mut all = Vec::with_capacity(self.entries as usize);
        let buckets = if self.entries > 0 { 0..self.bucket_count } else { 0..0 };
        for bucket in buckets {
            // Computed once, because it takes a division.
            let first_address = self.first_address(bucket);
            for way in ways(self.ways_in_use(bucket)) {
                let packed = self.read((bucket, way));
                let tag = self.widths.tag_of(packed);
                let is_second = tag & 1 == 1;
                all.push(LooseSlot {
                    address: if is_second { self.address_of(bucket, tag) } else { first_address + (tag >> 1) },
                    bits: self.widths.slot_bits_of(packed),
                    fingerprint: self
                        .loading
                        .as_ref()
                        .map_or(0, |loading| loading.fingerprint_at(slot_number((bucket, way)))),
                });
            }
        }
        assert_eq!(all.len() as u64, self.entries, "slots are counted");
        all
    }

    /// Returns the two buckets of an address.
    pub(super) fn places_of(&self, address: Address) -> AddressPlaces {
        // The whole part of this fraction is the first bucket. Each next address adds one bucket's share, so the rest
        // counts the addresses since the first one of that bucket.
        let fraction = u64::from(address) * u64::from(self.bucket_count);
        let first = (fraction >> self.volume.hash_bits) as u32;
        let rest = (fraction & ((1 << self.volume.hash_bits) - 1)) as u32;
        let remainder = rest / self.bucket_count;
        debug_assert_eq!(remainder, address - self.first_address(first), "the rest of the address");
        AddressPlaces { first, second: self.other_bucket(first, remainder), remainder }
    }

    /// Returns the lowest address whose first bucket is `bucket`.
    fn first_address(&self, bucket: u32) -> Address {
        (u64::from(bucket) << self.volume.hash_bits).div_ceil(self.bucket_count.into()) as Address
    }

    /// Returns the address of a slot that has this tag and is in `bucket`.
    pub(super) fn address_of(&self, bucket: u32, tag: u32) -> Address {
        let first = if tag & 1 == 0 { bucket } else { self.other_bucket(bucket, tag >> 1) };
        self.first_address(first) + (tag >> 1)
    }

    /// Returns the other bucket of an address, given one bucket and the address's remainder, the bits that do not
    /// determine its first bucket. Applied twice, it returns `bucket`.
    pub(super) fn other_bucket(&self, bucket: u32, remainder: u32) -> u32 {
        let spread = (u64::from(remainder) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let sum = ((spread * u64::from(self.bucket_count)) >> 32) as u32;
        if sum >= bucket { sum - bucket } else { sum + self.bucket_count - bucket }
    }
}
