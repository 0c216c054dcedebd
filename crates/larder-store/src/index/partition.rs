//! One lock's share of the index: its buckets as packed bytes.
//!
//! Does not: know keys or hashes, only [`Place`]s. Invariant: an address (pair of buckets, tag) has
//! at most one slot. Cost of an operation: two buckets scanned, up to 32 more when both are full.

use super::{
    WAYS,
    image::{self, At, FILL_BYTES, Ways},
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
    /// Empty until the first slot comes.
    bytes: Box<[u8]>,
    bucket_count: u32,
    widths: SlotWidths,
    entries: u64,
    /// While an earlier run's entries are loaded: addresses of which newer things are known.
    superseded: Option<HashSet<u64>>,
    /// Whether any slot came, went or moved since the last image.
    changed: bool,
}

impl Partition {
    pub(super) fn new(bucket_count: u32, widths: SlotWidths) -> Self {
        Self { bytes: Box::default(), bucket_count, widths, entries: 0, superseded: None, changed: false }
    }

    pub(super) fn find_and_count(&mut self, place: Place) -> Option<Slot> {
        let at = self.position_of(place)?;
        let slot = self.widths.unpack(self.read(at));
        if slot.hits < Slot::HITS_MAX {
            image::write(
                &mut self.bytes,
                self.widths,
                at,
                self.widths.pack(place.tag, Slot { hits: slot.hits + 1, ..slot }),
            );
        }
        Some(slot)
    }

    pub(super) fn insert(&mut self, place: Place, slot: Slot) -> Inserted {
        self.allocate();
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
        let before = self.read(at);
        let address = self.address(Place { bucket: at.0, tag: SlotWidths::packed_tag(before) });
        self.write(at, packed);
        Inserted::Displaced(self.widths.unpack(before), address)
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
    pub(super) fn load(&mut self, place: Place, packed: u64) {
        if self.is_superseded(place) {
            return;
        }
        self.allocate();
        let (first, second) = self.look(place);
        if first.1.matching | second.1.matching != 0 {
            return;
        }
        let Some(at) = self.room(first, second) else { return self.supersede(place) };
        self.write(at, packed);
        self.entries += 1;
    }

    pub(super) fn take_image(&mut self, target: &mut [u8]) {
        match self.bytes.is_empty() {
            true => target.fill(0),
            false => target.copy_from_slice(&self.bytes[..self.bytes.len() - FILL_BYTES]),
        }
        self.changed = false;
    }

    pub(super) fn set_changed(&mut self) {
        self.changed = true;
    }

    pub(super) fn is_changed(&self) -> bool {
        self.changed
    }

    /// Puts an image beneath what is here: the image's slots come in, but for addresses that are here or
    /// of which newer things are known.
    pub(super) fn load_image(&mut self, image: &[u8]) {
        let newer: Vec<(Place, u64)> = if self.entries == 0 { Vec::new() } else { self.slots().collect() };
        let superseded: Vec<Place> = self.superseded.iter().flatten().map(|&address| place_of(address)).collect();
        self.allocate();
        let len = self.bytes.len() - FILL_BYTES;
        self.bytes[..len].copy_from_slice(image);
        self.entries = self.slots().count() as u64;
        self.changed = false;
        for place in superseded {
            self.remove(place);
        }
        for (place, packed) in newer {
            let at = match self.position_of(place).or_else(|| self.make_room(place)) {
                Some(at) => at,
                None => self.least_hit(place),
            };
            self.entries += u64::from(self.read(at) == 0);
            self.write(at, packed);
        }
    }

    pub(super) fn find(&self, place: Place) -> Option<Slot> {
        self.position_of(place).map(|at| self.widths.unpack(self.read(at)))
    }

    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    fn allocate(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = vec![0; self.bucket_count as usize * self.widths.bucket_bytes() + FILL_BYTES].into();
        }
    }

