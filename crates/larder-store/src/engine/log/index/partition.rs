//! One lock's share of the index: its buckets as packed bytes.
//!
//! Does not: know keys or hashes, only [`BucketTag`]s. An address (pair of buckets, tag) has as many slots as there are
//! records that may be its: of different keys, or of one key whose older record nobody has told apart yet. Invariant: as
//! for [`super::Index`]. Cost of an operation: two buckets scanned, up to 32 more when both are full.

use super::{
    Inserted, Matches, WAYS,
    image::{self, At, FILL_BYTES, Ways},
    loading::{Loading, fingerprint},
    slot::{Slot, SlotWidths},
};
use crate::{
    hash::KeyHash,
    units::{Geometry, Sector},
};

/// Where to look for an address: one of its two buckets, and its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BucketTag {
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
    /// While an earlier run's entries are loaded: what is known to be newer.
    loading: Option<Loading>,
    /// Whether any slot came, went or moved since the last image.
    changed: bool,
}

/// A bucket, and what a look into it shows.
#[derive(Clone, Copy)]
struct Bucket {
    number: u32,
    ways: Ways,
}

impl Partition {
    pub(super) fn new(bucket_count: u32, widths: SlotWidths) -> Self {
        Self { bytes: Box::default(), bucket_count, widths, entries: 0, loading: None, changed: false }
    }

    /// Counts a hit of the address's slot at `position`, or of all its slots.
    pub(super) fn count_hit(&mut self, place: BucketTag, position: Option<Sector>) {
        for at in self.ways_of(place) {
            let slot = self.widths.unpack(self.read(at));
            if slot.hits < Slot::HITS_MAX && position.is_none_or(|position| slot.position == position) {
                let counted = Slot { hits: slot.hits + 1, ..slot };
                // Not `write`: a hit is no change that an image has to have.
                image::write(&mut self.bytes, self.widths, at, self.widths.pack(place.tag, counted));
                debug_assert_eq!(self.widths.unpack(self.read(at)), counted, "a hit changes nothing else of a slot");
            }
        }
    }

    /// Adds a slot of `key_hash` in the stead of those at `replaced`, which are gone. Slots of the same address
    /// elsewhere stay.
    pub(super) fn insert(&mut self, key_hash: KeyHash, place: BucketTag, slot: Slot, replaced: &[Sector]) -> Inserted {
        self.allocate();
        if let Some(loading) = &mut self.loading {
            loading.note_inserted(key_hash);
        }
        let before = self.take_out(place, replaced);
        let inserted = self.put(place, self.widths.pack(place.tag, slot), fingerprint(key_hash));
        assert!(self.entries > 0, "a slot that was inserted is counted");
        match before {
            Some(before) if inserted == Inserted::New => Inserted::Replaced(before),
            _ => inserted,
        }
    }

    /// Removes the address's slots at `positions`. Returns how many there were.
    pub(super) fn remove(&mut self, place: BucketTag, positions: &[Sector]) -> u64 {
        let before = self.entries;
        if self.take_out(place, positions).is_some()
            && let Some(address) = self.loading.is_some().then(|| self.address(place))
            && let Some(loading) = &mut self.loading
        {
            loading.note_forgotten(address);
        }
        assert!(
            self.entries <= before && before - self.entries <= positions.len() as u64 * 2 * WAYS as u64,
            "slots at these positions go"
        );
        before - self.entries
    }

    /// While loading: what is loaded later of this key is older than its removal, whose record is at `tombstone`.
    pub(super) fn note_removed(&mut self, key_hash: KeyHash, place: BucketTag, tombstone: Option<u64>) {
        let address = self.address(place);
        if let Some(loading) = &mut self.loading {
            loading.note_removed(key_hash, address, tombstone);
        }
    }

    pub(super) fn begin_loading(&mut self) {
        assert!(self.loading.is_none(), "a run loads once");
        self.loading = Some(Loading::new(self.bucket_count as usize * WAYS));
    }

