//! The in-memory index of the HashCache policies. It has a tag and a rank per way for every set of the volume; for
//! policies with entries in the log also a generation, a position and a length.
//!
//! Owns: [`SetShape`], which decides a policy's bits per entry, and [`UnpackedSet`], which changes a set. Keys, and the
//! content of a set's bins, are unknown here. Invariants: the ranks of a set are a permutation. Several ways can
//! have the same tag: the position of each tells them apart, or the way itself if entries are in the bins of the set.
//! The reader of a record compares the key. Cost: a hit renumbers the ranks of one set, without I/O. Source: HashCache
//! (NSDI 2009), SetMem, Log.

pub(crate) mod bits;

use crate::{hash::KeyHash, units::SetNumber};

use bits::{BitCursor, PackedBits};

/// Maximum number of ways (places for entries) in a set.
pub(crate) const WAYS_MAX: usize = 16;

/// The fields of a set, and the number of bits that each takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetShape {
    /// Number of ways of a set, a power of two up to [`WAYS_MAX`].
    pub(crate) ways: u32,
    pub(crate) tag_bits: u32,
    pub(crate) generation_bits: u32,
    pub(crate) position_bits: u32,
    /// Bits of an entry's length, which is counted in blocks.
    pub(crate) length_bits: u32,
    /// Number of ways per set whose position and length are in memory. These are the most recently used ways.
    pub(crate) positions: u32,
}

impl SetShape {
    /// Returns the number of bits of a rank.
    pub(crate) fn rank_bits(&self) -> u32 {
        self.ways.ilog2()
    }

    /// Returns the number of bits of a set.
    pub(crate) fn set_bits(&self) -> u32 {
        self.ways * (self.tag_bits + self.rank_bits() + self.generation_bits)
            + self.positions * (self.position_bits + self.length_bits)
    }

    /// Returns the tag of a key: some bits of its hash that do not select the set. It is never 0, because 0 marks an
    /// empty way.
    pub(crate) fn tag(&self, key_hash: KeyHash) -> u16 {
        let tags = (1 << self.tag_bits) - 1;
        (key_hash.0 % tags) as u16 + 1
    }
}

/// Returns which of `set_count` sets a key belongs to.
pub(crate) fn set_of(key_hash: KeyHash, set_count: u64) -> SetNumber {
    SetNumber(((u128::from(key_hash.0) * u128::from(set_count)) >> u64::BITS) as u64)
}

/// One way of a set: a place for an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetWay {
    /// Tag of the entry; 0 if the way is empty.
    pub(crate) tag: u16,
    /// Position of the way in the order of use; 0 is the most recently used one.
    pub(crate) rank: u8,
    pub(crate) generation: u8,
}

/// The place of an entry in the log. Position 0 means that the position is not in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetPlace {
    pub(crate) position: u64,
    /// Length of the entry in blocks; 0 if lengths are not kept, because [`SetShape::length_bits`] is 0.
    pub(crate) length: u16,
}

/// A set with its fields unpacked. Empty ways have the last ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnpackedSet {
    ways: [SetWay; WAYS_MAX],
    /// Places of the entries in the most recently used ways. The index is the way's rank, not its number.
    places: [SetPlace; WAYS_MAX],
    way_count: usize,
    place_count: usize,
}

/// The place of an entry that is no longer kept in memory, and the entry's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DemotedPlace {
    pub(crate) way: usize,
    pub(crate) place: SetPlace,
}

impl UnpackedSet {
    /// Creates a set without entries.
    pub(crate) fn empty(shape: &SetShape) -> Self {
        let mut ways = [SetWay::default(); WAYS_MAX];
        ways.iter_mut().enumerate().for_each(|(way, slot)| slot.rank = way as u8);
        let way_count = shape.ways as usize;
        let place_count = shape.positions as usize;
        Self { ways, places: [SetPlace::default(); WAYS_MAX], way_count, place_count }
    }

    /// Makes `way` the most recently used one, with its entry at `place`. Memory has places for the most recently used
    /// ways only. If another way's place is dropped for this one, returns it.
    pub(crate) fn promote(&mut self, way: usize, place: SetPlace) -> Option<DemotedPlace> {
        let rank = self.ways[way].rank;
        assert!(way < self.way_count && usize::from(rank) < self.way_count, "a way of the set has one of its ranks");
        let beyond = usize::from(rank) >= self.place_count && self.place_count > 0;
        let dropped = beyond.then(|| {
            let last = self.ways().iter().position(|other| usize::from(other.rank) == self.place_count - 1);
            (last.expect("ranks are a permutation"), self.places[self.place_count - 1])
        });
        for other in &mut self.ways[..self.way_count] {
            other.rank += u8::from(other.rank < rank);
        }
        self.ways[way].rank = 0;
        if self.place_count > 0 {
            let moved = (usize::from(rank) + 1).min(self.place_count);
            self.places[..moved].rotate_right(1);
            self.places[0] = place;
        }
        let (way, place) = dropped.filter(|&(way, place)| self.ways[way].tag != 0 && place.position > 0)?;
        Some(DemotedPlace { way, place })
    }

