//! The `log` row's index: what is in memory for every entry on the volume.
//!
//! Two-choice buckets of 16 packed slots (as in a cuckoo filter). A slot knows a 13-bit tag, where the record
//! begins, how long it is (so that one read fetches it), how often it was hit, and whether it is
//! short-lived. The other bucket follows from bucket and tag, so a slot moves without its key.
//!
//! Two keys with the same pair of buckets and the same tag have the same *address* and cannot be
//! told apart in memory. Their slots stay side by side: a lookup gets all [`Matches`] and reads their records, newest first, until
//! one has its key; who inserts reads them to know which of them it replaces. After a crash two slots may be of one
//! key: what the checkpoint had, and the newer one that was replayed, which nobody has told apart yet.
//! Invariant: if a key has slots, one of them is that of its newest record (an entry, or the tombstone of its removal).
//! Hence who removes a slot without knowing whose it is removes the older ones of its address with it.
//! Both buckets of an address lie in one partition, so that a partition's image is complete in itself and can be
//! kept on the volume (see `format::checkpoint`).
//! Cost: one or two adjacent cache lines per bucket, a lock of one partition held for nanoseconds (for
//! some microseconds while its image is copied), never across I/O; [`SlotWidths::BUDGET_BITS`] a slot. A full index has another
//! key's slot for 0.4% of all addresses.

mod choice;
mod image;
mod loading;
mod matches;
mod partition;
mod slot;

use crate::{
    hash::KeyHash,
    sync::{Mutex, MutexGuard, PoisonError},
    units::{Geometry, Sector},
};
pub(crate) use choice::LogIndex;
pub(crate) use matches::Matches;
use partition::{BucketTag, Partition};
pub(crate) use slot::{SizeClass, Slot, SlotWidths};

/// A partition's bytes are at most this (128 KiB with an image's header): small enough to copy while others
/// wait, large enough that keys spread evenly over partitions.
const PARTITION_BYTES_MAX: u64 = (128 << 10) - 64;
/// Slots in a bucket.
pub(crate) const WAYS: usize = 16;
/// The share of slots that two choices fill without losses, in percent.
const FILL_PERCENT: u64 = 95;

/// The index of one volume.
pub(crate) struct Index {
    partitions: Box<[Mutex<Partition>]>,
    shape: IndexShape,
}

/// How large an index is; an image of another shape is of no use to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexShape {
    widths: SlotWidths,
    pub(crate) partition_count: u32,
    pub(crate) buckets_per_partition: u32,
}

/// A record as recovery learns of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Loaded {
    pub(super) key_hash: KeyHash,
    pub(super) packed: u64,
}

/// Set in [`Loaded::packed`] of a removal's record. Slots are shorter.
pub(super) const REMOVAL: u64 = 1 << 63;

/// What became of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// Nothing is gone.
    New,
    /// This entry, which was to be replaced, is gone.
    Replaced(Slot),
    /// There was no room; this entry, of this address, is gone.
    Displaced(Slot, u64),
}

impl IndexShape {
    /// The shape with room for `entries` on a volume of `sectors`.
    pub(crate) fn new(entries: u64, sectors: u64) -> Self {
        let widths = SlotWidths::for_volume(sectors);
        let buckets = (entries * 100 / FILL_PERCENT).div_ceil(WAYS as u64).max(2);
        let partition_count = (buckets * widths.bucket_bytes() as u64).div_ceil(PARTITION_BYTES_MAX);
        let buckets_per_partition = buckets.div_ceil(partition_count);
        Self {
            widths,
            partition_count: u32::try_from(partition_count).expect("16 TiB of 512 bytes are 2 million partitions"),
            buckets_per_partition: buckets_per_partition as u32,
        }
    }

    /// Bits of a slot.
    pub(crate) fn slot_bits(&self) -> u32 {
        self.widths.slot_bits()
    }

    /// Bytes of a partition's image.
    pub(crate) fn image_bytes(&self) -> usize {
        self.buckets_per_partition as usize * self.widths.bucket_bytes()
    }

    fn slots(&self) -> u64 {
        u64::from(self.partition_count) * u64::from(self.buckets_per_partition) * WAYS as u64
    }

