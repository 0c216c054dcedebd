//! The `log` row's index: what is in memory for every entry on the volume.
//!
//! Two-choice buckets of 16 packed slots (as in a cuckoo filter). A slot knows a 13-bit tag, where the record
//! begins, how long it is (so that one read fetches it), how often it was hit, and whether it is
//! short-lived. The other bucket follows from bucket and tag, so a slot moves without its key.
//!
//! Two keys with the same pair of buckets and the same tag have the same *address* and cannot be
//! told apart in memory: the index holds one of them, the reader of the record compares the key.
//! Invariant: at most one slot per address; both buckets of an address lie in one partition, so that a
//! partition's image is complete in itself and can be kept on the volume (see `format::checkpoint`).
//! Cost: one or two adjacent cache lines per bucket, a lock of one partition held for nanoseconds (for
//! some microseconds while its image is copied), never across I/O; [`SlotWidths::BUDGET_BITS`] a slot.

mod choice;
mod image;
pub(crate) mod map;
pub(crate) mod objects;
mod partition;
pub(crate) mod sets;
mod slot;
pub(crate) mod tiny_front;
pub(crate) mod tiny_sets;

use crate::{
    sync::{Mutex, MutexGuard, PoisonError},
    units::Sector,
};
pub(crate) use choice::LogIndex;
use partition::{Partition, Place};
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
    placing: u64,
    /// 0 is the news that the address was removed.
    packed: u64,
}

/// What became of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// There was no entry of the address.
    New,
    /// The address had this entry, which is gone from the index.
    Replaced(Slot),
    /// There was no entry of the address and no room; this entry, of this address, is gone.
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

    /// The news that `placing`'s address got this slot, or was removed.
    pub(crate) fn loaded(&self, placing: u64, slot: Option<Slot>) -> Loaded {
        let packed = slot.map_or(0, |slot| self.widths.pack(SlotWidths::tag(placing), slot));
        Loaded { placing, packed }
    }

    /// The partition of a placing.
    pub(crate) fn partition_of(&self, placing: u64) -> u32 {
        self.place(placing).0 as u32
    }

    /// Removes the slots of an image that `keep` does not want; how many.
    pub(crate) fn retain(&self, image: &mut [u8], keep: impl FnMut(Slot) -> bool) -> u64 {
        image::retain(image, self.widths, keep)
    }

    fn place(&self, placing: u64) -> (usize, Place) {
        let (partition, rest) = share(placing >> 32, self.partition_count);
        let (bucket, _) = share(rest, self.buckets_per_partition);
        (partition as usize, Place { bucket, tag: SlotWidths::tag(placing) })
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
        match partition.insert(place, slot) {
            Inserted::Displaced(slot, within) => {
                Inserted::Displaced(slot, (self.shape.place(placing).0 as u64) << 40 | within)
            }
            inserted => inserted,
        }
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

    /// A number for `placing`'s address; no two have the same.
    pub(crate) fn address(&self, placing: u64) -> u64 {
        let (partition, place) = self.shape.place(placing);
        let partition_number = (partition as u64) << 40;
        partition_number | lock(&self.partitions[partition]).address(place)
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

    /// Loads entries and removals in this order, each unless something newer is known of its address.
    /// Cost: sorts by partition, so that memory is visited in order and each lock taken once.
    pub(crate) fn load(&self, news: &[Loaded]) {
        let partition_of = |loaded: &Loaded| self.shape.partition_of(loaded.placing) as usize;
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
            for &Loaded { placing, packed } in run {
                let (_, place) = self.shape.place(placing);
                if packed == 0 { partition.supersede(place) } else { partition.load(place, packed) }
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

    fn locate(&self, placing: u64) -> (MutexGuard<'_, Partition>, Place) {
        let (partition, place) = self.shape.place(placing);
        (lock(&self.partitions[partition]), place)
    }
}

fn lock(partition: &Mutex<Partition>) -> MutexGuard<'_, Partition> {
    partition.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
