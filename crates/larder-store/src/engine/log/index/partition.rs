//! One lock's share of the index: a table of buckets as packed bytes, which grows and shrinks with its content.
//!
//! A partition knows only the bits of a key's hash that distinguish it: an *address*. An address has one slot for each
//! record that may belong to it. These records belong to different keys, or to one key whose older record was not
//! recognized yet. A slot's bucket and tag give its address, so the table can be rebuilt without the keys
//! ([`IndexPartition::rebuild`]). Invariants: those of [`super::VolumeIndex`]. Cost of an operation: two buckets are
//! scanned, and up to 32 more if both are full. A table grows by a 24th, but at least by four buckets, and moves each
//! slot once: 24 moves per new slot, and fewer in small tables.

mod table;

use super::{
    InsertOutcome, SlotMatches, WAYS,
    budget::IndexBudget,
    image::{self, FILL_BYTES, SlotPlace},
    loading::{IndexLoading, fingerprint},
    slot::{IndexSlot, SizeClass, SlotWidths, VolumeWidths},
};
use crate::{
    engine::log::layout::MovedRecord,
    hash::KeyHash,
    units::{Sector, SegmentGeometry},
};
use std::sync::Arc;
use table::AddressPlaces;

/// The low bits of a key's hash. A partition distinguishes keys only by these bits.
pub(super) type Address = u32;

/// A table of buckets behind one lock.
pub(super) struct IndexPartition {
    /// The packed buckets; empty until the first slot is added.
    bytes: Box<[u8]>,
    bucket_count: u32,
    volume: VolumeWidths,
    budget: Arc<IndexBudget>,
    /// Widths of the fields of a slot in a table of this size.
    widths: SlotWidths,
    entries: u64,
    /// Changes that are newer than the entries being loaded; `None` if nothing is being loaded.
    loading: Option<Box<IndexLoading>>,
    /// Whether a slot was added, removed or moved since the last image was taken.
    changed: bool,
}

/// A slot that has no place in the table yet.
#[derive(Clone, Copy)]
struct LooseSlot {
    address: Address,
    /// Fields of the slot, as [`IndexSlot::to_bits`] returns them.
    bits: u64,
    fingerprint: u16,
}

impl IndexPartition {
    pub(super) fn new(volume: VolumeWidths, budget: Arc<IndexBudget>) -> Self {
        let bytes = Box::default();
        let widths = volume.in_table(1);
        Self { bytes, bucket_count: 1, volume, budget, widths, entries: 0, loading: None, changed: false }
    }

    /// Counts a hit of the address's slot at `position`. Without a position, counts a hit of each slot of the address.
    pub(super) fn count_hit(&mut self, address: Address, position: Option<Sector>) {
        for at in self.ways_of(address) {
            if position.is_none_or(|position| self.widths.unpack(self.read(at)).position == position) {
                self.count_hit_at(at);
            }
        }
    }

    /// Counts a hit of the slot at `at`. Returns the slot without this hit.
    fn count_hit_at(&mut self, at: SlotPlace) -> IndexSlot {
        let packed = self.read(at);
        assert_ne!(packed, 0, "a hit is of a slot that is there");
        let slot = self.widths.unpack(packed);
        if slot.hits < IndexSlot::HITS_MAX {
            let counted = IndexSlot { hits: slot.hits + 1, ..slot };
            // Not `write`: an image need not contain hits.
            let repacked = self.widths.pack(self.widths.tag_of(packed), counted.to_bits());
            image::write(&mut self.bytes, self.widths, at, repacked);
            debug_assert_eq!(self.widths.unpack(self.read(at)), counted, "a hit changes nothing else of a slot");
        }
        slot
    }

    /// Adds a slot for a key, and removes the slots of the key's address that have one of the positions in `replaced`.
    /// Other slots of the address stay.
    pub(super) fn insert(
        &mut self,
        key_hash: KeyHash,
        address: Address,
        slot: IndexSlot,
        replaced: &[Sector],
    ) -> InsertOutcome {
        self.loading.iter_mut().for_each(|loading| loading.note_inserted(key_hash));
        let before = self.take_out(address, replaced);
        let loose = LooseSlot { address, bits: slot.to_bits(), fingerprint: fingerprint(key_hash) };
        let inserted = self.put(loose);
        assert!(self.entries > 0, "a slot that was inserted is counted");
        match before {
            Some(before) if inserted == InsertOutcome::New => InsertOutcome::Replaced(before),
            _ => inserted,
        }
    }