    /// Puts an entry into `way`, and makes the way the most recently used one. Memory has places for the most recently
    /// used ways only. If another way's place is dropped for this one, returns it.
    pub(crate) fn put(&mut self, way: usize, tag: u16, generation: u8, place: SetPlace) -> Option<DemotedPlace> {
        assert_ne!(tag, 0, "an entry has a tag");
        self.ways[way].tag = tag;
        self.ways[way].generation = generation;
        self.promote(way, place)
    }

    /// Adds an entry as the least recently used one, if the set has an empty way. If memory has no space for the
    /// entry's place, returns the place.
    pub(crate) fn append(&mut self, tag: u16, generation: u8, place: SetPlace) -> Option<DemotedPlace> {
        assert_ne!(tag, 0, "an entry has a tag");
        // Empty ways have the last ranks.
        let rank = self.entries() as usize;
        let way = self.ways().iter().position(|way| usize::from(way.rank) == rank)?;
        self.ways[way].tag = tag;
        self.ways[way].generation = generation;
        if rank < self.place_count {
            self.places[rank] = place;
            return None;
        }
        (self.place_count > 0).then_some(DemotedPlace { way, place })
    }

    /// Empties `way`. The next added entry takes this way.
    pub(crate) fn clear(&mut self, way: usize) {
        assert!(way < self.way_count);
        let rank = self.ways[way].rank;
        for other in &mut self.ways[..self.way_count] {
            other.rank -= u8::from(other.rank > rank);
        }
        self.ways[way] = SetWay { tag: 0, rank: self.way_count as u8 - 1, generation: 0 };
        let from = usize::from(rank);
        if from < self.place_count {
            self.places[from..self.place_count].rotate_left(1);
            // The place of the way that moves up was demoted earlier, so it is not in memory.
            self.places[self.place_count - 1] = SetPlace::default();
        }
    }

    /// Returns the first way with `tag`; `None` if there is none.
    pub(crate) fn find(&self, tag: u16) -> Option<usize> {
        self.ways_with(tag).next()
    }

    /// Returns all ways with `tag`.
    pub(crate) fn ways_with(&self, tag: u16) -> impl Iterator<Item = usize> + '_ {
        self.ways().iter().enumerate().filter(move |(_, way)| way.tag == tag).map(|(at, _)| at)
    }

    /// Returns an empty way, or the least recently used way if all are in use.
    pub(crate) fn least_recent(&self) -> usize {
        let last = self.ways().iter().position(|way| usize::from(way.rank) == self.way_count - 1);
        last.expect("ranks are a permutation")
    }

    /// Returns the place of the entry in `way`; `None` if it is not in memory.
    pub(crate) fn place(&self, way: usize) -> Option<SetPlace> {
        let place = *self.places[..self.place_count].get(usize::from(self.ways[way].rank))?;
        (place.position > 0).then_some(place)
    }

    /// Replaces the place of the entry in `way`, if it is in memory.
    pub(crate) fn set_place(&mut self, way: usize, place: SetPlace) {
        assert!(way < self.way_count, "a way of the set: {way}");
        if self.place(way).is_some() {
            self.places[usize::from(self.ways[way].rank)] = place;
        }
    }

    /// Replaces the generation of `way`, because its entry was moved.
    pub(crate) fn set_generation(&mut self, way: usize, generation: u8) {
        assert!(way < self.way_count, "a way of the set: {way}");
        self.ways[way].generation = generation;
    }

    /// Returns all ways of the set.
    pub(crate) fn ways(&self) -> &[SetWay] {
        &self.ways[..self.way_count]
    }

    /// Returns the number of ways that are in use.
    pub(crate) fn entries(&self) -> u64 {
        self.ways().iter().filter(|way| way.tag != 0).count() as u64
    }

    /// Checks that each rank occurs once, and that empty ways have the last ranks.
    pub(crate) fn check(&self) {
        let mut ranks = 0_u32;
        let entries = self.entries();
        for way in self.ways() {
            ranks |= 1 << way.rank;
            assert_eq!(way.tag != 0, u64::from(way.rank) < entries, "empty ways are used least recently");
        }
        assert_eq!(ranks, (1 << self.way_count) - 1, "ranks are a permutation");
        let empty = &self.places[(entries as usize).min(self.place_count)..self.place_count];
        assert!(empty.iter().all(|place| place.position == 0), "an empty way has no place");
    }

    /// Creates a set that stands for unknown content. Its mark is that several ways have the same rank, which occurs in
    /// no other set.
    pub(crate) fn unknown(shape: &SetShape) -> Self {
        let mut set = Self::empty(shape);
        set.ways.iter_mut().for_each(|way| way.rank = 1);
        set
    }

    /// Returns this set; `None` if it stands for unknown content.
    pub(crate) fn known(self) -> Option<Self> {
        (self.ways[0].rank != self.ways[1].rank).then_some(self)
    }

    /// Returns whether all fields are zero, because the set was never written.
    fn is_untouched(&self) -> bool {
        self.ways().iter().all(|way| *way == SetWay::default())
    }

    pub(crate) fn unpack(shape: &SetShape, bits: &PackedBits, at: u64) -> Self {
        let mut set = Self::empty(shape);
        let mut cursor = BitCursor::at(at);
        for way in &mut set.ways[..shape.ways as usize] {
            way.tag = cursor.read(bits, shape.tag_bits) as u16;
            way.rank = cursor.read(bits, shape.rank_bits()) as u8;
            way.generation = cursor.read(bits, shape.generation_bits) as u8;
        }
        for place in &mut set.places[..shape.positions as usize] {
            place.position = cursor.read(bits, shape.position_bits);
            place.length = cursor.read(bits, shape.length_bits) as u16;
        }
        set
    }

    pub(crate) fn pack(&self, shape: &SetShape, bits: &mut PackedBits, at: u64) {
        assert_eq!(
            (self.way_count, self.place_count),
            (shape.ways as usize, shape.positions as usize),
            "a set of the shape"
        );
        let mut cursor = BitCursor::at(at);
        for way in self.ways() {
            cursor.write(bits, shape.tag_bits, u64::from(way.tag));
            cursor.write(bits, shape.rank_bits(), u64::from(way.rank));
            cursor.write(bits, shape.generation_bits, u64::from(way.generation));
        }
        for place in &self.places[..self.place_count] {
            cursor.write(bits, shape.position_bits, place.position);
            cursor.write(bits, shape.length_bits, u64::from(place.length));
        }
    }
}