    fn position_of(&self, place: Place) -> Option<At> {
        if self.entries == 0 {
            return None;
        }
        let first = self.look_in(place.bucket, place.tag);
        way(first.1.matching).map(|way| (first.0, way)).or_else(|| {
            let second = self.look_in(self.other_bucket(place.bucket, place.tag), place.tag);
            way(second.1.matching).map(|way| (second.0, way))
        })
    }

    fn look(&self, place: Place) -> ((u32, Ways), (u32, Ways)) {
        let other = self.other_bucket(place.bucket, place.tag);
        (self.look_in(place.bucket, place.tag), self.look_in(other, place.tag))
    }

    fn look_in(&self, bucket: u32, tag: u16) -> (u32, Ways) {
        (bucket, image::look(&self.bytes, self.widths, bucket, tag))
    }

    fn is_superseded(&self, place: Place) -> bool {
        let Some(superseded) = &self.superseded else { return false };
        !superseded.is_empty() && superseded.contains(&self.address(place))
    }

    /// All slots with their places.
    fn slots(&self) -> impl Iterator<Item = (Place, u64)> + '_ {
        let all = (0..self.bucket_count).flat_map(|bucket| (0..WAYS).map(move |way| (bucket, way)));
        all.map(|at| (at.0, self.read(at)))
            .filter(|&(_, packed)| packed != 0)
            .map(|(bucket, packed)| (Place { bucket, tag: SlotWidths::packed_tag(packed) }, packed))
    }

    /// An empty slot for `place`, whose address has none.
    fn make_room(&mut self, place: Place) -> Option<At> {
        let (first, second) = self.look(place);
        self.room(first, second)
    }

    /// An empty slot in the emptier of two buckets, or one freed by moving a neighbour to that neighbour's
    /// other bucket.
    fn room(&mut self, first: (u32, Ways), second: (u32, Ways)) -> Option<At> {
        let emptier = if second.1.used.count_ones() < first.1.used.count_ones() { second } else { first };
        if let Some(empty) = way(!emptier.1.used) {
            return Some((emptier.0, empty));
        }
        for at in [first.0, second.0].into_iter().flat_map(|bucket| (0..WAYS).map(move |way| (bucket, way))) {
            let packed = self.read(at);
            let other = self.other_bucket(at.0, SlotWidths::packed_tag(packed));
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
        let first = place.bucket;
        let second = self.other_bucket(first, place.tag);
        let start = usize::from(place.tag) % WAYS;
        let ways = (start..WAYS).chain(0..start);
        let slots = ways.flat_map(|way| [(first, way), (second, way)]);
        slots.min_by_key(|&at| self.widths.unpack(self.read(at)).hits).unwrap_or((first, 0))
    }

    /// The other bucket of a tag in `bucket`. Its own inverse.
    fn other_bucket(&self, bucket: u32, tag: u16) -> u32 {
        let spread = (u64::from(tag) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let sum = ((spread * u64::from(self.bucket_count)) >> 32) as u32;
        if sum >= bucket { sum - bucket } else { sum + self.bucket_count - bucket }
    }

    /// A number for the place's address, unique within the partition.
    pub(super) fn address(&self, place: Place) -> u64 {
        let least = place.bucket.min(self.other_bucket(place.bucket, place.tag));
        u64::from(least) << 16 | u64::from(place.tag)
    }

    fn empty_way(&self, bucket: u32) -> Option<At> {
        let (_, ways) = self.look_in(bucket, 0);
        way(!ways.used).map(|way| (bucket, way))
    }

    fn read(&self, at: At) -> u64 {
        image::read(&self.bytes, self.widths, at)
    }

    fn write(&mut self, at: At, packed: u64) {
        self.changed = true;
        image::write(&mut self.bytes, self.widths, at, packed);
    }
}

/// A place of an address, see [`Partition::address`].
fn place_of(address: u64) -> Place {
    Place { bucket: (address >> 16) as u32, tag: address as u16 }
}

/// The first way of a set.
fn way(ways: u16) -> Option<usize> {
    (ways != 0).then(|| ways.trailing_zeros() as usize)
}