    /// Removes the slots with this address and one of these positions. Returns how many slots were removed.
    pub(super) fn remove(&mut self, address: Address, positions: &[Sector]) -> u64 {
        let before = self.entries;
        if self.take_out(address, positions).is_some()
            && let Some(loading) = &mut self.loading
        {
            loading.note_forgotten(address.into());
        }
        assert!(
            self.entries <= before && before - self.entries <= positions.len() as u64 * 2 * WAYS as u64,
            "slots at these positions go"
        );
        let removed = before - self.entries;
        self.shrink_if_due();
        removed
    }

    /// Updates the slot of a record that moved. Returns `false` if the record has no slot.
    pub(super) fn relocate(&mut self, address: Address, moved: &MovedRecord) -> bool {
        let &MovedRecord { from, to, sectors, short_lived, .. } = moved;
        let Some(at) = self.ways_of(address).find(|&at| self.widths.unpack(self.read(at)).position == from) else {
            return false;
        };
        let packed = self.read(at);
        let size = SizeClass::holding(sectors);
        let slot = IndexSlot { position: to, size, short_lived, ..self.widths.unpack(packed) };
        self.changed = true;
        image::write(&mut self.bytes, self.widths, at, self.widths.pack(self.widths.tag_of(packed), slot.to_bits()));
        debug_assert_eq!(self.widths.unpack(self.read(at)), slot, "a move changes nothing else of a slot");
        true
    }

    /// Makes the partition ignore older records of a removed key that are loaded later. `tombstone` is the packed slot
    /// of the record of the removal.
    pub(super) fn note_removed(&mut self, key_hash: KeyHash, address: Address, tombstone: u64) {
        if let Some(loading) = &mut self.loading {
            loading.note_removed(key_hash, address.into(), tombstone);
        }
    }

    pub(super) fn begin_loading(&mut self) {
        assert!(self.loading.is_none(), "a run loads once");
        self.loading = Some(Box::new(IndexLoading::new(self.slot_count() as usize)));
    }

    pub(super) fn has_loaded(&self) -> bool {
        self.loading.is_none()
    }

    pub(super) fn end_loading(&mut self) {
        self.loading = None;
        self.shrink_if_due();
        assert!(self.entries <= self.slot_count(), "slots have ways");
    }

    /// Adds the slot of a loaded record, unless a newer record or removal of its key is known.
    ///
    /// Records are loaded newest first. If no space is left, this record is therefore ignored, and no slot is removed
    /// for it.
    pub(super) fn load(&mut self, key_hash: KeyHash, address: Address, bits: u64) {
        let Some(loading) = &self.loading else { return };
        if loading.is_newer(key_hash, address.into()) {
            return;
        }
        let is_same =
            |at: SlotPlace| self.loading.as_ref().is_some_and(|loading| loading.may_be_of(slot_number(at), key_hash));
        if self.ways_of(address).any(is_same) {
            return;
        }
        if !self.put_if_room(LooseSlot { address, bits, fingerprint: fingerprint(key_hash) }) {
            self.loading.iter_mut().for_each(|loading| loading.note_forgotten(address.into()));
        }
        assert!(self.entries <= self.slot_count(), "slots have ways");
    }

    /// Notes a loaded removal of a key, so that older records of the key are ignored, unless a newer change is known.
    pub(super) fn load_removal(&mut self, key_hash: KeyHash, address: Address, bits: u64) {
        let is_same =
            |at: SlotPlace| self.loading.as_ref().is_some_and(|loading| loading.may_be_of(slot_number(at), key_hash));
        let is_known = self.ways_of(address).any(is_same);
        if let Some(loading) = &mut self.loading
            && !is_known
            && !loading.is_newer(key_hash, address.into())
        {
            loading.note_removed(key_hash, address.into(), bits);
        }
    }

