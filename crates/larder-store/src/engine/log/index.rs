//! The index of `log`. Its memory follows the number of entries on the volume.
//!
//! The first bits of a key's hash choose a partition. Each partition is a table of two-choice buckets of 16 packed
//! slots (as in a cuckoo filter). A table grows by about a 24th when it is full, and shrinks when a seventh of it is
//! empty, so no mean length of entries is assumed. A slot has a tag, the position of the record, its length (so that
//! one read fetches it), its number of hits, and whether it is short-lived. Tag and bucket together are the *address*,
//! some bits of the key's hash, so a table is rebuilt without its keys. When the index's memory is used up, a full
//! table drops the entry with the fewest hits.
//!
//! Two keys of a partition with the same address cannot be distinguished in memory. Both slots are kept. A lookup gets
//! all [`SlotMatches`] and reads their records, newest first, until one has its key. An insertion reads them to find
//! out which of them it replaces. After a crash two slots may belong to one key: the checkpoint's, and a newer one that
//! was replayed and not yet recognized. Invariant: if a key has slots, one of them is that of its newest record (an
//! entry, or the tombstone of its removal). Hence removing a slot of an unknown key also removes the older slots of its
//! address. A table's image is complete in itself and can be kept on the volume (see `format::checkpoint`).
//!
//! Cost: one or two adjacent cache lines per bucket, and the lock of one partition, held for nanoseconds (some
//! microseconds while its image is copied, up to a millisecond while its table is rebuilt), never across I/O.

mod budget;
mod choice;
mod image;
mod loading;
mod matches;
mod partition;
mod slot;

use super::layout::MovedRecord;
use crate::sync::IgnorePoison;
use crate::{
    hash::KeyHash,
    sync::{Mutex, MutexGuard},
    units::{SECTOR_BYTES, Sector, SegmentGeometry},
};
use budget::IndexBudget;
pub(crate) use choice::LogIndex;
pub(crate) use matches::SlotMatches;
use partition::{Address, IndexPartition};
use slot::VolumeWidths;
pub(crate) use slot::{IndexSlot, SizeClass};
use std::sync::Arc;

/// Bytes of the volume for each partition of the index. Threads wait while a partition's table is copied or rebuilt, so
/// a partition should have only a few thousand slots.
const PARTITION_SPAN_BYTES: u64 = 32 << 20;
/// Number of slots in a bucket.
pub(crate) const WAYS: usize = 16;
/// Mean share of a table's slots that are used, in percent. A table that is 95% full is rebuilt to be 91% full.
const FILL_PERCENT: u64 = 93;

/// The index of one volume.
pub(crate) struct VolumeIndex {
    partitions: Box<[Mutex<IndexPartition>]>,
    shape: IndexShape,
    budget: Arc<IndexBudget>,
}

/// The number of partitions, and the widths of fields in slots. An image of an index can only be loaded into an index
/// with the same shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexShape {
    widths: VolumeWidths,
    pub(crate) partition_count: u32,
}

/// A record that recovery found on the volume.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadedRecord {
    pub(super) key_hash: KeyHash,
    pub(super) packed: u64,
}

/// Bit of [`LoadedRecord::packed`] that marks the record of a removal. A slot does not use this bit.
pub(super) const REMOVAL: u64 = 1 << 63;

/// The result of adding a slot to the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InsertOutcome {
    /// The slot was added, and nothing was removed for it.
    New,
    /// The slot was added and replaced this older slot of the same key.
    Replaced(IndexSlot),
    /// The slot was added. There was no free place, so this other slot was removed. The number is the removed slot's
    /// address.
    Displaced(IndexSlot, u64),
}

impl IndexShape {
    /// Returns the shape of the index for a volume with this number of sectors.
    pub(crate) fn new(sectors: u64) -> Self {
        let partition_count = (sectors * SECTOR_BYTES).div_ceil(PARTITION_SPAN_BYTES).max(1);
        Self {
            widths: VolumeWidths::for_volume(sectors),
            partition_count: u32::try_from(partition_count).expect("16 TiB are half a million partitions"),
        }
    }

    /// Returns two widths in bits: of a position, and of an address.
    pub(crate) fn bits(&self) -> (u32, u32) {
        (self.widths.position_bits, self.widths.hash_bits)
    }

    /// Returns the bits of memory that each entry takes if there are `entries`.
    pub(crate) fn bits_per_entry(&self, entries: u64) -> f64 {
        let slots = (entries * 100).div_ceil(FILL_PERCENT * u64::from(self.partition_count));
        let widths = self.widths.in_table((slots / WAYS as u64).max(1) as u32);
        let fixed = (u64::from(self.partition_count) * size_of::<Mutex<IndexPartition>>() as u64 * 8) as f64;
        f64::from(widths.slot_bits()) * 100.0 / FILL_PERCENT as f64 + fixed / entries.max(1) as f64
    }