    pub(super) fn end_loading(&mut self) {
        self.loading = None;
    }

    /// Inserts unless something newer is known of the key. Never displaces: what is loaded later is older.
    pub(super) fn load(&mut self, key_hash: KeyHash, place: BucketTag, packed: u64) {
        let address = self.address(place);
        let Some(loading) = &self.loading else { return };
        if loading.is_newer(key_hash, address) {
            return;
        }
        self.allocate();
        let is_same =
            |at: At| self.loading.as_ref().is_some_and(|loading| loading.may_be_of(slot_number(at), key_hash));
        if self.ways_of(place).any(is_same) {
            return;
        }
        match self.make_room(place) {
            Some(at) => {
                assert_eq!(self.read(at), 0, "a slot goes where none is");
                self.write(at, packed, fingerprint(key_hash));
                self.entries += 1;
            }
            None => self.loading.iter_mut().for_each(|loading| loading.note_forgotten(address)),
        }
    }

    /// Notes that nothing older counts of a key that this record removed, unless something newer is known of it.
    pub(super) fn load_removal(&mut self, key_hash: KeyHash, place: BucketTag, packed: u64) {
        let is_same =
            |at: At| self.loading.as_ref().is_some_and(|loading| loading.may_be_of(slot_number(at), key_hash));
        let is_known = self.ways_of(place).any(is_same);
        let address = self.address(place);
        if let Some(loading) = &mut self.loading
            && !is_known
            && !loading.is_newer(key_hash, address)
        {
            loading.note_removed(key_hash, address, Some(packed));
        }
    }