    /// Passes the table as an image, and its number of buckets, to `take`. Marks the partition as unchanged.
    pub(super) fn take_image<T>(&mut self, take: impl FnOnce(&[u8], u32) -> T) -> T {
        self.changed = false;
        assert!(self.bytes.len() != FILL_BYTES, "a table that is there has buckets");
        take(&self.bytes[..self.bytes.len().saturating_sub(FILL_BYTES)], self.bucket_count)
    }

    pub(super) fn set_changed(&mut self) {
        self.changed = true;
    }

    pub(super) fn is_changed(&self) -> bool {
        self.changed
    }

    /// Returns the bytes that the table takes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Loads the image of a table with `bucket_count` buckets. The slots that are already here are newer and stay.
    /// Returns `false` if the memory limit does not allow it.
    ///
    /// If an address has slots both here and in the image, all stay, because they may belong to different keys. Lookups
    /// read the newer ones first. If an image has slots of the address of a removed key, the removal's record gets a
    /// slot, for the same reason. If there is no place for all, the image's slots of the address are dropped, because
    /// most are older records of the same key.
    pub(super) fn load_image(&mut self, image: &[u8], bucket_count: u32) -> bool {
        let widths = self.volume.in_table(bucket_count);
        debug_assert_eq!(image.len(), bucket_count as usize * widths.bucket_bytes(), "an image of all buckets");
        let newer = self.loose();
        if !self.budget.replace(self.bytes.len(), image.len() + FILL_BYTES) {
            return false;
        }
        let mut loading = self.loading.take().unwrap_or_else(|| Box::new(IndexLoading::new(0)));
        (self.bucket_count, self.widths) = (bucket_count, widths);
        loading.forget_fingerprints(self.slot_count() as usize);
        self.bytes = vec![0; image.len() + FILL_BYTES].into();
        self.bytes[..image.len()].copy_from_slice(image);
        self.entries = self.slots().count() as u64;
        assert!(self.entries <= self.slot_count());
        self.changed = false;
        for &address in loading.forgotten() {
            self.take_out_all(address as Address);
        }
        let removed: Vec<_> = loading.removed().collect();
        self.loading = Some(loading);
        for (key_hash, address, bits) in removed {
            let address = address as Address;
            let tombstone = LooseSlot { address, bits, fingerprint: fingerprint(key_hash) };
            if self.ways_of(address).next().is_some() && !self.put_if_room(tombstone) {
                self.take_out_all(address);
            }
        }
        for loose in newer {
            if !self.put_if_room(loose) {
                self.take_out_all(loose.address);
                self.put(loose);
            }
        }
        true
    }

    /// Returns all slots of an address, in any order.
    pub(super) fn find(&self, address: Address) -> SlotMatches {
        self.ways_of(address).map(|at| self.widths.unpack(self.read(at))).collect()
    }

    /// Returns the slots like [`Self::find`], and counts a hit if there is only one.
    pub(super) fn find_and_count(&mut self, address: Address) -> SlotMatches {
        let mut ways = self.ways_of(address);
        let found = match (ways.next(), ways.next()) {
            (None, _) => SlotMatches::default(),
            (Some(only), None) => Some(self.count_hit_at(only)).into(),
            (Some(_), Some(_)) => self.find(address),
        };
        debug_assert_eq!(found.is_empty(), self.find(address).is_empty(), "a hit takes no slot away");
        found
    }

    /// Returns whether an address has a slot, and one of its buckets has a free place for another slot.
    pub(super) fn has_room_beside(&self, address: Address) -> bool {
        let is_known = self.ways_of(address).next().is_some();
        let AddressPlaces { first, second, .. } = self.places_of(address);
        is_known && [first, second].into_iter().any(|bucket| self.empty_way(bucket).is_some())
    }

    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    /// Checks the number of slots, that their positions are in a segment, and that lookups of their addresses find
    /// them.
    pub(super) fn check(&self, geometry: &SegmentGeometry) {
        if self.bytes.is_empty() {
            assert_eq!(self.entries, 0, "no slots without memory");
            return;
        }
        let mut count = 0;
        for (at, packed) in self.slots() {
            let slot = self.widths.unpack(packed);
            assert!(geometry.segment_of(slot.position).is_some(), "a slot at {:?} is in no segment", slot.position);
            let address = self.address_of(at.0, self.widths.tag_of(packed));
            assert!(self.ways_of(address).any(|found| found == at), "a slot is found by its address");
            count += 1;
        }
        assert_eq!(count, self.entries, "slots are counted");
    }