    /// Returns the bytes of the image of a table with `bucket_count` buckets; `None` if no table can have this number
    /// of buckets.
    pub(crate) fn image_bytes(&self, bucket_count: u32) -> Option<usize> {
        let is_possible = bucket_count > 0 && bucket_count.ilog2() < self.widths.hash_bits;
        is_possible.then(|| bucket_count as usize * self.widths.in_table(bucket_count).bucket_bytes())
    }

    /// Returns the number of the partition that a key belongs to.
    pub(crate) fn partition_of(&self, key_hash: KeyHash) -> u32 {
        ((u64::from(key_hash.prefix()) * u64::from(self.partition_count)) >> 32) as u32
    }

    /// Removes the slots of `image` for which `keep` returns `false`. Returns how many slots were removed.
    pub(crate) fn retain(&self, image: &mut [u8], bucket_count: u32, keep: impl FnMut(IndexSlot) -> bool) -> u64 {
        image::retain(image, self.widths.in_table(bucket_count), keep)
    }

    fn place(&self, key_hash: KeyHash) -> (usize, Address) {
        let address = key_hash.0 & ((1 << self.widths.hash_bits) - 1);
        (self.partition_of(key_hash) as usize, address as Address)
    }
}

impl LoadedRecord {
    /// Creates a record that was found: that of an entry with this slot or, if `removal` is set, that of a removal.
    pub(crate) fn new(key_hash: KeyHash, slot: IndexSlot, removal: bool) -> Self {
        Self { key_hash, packed: if removal { slot.to_bits() | REMOVAL } else { slot.to_bits() } }
    }

    /// Returns the slot of the entry; `None` if this is a removal.
    pub(super) fn slot(&self) -> Option<IndexSlot> {
        (self.packed & REMOVAL == 0).then(|| IndexSlot::from_bits(self.packed))
    }
}

impl VolumeIndex {
    /// Creates an empty index. It allocates memory as entries are added, up to `memory_bytes_max`.
    pub(crate) fn new(shape: IndexShape, memory_bytes_max: u64) -> Self {
        let budget = Arc::new(IndexBudget::new(memory_bytes_max));
        let partition = |_| Mutex::new(IndexPartition::new(shape.widths, Arc::clone(&budget)));
        let partitions = (0..shape.partition_count).map(partition).collect();
        Self { partitions, shape, budget }
    }

    pub(crate) fn shape(&self) -> IndexShape {
        self.shape
    }