    pub(super) fn take_image(&mut self, target: &mut [u8]) {
        debug_assert_eq!(
            target.len(),
            self.bucket_count as usize * self.widths.bucket_bytes(),
            "an image of all buckets"
        );
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

    /// Puts an image beneath what is here. Where both have slots of an address they stay side by side, as nobody can
    /// tell yet whether they are of one key: those from here are newer, and are looked at first. Where an image has slots of
    /// the address of a key that was removed, the removal's record gets a slot, for the same reason. Where there is no room
    /// for both, the image's slots of that address go: most of them are older records of the same key.
    pub(super) fn load_image(&mut self, image: &[u8]) {
        let newer: Vec<(At, u64)> = if self.entries == 0 { Vec::new() } else { self.slots().collect() };
        let mut loading = self.loading.take().unwrap_or_else(|| Loading::new(self.bucket_count as usize * WAYS));
        let newer: Vec<_> =
            newer.into_iter().map(|(at, packed)| (at.0, packed, loading.fingerprint_at(slot_number(at)))).collect();
        loading.forget_fingerprints();
        self.allocate();
        let len = self.bytes.len() - FILL_BYTES;
        self.bytes[..len].copy_from_slice(image);
        self.entries = self.slots().count() as u64;
        assert!(self.entries <= u64::from(self.bucket_count) * WAYS as u64);
        self.changed = false;
        for &address in loading.forgotten() {
            self.take_out_all(place_of(address));
        }
        let removed: Vec<_> = loading.removed().collect();
        self.loading = Some(loading);
        for (key_hash, address, tombstone) in removed {
            let place = place_of(address);
            if self.ways_of(place).next().is_some() && !self.put_if_room(place, tombstone, fingerprint(key_hash)) {
                self.take_out_all(place);
            }
        }
        for (bucket, packed, fingerprint) in newer {
            let place = BucketTag { bucket, tag: SlotWidths::packed_tag(packed) };
            if !self.put_if_room(place, packed, fingerprint) {
                self.take_out_all(place);
                self.put(place, packed, fingerprint);
            }
        }
    }

    /// All slots of an address, in no order.
    pub(super) fn find(&self, place: BucketTag) -> Matches {
        self.ways_of(place).map(|at| self.widths.unpack(self.read(at))).collect()
    }

    /// Returns whether the address has a slot, and one of its buckets an empty way.
    pub(super) fn has_room_beside(&self, place: BucketTag) -> bool {
        let is_known = self.ways_of(place).next().is_some();
        is_known
            && [place.bucket, self.other_bucket(place.bucket, place.tag)].iter().any(|&b| self.empty_way(b).is_some())
    }

    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    /// Checks that slots are counted, begin within a segment, and are found by their address.
    pub(super) fn check(&self, geometry: &Geometry) {
        if self.bytes.is_empty() {
            assert_eq!(self.entries, 0, "no slots without memory");
            return;
        }
        let mut count = 0;
        for ((bucket, way), packed) in self.slots() {
            let (slot, tag) = (self.widths.unpack(packed), SlotWidths::packed_tag(packed));
            assert!(geometry.segment_of(slot.position).is_some(), "a slot at {:?} is in no segment", slot.position);
            let other = self.other_bucket(bucket, tag);
            assert_eq!(self.other_bucket(other, tag), bucket, "buckets of a tag lead to each other");
            assert!(
                self.ways_of(BucketTag { bucket, tag }).any(|at| at == (bucket, way)),
                "a slot is found by its address"
            );
            count += 1;
        }
        assert_eq!(count, self.entries, "slots are counted");
    }

    fn allocate(&mut self) {
        if self.bytes.is_empty() {
            assert_eq!(self.entries, 0, "no slots without memory");
            self.bytes = vec![0; self.bucket_count as usize * self.widths.bucket_bytes() + FILL_BYTES].into();
        }
    }

    /// Where the slots of an address are.
    fn ways_of(&self, place: BucketTag) -> impl Iterator<Item = At> + use<> {
        let nothing = Bucket { number: place.bucket, ways: Ways { matching: 0, used: 0 } };
        let [first, second] = if self.entries == 0 { [nothing; 2] } else { self.look(place) };
        // A bucket may be its own other one.
        let second_matching = if second.number == first.number { 0 } else { second.ways.matching };
        ways(first.ways.matching)
            .map(move |way| (first.number, way))
            .chain(ways(second_matching).map(move |way| (second.number, way)))
    }

    /// Empties the ways of an address whose slots are at these positions. Returns one of the slots.
    fn take_out(&mut self, place: BucketTag, positions: &[Sector]) -> Option<Slot> {
        let mut taken = None;
        if positions.is_empty() {
            return taken;
        }
        for at in self.ways_of(place) {
            let slot = self.widths.unpack(self.read(at));
            if positions.contains(&slot.position) {
                self.empty(at);
                taken = Some(slot);
            }
        }
        debug_assert!(
            !self.ways_of(place).any(|at| positions.contains(&self.widths.unpack(self.read(at)).position)),
            "no slot of these positions is left"
        );
        taken
    }

    fn take_out_all(&mut self, place: BucketTag) {
        self.ways_of(place).for_each(|at| self.empty(at));
    }

    fn put_if_room(&mut self, place: BucketTag, packed: u64, fingerprint: u16) -> bool {
        let Some(at) = self.make_room(place) else { return false };
        assert_eq!(self.read(at), 0, "a slot goes where none is");
        self.write(at, packed, fingerprint);
        self.entries += 1;
        true
    }

    /// Puts a packed slot where there is room; where there is none it displaces the least hit, and with it every other
    /// slot of that one's address: one of them might be of the same key, and older.
    fn put(&mut self, place: BucketTag, packed: u64, fingerprint: u16) -> Inserted {
        if self.put_if_room(place, packed, fingerprint) {
            return Inserted::New;
        }
        let at = self.least_hit(place);
        let before = self.read(at);
        let displaced = BucketTag { bucket: at.0, tag: SlotWidths::packed_tag(before) };
        let address = self.address(displaced);
        self.take_out_all(displaced);
        assert_eq!(self.read(at), 0, "what is displaced goes with all of its address");
        self.loading.iter_mut().for_each(|loading| loading.note_forgotten(address));
        self.write(at, packed, fingerprint);
        self.entries += 1;
        Inserted::Displaced(self.widths.unpack(before), address)
    }

    fn look(&self, place: BucketTag) -> [Bucket; 2] {
        [place.bucket, self.other_bucket(place.bucket, place.tag)].map(|number| self.look_in(number, place.tag))
    }

    fn look_in(&self, number: u32, tag: u16) -> Bucket {
        Bucket { number, ways: image::look(&self.bytes, self.widths, number, tag) }
    }

    /// All slots with where they are.
    fn slots(&self) -> impl Iterator<Item = (At, u64)> + '_ {
        let all = (0..self.bucket_count).flat_map(|bucket| (0..WAYS).map(move |way| (bucket, way)));
        all.map(|at| (at, self.read(at))).filter(|&(_, packed)| packed != 0)
    }