    fn slot_count(&self) -> u64 {
        u64::from(self.bucket_count) * WAYS as u64
    }

    /// Returns the places of all slots of an address.
    fn ways_of(&self, address: Address) -> impl Iterator<Item = SlotPlace> + use<> {
        let AddressPlaces { first, second, remainder } = self.places_of(address);
        let tag = remainder << 1;
        let matching = |bucket, tag| match self.entries {
            0 => 0,
            _ => image::ways_with_tag(&self.bytes, self.widths, bucket, tag),
        };
        // Both buckets of an address may be the same.
        let in_second = if second == first { 0 } else { matching(second, tag | 1) };
        ways(matching(first, tag)).map(move |way| (first, way)).chain(ways(in_second).map(move |way| (second, way)))
    }

    /// Removes the slots with this address and one of these positions. Returns one of them; `None` if there was none.
    fn take_out(&mut self, address: Address, positions: &[Sector]) -> Option<IndexSlot> {
        let mut taken = None;
        if positions.is_empty() {
            return taken;
        }
        for at in self.ways_of(address) {
            let slot = self.widths.unpack(self.read(at));
            if positions.contains(&slot.position) {
                self.empty(at);
                taken = Some(slot);
            }
        }
        debug_assert!(
            !self.ways_of(address).any(|at| positions.contains(&self.widths.unpack(self.read(at)).position)),
            "no slot of these positions is left"
        );
        taken
    }

    fn take_out_all(&mut self, address: Address) {
        self.ways_of(address).for_each(|at| self.empty(at));
        debug_assert!(self.ways_of(address).next().is_none(), "no slot of the address is left");
    }

    /// Adds a slot if there is a free place. If needed and if memory allows, first replaces the table by a larger
    /// table. Returns whether the slot was added.
    fn put_if_room(&mut self, loose: LooseSlot) -> bool {
        let has_grown = self.is_crowded() && self.grow();
        if self.bytes.is_empty() {
            return false;
        }
        // Two full buckets in a table that is not full: a table of another length maps the address to other buckets.
        self.place(loose) || (!has_grown && self.grow() && self.place(loose))
    }

    /// Adds a slot to a bucket of the present table. Returns `false` if there is no free place.
    fn place(&mut self, loose: LooseSlot) -> bool {
        let places = self.places_of(loose.address);
        let Some(at) = self.room(places) else { return false };
        assert_eq!(self.read(at), 0, "a slot goes where none is");
        self.write(at, self.widths.pack(places.tag_in(at.0), loose.bits), loose.fingerprint);
        self.entries += 1;
        assert!(self.entries <= self.slot_count(), "slots have ways");
        true
    }

    /// Adds a slot. If there is no free place, removes the slot with the fewest hits, and all other slots of that
    /// slot's address, because one of these may be an older record of the same key.
    fn put(&mut self, loose: LooseSlot) -> InsertOutcome {
        if self.put_if_room(loose) {
            return InsertOutcome::New;
        }
        if self.bytes.is_empty() {
            // The budget is used up. One bucket is allocated anyway, because otherwise the index could never hold any
            // of these keys.
            self.budget.overdraw(self.table_bytes(1));
            self.bytes = vec![0; self.table_bytes(1)].into();
        }
        let at = self.least_hit(loose.address);
        let before = self.read(at);
        if before == 0 {
            let placed = self.place(loose);
            assert!(placed, "there is an empty way");
            return InsertOutcome::New;
        }
        let address = self.address_of(at.0, self.widths.tag_of(before));
        self.take_out_all(address);
        assert_eq!(self.read(at), 0, "what is displaced goes with all of its address");
        self.loading.iter_mut().for_each(|loading| loading.note_forgotten(address.into()));
        let placed = self.place(loose);
        assert!(placed, "a way was emptied");
        InsertOutcome::Displaced(self.widths.unpack(before), address.into())
    }

