//! The `log` row's index: what is in memory for every entry on the volume.
//!
//! Two-choice buckets of 16 packed slots (as in a cuckoo filter). A slot knows a 13-bit tag, where the record
//! begins, how long it is (so that one read fetches it), how often it was hit, and whether it is
//! short-lived. The other bucket follows from bucket and tag, so a slot moves without its key.
//!
//! Two keys with the same pair of buckets and the same tag have the same *address* and cannot be
//! told apart in memory: the index holds one of them, the reader of the record compares the key.
//! Invariant: at most one slot per address. Cost: one or two adjacent cache lines per bucket, a lock
//! of one of 64 partitions held for nanoseconds, never across I/O; [`SlotWidths::BUDGET_BITS`] a slot.

mod partition;
mod slot;

use crate::units::Sector;
use partition::{Partition, Place};
pub(crate) use slot::{SizeClass, Slot, SlotWidths};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks over the table; a power of two.
const PARTITION_COUNT: u64 = 64;
/// Slots in a bucket.
pub(crate) const WAYS: usize = 16;
/// The share of slots that two choices fill without losses, in percent.
const FILL_PERCENT: u64 = 95;

/// The index of one volume.
pub(crate) struct Index {
    partitions: Box<[Mutex<Partition>]>,
    widths: SlotWidths,
    buckets_per_partition: u64,
}

/// What became of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// There was no entry of the address.
    New,
    /// The address had this entry, which is gone from the index.
    Replaced(Slot),
    /// There was no entry of the address and no room; this entry of another address is gone.
    Displaced(Slot),
}

impl Index {
    /// An index with room for `entries` on a volume of `sectors`. Memory is taken as it is used.
    pub(crate) fn new(entries: u64, sectors: u64) -> Self {
        let widths = SlotWidths::for_volume(sectors);
        let buckets = (entries * 100 / FILL_PERCENT).div_ceil(WAYS as u64);
        let buckets_per_partition = buckets.div_ceil(PARTITION_COUNT).max(2);
        let partition = || Mutex::new(Partition::new(buckets_per_partition as usize, widths));
        Self { partitions: (0..PARTITION_COUNT).map(|_| partition()).collect(), widths, buckets_per_partition }
    }

    /// Memory when full, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        PARTITION_COUNT * self.buckets_per_partition * self.widths.bucket_bytes() as u64
    }

    /// How many entries there is room for.
    pub(crate) fn entries_max(&self) -> u64 {
        PARTITION_COUNT * self.buckets_per_partition * WAYS as u64 * FILL_PERCENT / 100
    }

    /// How many entries there are. Cost: takes every lock once.
    pub(crate) fn entries(&self) -> u64 {
        self.partitions.iter().map(|partition| lock(partition).entries()).sum()
    }

    /// The entry of `placing`'s address; counts a hit.
    pub(crate) fn find(&self, placing: u64) -> Option<Slot> {
        let (mut partition, place) = self.locate(placing);
        partition.find_and_count(place)
    }

    /// The entry of `placing`'s address, without counting.
    pub(crate) fn peek(&self, placing: u64) -> Option<Slot> {
        let (partition, place) = self.locate(placing);
        partition.find(place)
    }

    /// Makes `slot` the entry of `placing`'s address.
    pub(crate) fn insert(&self, placing: u64, slot: Slot) -> Inserted {
        let (mut partition, place) = self.locate(placing);
        partition.supersede(place);
        partition.insert(place, slot)
    }

    /// Removes the entry of `placing`'s address.
    pub(crate) fn remove(&self, placing: u64) -> Option<Slot> {
        let (mut partition, place) = self.locate(placing);
        partition.supersede(place);
        partition.remove(place)
    }

    /// Removes the entry of `placing`'s address if it is the one at `position`.
    pub(crate) fn remove_at(&self, placing: u64, position: Sector) -> bool {
        let (mut partition, place) = self.locate(placing);
        match partition.find(place) {
            Some(found) if found.position == position => {
                partition.supersede(place);
                partition.remove(place).is_some()
            }
            _ => false,
        }
    }

    /// Starts loading what an earlier run left, newest first: from now on whatever happens to an
    /// address counts more than what is loaded for it later.
    pub(crate) fn begin_loading(&self) {
        self.partitions.iter().for_each(|partition| lock(partition).begin_loading());
    }

    /// Ends loading.
    pub(crate) fn end_loading(&self) {
        self.partitions.iter().for_each(|partition| lock(partition).end_loading());
    }

    /// Loads an entry unless something newer is known of its address.
    pub(crate) fn load(&self, placing: u64, slot: Slot) -> bool {
        let (mut partition, place) = self.locate(placing);
        partition.load(place, slot)
    }

    /// Loads the news that `placing`'s address was removed.
    pub(crate) fn load_removal(&self, placing: u64) {
        let (mut partition, place) = self.locate(placing);
        partition.supersede(place);
    }

    fn locate(&self, placing: u64) -> (MutexGuard<'_, Partition>, Place) {
        let tag = self.widths.tag(placing);
        let bucket_count = self.buckets_per_partition * PARTITION_COUNT;
        let bucket = ((placing >> 32) * bucket_count) >> 32;
        let (partition, bucket) = (bucket / self.buckets_per_partition, bucket % self.buckets_per_partition);
        (lock(&self.partitions[partition as usize]), Place { bucket: bucket as u32, tag })
    }
}

fn lock(partition: &Mutex<Partition>) -> MutexGuard<'_, Partition> {
    partition.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