    /// An empty slot for `place`.
    fn make_room(&mut self, place: BucketTag) -> Option<At> {
        self.room(self.look(place))
    }

    /// An empty slot in the emptier of two buckets, or one freed by moving a neighbour to that neighbour's
    /// other bucket.
    fn room(&mut self, [first, second]: [Bucket; 2]) -> Option<At> {
        let emptier = if second.ways.used.count_ones() < first.ways.used.count_ones() { second } else { first };
        if let Some(empty) = way(!emptier.ways.used) {
            debug_assert_eq!(self.read((emptier.number, empty)), 0, "an unused way is empty");
            return Some((emptier.number, empty));
        }
        for at in [first.number, second.number].into_iter().flat_map(|bucket| (0..WAYS).map(move |way| (bucket, way))) {
            let packed = self.read(at);
            let other = self.other_bucket(at.0, SlotWidths::packed_tag(packed));
            if other != at.0
                && let Some(empty) = self.empty_way(other)
            {
                let fingerprint = self.loading.as_ref().map_or(0, |loading| loading.fingerprint_at(slot_number(at)));
                self.write(empty, packed, fingerprint);
                self.write(at, 0, 0);
                debug_assert_eq!(self.read(empty), packed, "what makes room is kept in its other bucket");
                return Some(at);
            }
        }
        None
    }

    /// The least hit of the 32 slots; the tag decides where the search begins, so that no way is favoured.
    fn least_hit(&self, place: BucketTag) -> At {
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
    pub(super) fn address(&self, place: BucketTag) -> u64 {
        let least = place.bucket.min(self.other_bucket(place.bucket, place.tag));
        u64::from(least) << 16 | u64::from(place.tag)
    }

    fn empty_way(&self, bucket: u32) -> Option<At> {
        way(!self.look_in(bucket, 0).ways.used).map(|way| (bucket, way))
    }

    fn read(&self, at: At) -> u64 {
        image::read(&self.bytes, self.widths, at)
    }

    fn empty(&mut self, at: At) {
        assert!(self.entries > 0 && self.read(at) != 0, "only a slot that is there is emptied");
        self.write(at, 0, 0);
        self.entries -= 1;
    }

    fn write(&mut self, at: At, packed: u64, fingerprint: u16) {
        assert!(at.0 < self.bucket_count && at.1 < WAYS, "a way of a bucket");
        self.changed = true;
        self.loading.iter_mut().for_each(|loading| loading.set_fingerprint(slot_number(at), fingerprint));
        image::write(&mut self.bytes, self.widths, at, packed);
    }
}

/// A place of an address, see [`Partition::address`].
fn place_of(address: u64) -> BucketTag {
    BucketTag { bucket: (address >> 16) as u32, tag: address as u16 }
}

/// The number of a way in its partition.
fn slot_number((bucket, way): At) -> usize {
    bucket as usize * WAYS + way
}

/// The first way of a set.
fn way(ways: u16) -> Option<usize> {
    (ways != 0).then(|| ways.trailing_zeros() as usize)
}

/// The ways of a set.
fn ways(mut set: u16) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = way(set)?;
        set &= set - 1;
        Some(next)
    })
}