    fn ways_in_use(&self, bucket: u32) -> u16 {
        image::ways_in_use(&self.bytes, self.widths, bucket)
    }

    /// Returns all slots, packed, with their places.
    fn slots(&self) -> impl Iterator<Item = (SlotPlace, u64)> + '_ {
        let used = |bucket| ways(self.ways_in_use(bucket)).map(move |way| (bucket, way));
        (0..self.bucket_count).flat_map(used).map(|at| (at, self.read(at)))
    }

    /// Returns a free place in the emptier of two buckets. If there is none, frees one by moving another slot to its
    /// other bucket.
    fn room(&mut self, AddressPlaces { first, second, .. }: AddressPlaces) -> Option<SlotPlace> {
        let in_first = self.ways_in_use(first);
        let in_second = self.ways_in_use(second);
        let (emptier, used) =
            if in_second.count_ones() < in_first.count_ones() { (second, in_second) } else { (first, in_first) };
        if let Some(empty) = way(!used) {
            debug_assert_eq!(self.read((emptier, empty)), 0, "an unused way is empty");
            return Some((emptier, empty));
        }
        for at in [first, second].into_iter().flat_map(|bucket| (0..WAYS).map(move |way| (bucket, way))) {
            let packed = self.read(at);
            let tag = self.widths.tag_of(packed);
            let other = self.other_bucket(at.0, tag >> 1);
            if other != at.0
                && let Some(empty) = self.empty_way(other)
            {
                let fingerprint = self.loading.as_ref().map_or(0, |loading| loading.fingerprint_at(slot_number(at)));
                // The lowest bit of the tag marks the other bucket.
                let moved = packed ^ 1;
                self.write(empty, moved, fingerprint);
                self.write(at, 0, 0);
                debug_assert_eq!(self.read(empty), moved, "what makes room is kept in its other bucket");
                return Some(at);
            }
        }
        None
    }

    /// Returns the place of the slot with the fewest hits in the two buckets of an address. The search begins at a way
    /// that depends on the address, so that no way is preferred.
    fn least_hit(&self, address: Address) -> SlotPlace {
        let AddressPlaces { first, second, remainder } = self.places_of(address);
        let start = remainder as usize % WAYS;
        let ways = (start..WAYS).chain(0..start);
        let slots = ways.flat_map(|way| [(first, way), (second, way)]);
        let worth = |at: &SlotPlace| match self.read(*at) {
            0 => None,
            packed => Some(self.widths.unpack(packed).hits),
        };
        slots.min_by_key(worth).unwrap_or((first, 0))
    }

    fn empty_way(&self, bucket: u32) -> Option<SlotPlace> {
        way(!self.ways_in_use(bucket)).map(|way| (bucket, way))
    }

    fn read(&self, at: SlotPlace) -> u64 {
        image::read(&self.bytes, self.widths, at)
    }

    fn empty(&mut self, at: SlotPlace) {
        assert!(self.entries > 0 && self.read(at) != 0, "only a slot that is there is emptied");
        self.write(at, 0, 0);
        self.entries -= 1;
    }

    fn write(&mut self, at: SlotPlace, packed: u64, fingerprint: u16) {
        assert!(at.0 < self.bucket_count && at.1 < WAYS, "a way of a bucket");
        self.changed = true;
        self.loading.iter_mut().for_each(|loading| loading.set_fingerprint(slot_number(at), fingerprint));
        image::write(&mut self.bytes, self.widths, at, packed);
    }
}

/// Returns the number of a slot in its partition.
fn slot_number((bucket, way): SlotPlace) -> usize {
    bucket as usize * WAYS + way
}

/// Returns the lowest way in `ways`, in which bit n stands for way n.
fn way(ways: u16) -> Option<usize> {
    (ways != 0).then(|| ways.trailing_zeros() as usize)
}

/// Returns the ways in `set`, in which bit n stands for way n.
fn ways(mut set: u16) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = way(set)?;
        set &= set - 1;
        Some(next)
    })
}