    /// The news that `key_hash`'s key got this slot, or was removed by the record of this slot.
    pub(crate) fn loaded(&self, key_hash: KeyHash, slot: Slot, removal: bool) -> Loaded {
        let packed = self.widths.pack(SlotWidths::tag(key_hash), slot);
        Loaded { key_hash, packed: if removal { packed | REMOVAL } else { packed } }
    }

    /// The partition of a key's hash.
    pub(crate) fn partition_of(&self, key_hash: KeyHash) -> u32 {
        self.place(key_hash).0 as u32
    }

    /// Removes the slots of an image that `keep` does not want; how many.
    pub(crate) fn retain(&self, image: &mut [u8], keep: impl FnMut(Slot) -> bool) -> u64 {
        image::retain(image, self.widths, keep)
    }

    fn place(&self, key_hash: KeyHash) -> (usize, BucketTag) {
        let (partition, rest) = share(key_hash.prefix().into(), self.partition_count);
        let (bucket, _) = share(rest, self.buckets_per_partition);
        (partition as usize, BucketTag { bucket, tag: SlotWidths::tag(key_hash) })
    }
}

/// Which of `count` equal shares of the 32-bit numbers `number` is in, and how far in it, as 32 bits.
fn share(number: u64, count: u32) -> (u32, u64) {
    let scaled = number * u64::from(count);
    ((scaled >> 32) as u32, scaled & u64::from(u32::MAX))
}

impl Index {
    /// An empty index. Memory is taken as it is used.
    pub(crate) fn new(shape: IndexShape) -> Self {
        let partition = |_| Mutex::new(Partition::new(shape.buckets_per_partition, shape.widths));
        Self { partitions: (0..shape.partition_count).map(partition).collect(), shape }
    }

    pub(crate) fn shape(&self) -> IndexShape {
        self.shape
    }