/// All sets of a volume, packed without gaps.
pub(crate) struct PackedSets {
    bits: PackedBits,
    shape: SetShape,
    /// Whether a set that was never written counts as empty. If `false`, such a set's content is unknown.
    fresh: bool,
    /// Whether the content of every set is known. Once `false`, it stays so: the unknown sets are not counted, so
    /// nothing shows when the last one has become known.
    all_known: bool,
    set_count: u64,
    entries: u64,
}

impl PackedSets {
    /// Creates `set_count` sets. With `fresh`, all sets are empty, otherwise their content is unknown.
    pub(crate) fn new(shape: SetShape, set_count: u64, fresh: bool) -> Self {
        assert!(shape.ways.is_power_of_two() && (2..=WAYS_MAX as u32).contains(&shape.ways));
        assert!(shape.positions <= shape.ways);
        let bits = PackedBits::new(set_count * u64::from(shape.set_bits()));
        Self { bits, shape, fresh, all_known: fresh, set_count, entries: 0 }
    }

    /// Returns a set, or `None` if its content is unknown.
    pub(crate) fn read(&self, set: SetNumber) -> Option<UnpackedSet> {
        let found = UnpackedSet::unpack(&self.shape, &self.bits, self.at(set));
        if self.fresh && found.is_untouched() { Some(UnpackedSet::empty(&self.shape)) } else { found.known() }
    }

    /// Stores the content of a set.
    pub(crate) fn write(&mut self, set: SetNumber, contents: &UnpackedSet) {
        assert!(set.0 < self.set_count, "{set:?} of {}", self.set_count);
        let at = self.at(set);
        let before = UnpackedSet::unpack(&self.shape, &self.bits, at).entries();
        assert!(before <= self.entries, "the entries of a set are counted");
        self.entries = self.entries - before + contents.entries();
        contents.pack(&self.shape, &mut self.bits, at);
    }

    /// Marks the content of a set as unknown.
    pub(crate) fn forget(&mut self, set: SetNumber) {
        self.all_known = false;
        self.write(set, &UnpackedSet::unknown(&self.shape));
        debug_assert!(self.read(set).is_none(), "nothing is known of what is forgotten");
    }

    /// Returns whether [`Self::entries`] counts all entries, because the content of every set is known.
    pub(crate) fn are_all_known(&self) -> bool {
        self.all_known
    }

    /// Returns which fields the sets have.
    pub(crate) fn shape(&self) -> &SetShape {
        &self.shape
    }

    /// Returns the memory that the sets take, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.bits.memory_bytes()
    }

    /// Returns the number of entries in sets with known content.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Checks every set, and that the number of entries is right.
    pub(crate) fn check(&self) {
        let mut entries = 0;
        for set in (0..self.set_count).map(SetNumber) {
            let found = UnpackedSet::unpack(&self.shape, &self.bits, self.at(set));
            entries += found.entries();
            self.read(set).iter().for_each(UnpackedSet::check);
        }
        assert_eq!(entries, self.entries, "entries are counted");
    }

    /// Returns the number of ways in all sets together.
    pub(crate) fn way_count(&self) -> u64 {
        self.set_count * u64::from(self.shape.ways)
    }

    fn at(&self, set: SetNumber) -> u64 {
        set.0 * u64::from(self.shape.set_bits())
    }
}

#[cfg(test)]
mod tests;
