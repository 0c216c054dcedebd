//! One lock's share of the index: its buckets as packed bytes.
//!
//! Does not: know keys or hashes, only [`Place`]s. Invariant: an address (pair of buckets, tag) has
//! at most one slot. Cost of an operation: two buckets scanned, up to 32 more when both are full.

use super::{
    WAYS,
    slot::{Slot, SlotWidths},
};
use crate::index::Inserted;
use std::collections::HashSet;

/// Where to look for an address: one of its two buckets, and its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) bucket: u32,
    pub(super) tag: u16,
}

/// The buckets under one lock.
pub(super) struct Partition {
    /// Buckets, then fill so that the last slot can be read as a whole word.
    bytes: Box<[u8]>,
    bucket_count: usize,
    widths: SlotWidths,
    entries: u64,
    /// While an earlier run's entries are loaded: addresses of which newer things are known.
    superseded: Option<HashSet<u64>>,
}

/// A slot's bucket and way.
type At = (usize, usize);

impl Partition {
    pub(super) fn new(bucket_count: usize, widths: SlotWidths) -> Self {
        let bytes = vec![0; bucket_count * widths.bucket_bytes() + size_of::<u64>()].into_boxed_slice();
        Self { bytes, bucket_count, widths, entries: 0, superseded: None }
    }

    pub(super) fn find_and_count(&mut self, place: Place) -> Option<Slot> {
        let at = self.position_of(place)?;
        let slot = self.widths.unpack(self.read(at));
        if slot.hits < Slot::HITS_MAX {
            self.write(at, self.widths.pack(place.tag, Slot { hits: slot.hits + 1, ..slot }));
        }
        Some(slot)
    }

    pub(super) fn insert(&mut self, place: Place, slot: Slot) -> Inserted {
        let packed = self.widths.pack(place.tag, slot);
        if let Some(at) = self.position_of(place) {
            let before = self.widths.unpack(self.read(at));
            self.write(at, packed);
            return Inserted::Replaced(before);
        }
        if let Some(at) = self.make_room(place) {
            self.write(at, packed);
            self.entries += 1;
            return Inserted::New;
        }
        let at = self.least_hit(place);
        let before = self.widths.unpack(self.read(at));
        self.write(at, packed);
        Inserted::Displaced(before)
    }

    pub(super) fn remove(&mut self, place: Place) -> Option<Slot> {
        let at = self.position_of(place)?;
        let slot = self.widths.unpack(self.read(at));
        self.write(at, 0);
        self.entries -= 1;
        Some(slot)
    }

    pub(super) fn begin_loading(&mut self) {
        self.superseded = Some(HashSet::new());
    }

    pub(super) fn end_loading(&mut self) {
        self.superseded = None;
    }

    /// While loading: whatever is loaded for this address later is older than what is known now.
    pub(super) fn supersede(&mut self, place: Place) {
        if self.superseded.is_some() {
            let address = self.address(place);
            self.superseded.get_or_insert_default().insert(address);
        }
    }

    /// Inserts unless something newer is known. Never displaces: what is loaded later is older.
    pub(super) fn load(&mut self, place: Place, slot: Slot) -> bool {
        let address = self.address(place);
        if self.superseded.as_ref().is_some_and(|superseded| superseded.contains(&address)) {
            return false;
        }
        if self.position_of(place).is_some() {
            return false;
        }
        let Some(at) = self.make_room(place) else {
            self.supersede(place);
            return false;
        };
        self.write(at, self.widths.pack(place.tag, slot));
        self.entries += 1;
        true
    }

    pub(super) fn find(&self, place: Place) -> Option<Slot> {
        self.position_of(place).map(|at| self.widths.unpack(self.read(at)))
    }

    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    fn position_of(&self, place: Place) -> Option<At> {
        let first = place.bucket as usize;
        self.way_of(first, place.tag).or_else(|| self.way_of(self.other_bucket(first, place.tag), place.tag))
    }

    fn way_of(&self, bucket: usize, tag: u16) -> Option<At> {
        let bytes = &self.bytes[bucket * self.widths.bucket_bytes()..];
        let slot_bits = self.widths.slot_bits() as usize;
        (0..WAYS).map(|way| (bucket, way)).find(|(_, way)| {
            let (byte, shift) = (way * slot_bits / 8, way * slot_bits % 8);
            let packed = (word(&bytes[byte..]) >> shift) & self.mask();
            self.widths.packed_tag(packed) == tag && packed != 0
        })
    }

    /// An empty slot for `place`: in the emptier of its buckets, or one freed by moving a
    /// neighbour to that neighbour's other bucket.
    fn make_room(&mut self, place: Place) -> Option<At> {
        let first = place.bucket as usize;
        let second = self.other_bucket(first, place.tag);
        let (used_first, used_second) = (self.used(first), self.used(second));
        if used_first.min(used_second) < WAYS {
            return self.empty_way(if used_second < used_first { second } else { first });
        }
        for at in [first, second].into_iter().flat_map(|bucket| (0..WAYS).map(move |way| (bucket, way))) {
            let packed = self.read(at);
            let other = self.other_bucket(at.0, self.widths.packed_tag(packed));
            if other != at.0
                && let Some(empty) = self.empty_way(other)
            {
                self.write(empty, packed);
                self.write(at, 0);
                return Some(at);
            }
        }
        None
    }

    /// The least hit of the 32 slots; the tag decides where the search begins, so that no way is favoured.
    fn least_hit(&self, place: Place) -> At {
        let first = place.bucket as usize;
        let second = self.other_bucket(first, place.tag);
        let start = usize::from(place.tag) % WAYS;
        let ways = (start..WAYS).chain(0..start);
        let slots = ways.flat_map(|way| [(first, way), (second, way)]);
        slots.min_by_key(|&at| self.widths.unpack(self.read(at)).hits).unwrap_or((first, 0))
    }

    /// The other bucket of a tag in `bucket`. Its own inverse.
    fn other_bucket(&self, bucket: usize, tag: u16) -> usize {
        let spread = (u64::from(tag) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let sum = (spread % self.bucket_count as u64) as usize;
        (sum + self.bucket_count - bucket) % self.bucket_count
    }

    fn address(&self, place: Place) -> u64 {
        let first = place.bucket as usize;
        let least = first.min(self.other_bucket(first, place.tag));
        (least as u64) << 16 | u64::from(place.tag)
    }

    fn used(&self, bucket: usize) -> usize {
        (0..WAYS).filter(|&way| self.read((bucket, way)) != 0).count()
    }

    fn empty_way(&self, bucket: usize) -> Option<At> {
        (0..WAYS).map(|way| (bucket, way)).find(|&at| self.read(at) == 0)
    }

    fn read(&self, at: At) -> u64 {
        let (byte, shift) = self.window(at);
        (word(&self.bytes[byte..]) >> shift) & self.mask()
    }

    fn write(&mut self, at: At, packed: u64) {
        let (byte, shift) = self.window(at);
        let word = word(&self.bytes[byte..]) & !(self.mask() << shift) | packed << shift;
        self.bytes[byte..byte + size_of::<u64>()].copy_from_slice(&word.to_le_bytes());
    }

    fn window(&self, (bucket, way): At) -> (usize, usize) {
        let bit = way * self.widths.slot_bits() as usize;
        (bucket * self.widths.bucket_bytes() + bit / 8, bit % 8)
    }

    fn mask(&self) -> u64 {
        (1 << self.widths.slot_bits()) - 1
    }
}

/// The word at the start of `bytes`.
fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("the table ends with a word of fill"))
}