    /// Memory when full, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let partition = self.shape.image_bytes() + size_of::<Mutex<Partition>>();
        u64::from(self.shape.partition_count) * partition as u64
    }

    /// How many entries there is room for.
    pub(crate) fn entries_max(&self) -> u64 {
        self.shape.slots() * FILL_PERCENT / 100
    }

    /// How many entries there are. Cost: takes every lock once.
    pub(crate) fn entries(&self) -> u64 {
        self.partitions.iter().map(|partition| lock(partition).entries()).sum()
    }

    /// Returns what may be the entry of `key_hash`'s key. If it is one, counts a hit of it.
    pub(crate) fn find(&self, key_hash: KeyHash) -> Matches {
        let (mut partition, place) = self.locate(key_hash);
        let found = partition.find(place);
        if found.only().is_some() {
            partition.count_hit(place, None);
        }
        found
    }

    /// Returns what may be the entry of `key_hash`'s key, without counting.
    pub(crate) fn peek(&self, key_hash: KeyHash) -> Matches {
        let (partition, place) = self.locate(key_hash);
        partition.find(place)
    }

    /// Counts a hit of the entry at `position`, or of all that may be `key_hash`'s.
    pub(crate) fn count_hit(&self, key_hash: KeyHash, position: Option<Sector>) {
        let (mut partition, place) = self.locate(key_hash);
        partition.count_hit(place, position);
    }

    /// Adds `slot` for `key_hash`'s key, in the stead of the entries at `replaced`.
    pub(crate) fn insert(&self, key_hash: KeyHash, slot: Slot, replaced: &[Sector]) -> Inserted {
        let (mut partition, place) = self.locate(key_hash);
        match partition.insert(key_hash, place, slot, replaced) {
            Inserted::Displaced(slot, within) => {
                Inserted::Displaced(slot, (self.shape.place(key_hash).0 as u64) << 40 | within)
            }
            inserted => inserted,
        }
    }

    /// Removes the entries of `key_hash`'s address at `positions`. Returns how many there were.
    pub(crate) fn remove(&self, key_hash: KeyHash, positions: &[Sector]) -> u64 {
        let (mut partition, place) = self.locate(key_hash);
        partition.remove(place, positions)
    }

    /// While loading: nothing that is loaded later of `key_hash`'s key counts, as the record of `tombstone` removed it;
    /// without one, nothing of its address counts.
    pub(crate) fn note_removed(&self, key_hash: KeyHash, tombstone: Option<Slot>) {
        let (mut partition, place) = self.locate(key_hash);
        let packed = tombstone.map(|slot| self.shape.widths.pack(place.tag, slot));
        partition.note_removed(key_hash, place, packed);
    }

    /// Returns whether `key_hash`'s address has a slot, and another one finds room beside it.
    pub(crate) fn has_room_beside(&self, key_hash: KeyHash) -> bool {
        let (partition, place) = self.locate(key_hash);
        partition.has_room_beside(place)
    }

    /// A number for `key_hash`'s address; no two have the same.
    pub(crate) fn address(&self, key_hash: KeyHash) -> u64 {
        let (partition, place) = self.shape.place(key_hash);
        let partition_number = (partition as u64) << 40;
        partition_number | lock(&self.partitions[partition]).address(place)
    }

    /// Starts loading what an earlier run left, newest first: from now on whatever happens to a
    /// key counts more than what is loaded for it later.
    pub(crate) fn begin_loading(&self) {
        self.partitions.iter().for_each(|partition| lock(partition).begin_loading());
    }

    /// Ends loading.
    pub(crate) fn end_loading(&self) {
        self.partitions.iter().for_each(|partition| lock(partition).end_loading());
    }

    /// Loads entries and removals in this order, each unless something newer is known of its key.
    /// Cost: sorts by partition, so that memory is visited in order and each lock taken once.
    pub(crate) fn load(&self, news: &[Loaded]) {
        let partition_of = |loaded: &Loaded| self.shape.partition_of(loaded.key_hash) as usize;
        let mut ends = vec![0_usize; self.partitions.len() + 1];
        news.iter().for_each(|loaded| ends[partition_of(loaded) + 1] += 1);
        (1..ends.len()).for_each(|partition| ends[partition] += ends[partition - 1]);
        let mut sorted = vec![Loaded::default(); news.len()];
        for loaded in news {
            let end = &mut ends[partition_of(loaded)];
            sorted[*end] = *loaded;
            *end += 1;
        }
        for run in sorted.chunk_by(|one, next| partition_of(one) == partition_of(next)) {
            let mut partition = lock(&self.partitions[partition_of(&run[0])]);
            for &Loaded { key_hash, packed } in run {
                let (_, place) = self.shape.place(key_hash);
                match packed & REMOVAL {
                    0 => partition.load(key_hash, place, packed),
                    _ => partition.load_removal(key_hash, place, packed & !REMOVAL),
                }
            }
        }
    }

    /// Whether a partition changed (hit bits do not count) since its image was last taken or loaded.
    pub(crate) fn is_changed(&self, partition: u32) -> bool {
        lock(&self.partitions[partition as usize]).is_changed()
    }

    /// Counts a partition as changed, whatever was done to it.
    pub(crate) fn set_changed(&self, partition: u32) {
        lock(&self.partitions[partition as usize]).set_changed();
    }

    /// Copies a partition as it is now to `target`, which is [`IndexShape::image_bytes`] long.
    pub(crate) fn take_image(&self, partition: u32, target: &mut [u8]) {
        lock(&self.partitions[partition as usize]).take_image(target);
    }

    /// Loads a partition's image beneath what is known of it already: all of that is newer.
    pub(crate) fn load_image(&self, partition: u32, image: &[u8]) {
        lock(&self.partitions[partition as usize]).load_image(image);
    }

    /// Checks every partition in its turn.
    pub(crate) fn check(&self, geometry: &Geometry) {
        self.partitions.iter().for_each(|partition| lock(partition).check(geometry));
    }

    fn locate(&self, key_hash: KeyHash) -> (MutexGuard<'_, Partition>, BucketTag) {
        let (partition, place) = self.shape.place(key_hash);
        (lock(&self.partitions[partition]), place)
    }
}

fn lock(partition: &Mutex<Partition>) -> MutexGuard<'_, Partition> {
    partition.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