    /// Returns the memory that the index takes now, in bytes. Cost: takes the lock of every partition.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let tables: u64 = self.partitions.iter().map(|partition| lock(partition).memory_bytes()).sum();
        tables + self.partitions.len() as u64 * size_of::<Mutex<IndexPartition>>() as u64
    }

    /// Returns about how many entries fit in the memory limit.
    pub(crate) fn entries_max(&self) -> u64 {
        let bits = self.shape.bits_per_entry(self.budget.max_bytes() / 7);
        (self.budget.max_bytes() as f64 * 8.0 / bits) as u64
    }

    /// Returns the number of entries. Cost: takes the lock of every partition.
    pub(crate) fn entries(&self) -> u64 {
        self.partitions.iter().map(|partition| lock(partition).entries()).sum()
    }

    /// Returns the slots that may be those of a key. If there is exactly one, counts a hit of it.
    pub(crate) fn find(&self, key_hash: KeyHash) -> SlotMatches {
        let (mut partition, place) = self.locate(key_hash);
        partition.find_and_count(place)
    }

    /// Returns the slots that may be those of a key, without counting a hit.
    pub(crate) fn peek(&self, key_hash: KeyHash) -> SlotMatches {
        let (partition, place) = self.locate(key_hash);
        partition.find(place)
    }

    /// Counts a hit of the slot at `position`. Without a position, counts a hit of every slot that may be the key's.
    pub(crate) fn count_hit(&self, key_hash: KeyHash, position: Option<Sector>) {
        let (mut partition, place) = self.locate(key_hash);
        partition.count_hit(place, position);
    }

    /// Adds a slot for a key, and removes the key's slots at the positions in `replaced`.
    pub(crate) fn insert(&self, key_hash: KeyHash, slot: IndexSlot, replaced: &[Sector]) -> InsertOutcome {
        let (mut partition, place) = self.locate(key_hash);
        match partition.insert(key_hash, place, slot, replaced) {
            InsertOutcome::Displaced(slot, within) => {
                InsertOutcome::Displaced(slot, (self.shape.place(key_hash).0 as u64) << 40 | within)
            }
            inserted => inserted,
        }
    }

    /// Removes those slots of a key's address that have one of these `positions`. Returns how many slots were removed.
    pub(crate) fn remove(&self, key_hash: KeyHash, positions: &[Sector]) -> u64 {
        let (mut partition, place) = self.locate(key_hash);
        partition.remove(place, positions)
    }

    /// Notes that a record has moved, and how many sectors to read at its new position. Returns `false` if the index
    /// has no slot for it.
    pub(crate) fn relocate(&self, moved: &MovedRecord) -> bool {
        let (mut partition, place) = self.locate(moved.key_hash);
        partition.relocate(place, moved)
    }

    /// Prevents older records of a removed key from being loaded. `tombstone` is the slot of the record of the removal.
    pub(crate) fn note_removed(&self, key_hash: KeyHash, tombstone: IndexSlot) {
        let (mut partition, place) = self.locate(key_hash);
        partition.note_removed(key_hash, place, tombstone.to_bits());
    }

    /// Returns whether a key's address already has a slot, and there is a free place for another slot.
    pub(crate) fn has_room_beside(&self, key_hash: KeyHash) -> bool {
        let (partition, place) = self.locate(key_hash);
        partition.has_room_beside(place)
    }

    /// Returns a number that identifies a key's address among all addresses of the index.
    pub(crate) fn address(&self, key_hash: KeyHash) -> u64 {
        let (partition, address) = self.shape.place(key_hash);
        (partition as u64) << 40 | u64::from(address)
    }

    /// Begins to load the entries of an earlier run, the newest first. From now on, a change of a key takes precedence
    /// over records of the key that are loaded later.
    pub(crate) fn begin_loading(&self) {
        self.partitions.iter().for_each(|partition| lock(partition).begin_loading());
    }

    /// Ends the loading of all partitions.
    pub(crate) fn end_loading(&self) {
        self.partitions.iter().for_each(|partition| lock(partition).end_loading());
    }

    /// Ends the loading of one partition. Records that are loaded into it later are ignored.
    pub(crate) fn end_loading_of(&self, partition: u32) {
        lock(&self.partitions[partition as usize]).end_loading();
    }

    /// Returns whether the partition of a key is completely loaded.
    pub(crate) fn has_loaded(&self, key_hash: KeyHash) -> bool {
        self.locate(key_hash).0.has_loaded()
    }

    /// Loads the records in the order of `news`. Ignores records of keys for which something newer is known. Cost:
    /// sorts them by partition, so that each lock is taken once and memory is visited in order.
    pub(crate) fn load(&self, news: &[LoadedRecord]) {
        let partition_of = |loaded: &LoadedRecord| self.shape.partition_of(loaded.key_hash) as usize;
        let mut ends = vec![0_usize; self.partitions.len() + 1];
        news.iter().for_each(|loaded| ends[partition_of(loaded) + 1] += 1);
        (1..ends.len()).for_each(|partition| ends[partition] += ends[partition - 1]);
        let mut sorted = vec![LoadedRecord::default(); news.len()];
        for loaded in news {
            let end = &mut ends[partition_of(loaded)];
            sorted[*end] = *loaded;
            *end += 1;
        }
        for run in sorted.chunk_by(|one, next| partition_of(one) == partition_of(next)) {
            let mut partition = lock(&self.partitions[partition_of(&run[0])]);
            for &LoadedRecord { key_hash, packed } in run {
                let (_, place) = self.shape.place(key_hash);
                match packed & REMOVAL {
                    0 => partition.load(key_hash, place, packed),
                    _ => partition.load_removal(key_hash, place, packed & !REMOVAL),
                }
            }
        }
    }

    /// Returns whether a partition has changed since its image was last taken or loaded. Hits do not count as changes.
    pub(crate) fn is_changed(&self, partition: u32) -> bool {
        lock(&self.partitions[partition as usize]).is_changed()
    }

    /// Marks a partition as changed, so that its next image is written.
    pub(crate) fn set_changed(&self, partition: u32) {
        lock(&self.partitions[partition as usize]).set_changed();
    }

    /// Passes the image of a partition's table and its number of buckets to `take`. If the partition is empty, the
    /// image is empty as well.
    pub(crate) fn take_image<T>(&self, partition: u32, take: impl FnOnce(&[u8], u32) -> T) -> T {
        lock(&self.partitions[partition as usize]).take_image(take)
    }

    /// Returns the bytes that a partition's table takes.
    pub(crate) fn table_bytes(&self, partition: u32) -> u64 {
        lock(&self.partitions[partition as usize]).memory_bytes()
    }

    /// Loads the image of a table with `bucket_count` buckets into a partition. Slots that the partition already has
    /// are newer and stay. Returns `false` if the memory limit does not allow the load.
    pub(crate) fn load_image(&self, partition: u32, image: &[u8], bucket_count: u32) -> bool {
        lock(&self.partitions[partition as usize]).load_image(image, bucket_count)
    }

    /// Checks the invariants of every partition, one after the other.
    pub(crate) fn check(&self, geometry: &SegmentGeometry) {
        self.partitions.iter().for_each(|partition| lock(partition).check(geometry));
    }

    fn locate(&self, key_hash: KeyHash) -> (MutexGuard<'_, IndexPartition>, Address) {
        let (partition, place) = self.shape.place(key_hash);
        (lock(&self.partitions[partition]), place)
    }
}

fn lock(partition: &Mutex<IndexPartition>) -> MutexGuard<'_, IndexPartition> {
    partition.lock().ignore_poison()
}

#[cfg(test)]
mod tests;
