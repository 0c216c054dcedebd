//! The index of HashCache's policies on the log: the tags, ranks, generations and positions of each set.
//!
//! It does not know segments. A position's *generation* is the number of times the log has wrapped there. If it has
//! changed, the entry was overwritten. The log knows that number, so overwriting updates nothing here. The index keeps
//! four bits of it, which repeat after 16 rounds; the reader of the record compares the whole sequence.
//!
//! Keys of a set with the same tag each keep their way, and a lookup gets the slots of all of them. The caller of an
//! insertion names the slots that it replaces. A key has one way, or two if its record could not be read when it was
//! replaced; then the newer record counts. While an earlier run's entries are loaded, every key that got or lost a way
//! is remembered by its whole hash.
//!
//! If a shape keeps positions of only the most recently used ways, the other positions are in the position file, or
//! wait to be written there ([`Demoted`]), by the number of their way. A lookup or an insertion of a tag with such ways
//! reads the file first and restores their positions. Cost: one set unpacked and packed under the lock of a partition,
//! without I/O. Source: HashCache (NSDI 2009), LogN, Log and LogLRU.

pub(crate) mod demoted;
pub(crate) mod elsewhere;

use super::{
    index::{IndexSlot, InsertOutcome, LoadedRecord, SizeClass, SlotMatches},
    layout::MovedRecord,
};
use crate::sync::IgnorePoison;
use crate::{
    engine::kit::sets::{PackedSets, SetPlace, SetShape, SetWay, UnpackedSet, set_of},
    format::record::RECORD_SECTORS_MAX,
    hash::KeyHash,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    units::{Sector, SetNumber},
};
use demoted::DemotedPlaces;
use std::collections::HashSet;

/// Number of sets under one lock.
const PARTITION_SETS: u64 = 1024;
/// The index counts lengths in units of this number of sectors.
const LENGTH_SECTORS: u64 = 16;

/// Function that returns how often the log has wrapped around at a position.
pub(crate) type Generation = Box<dyn Fn(Sector) -> u64 + Send + Sync>;

/// The index of one volume.
pub(crate) struct LocatedSets {
    partitions: Box<[Mutex<LocatedPartition>]>,
    shape: SetShape,
    set_count: u64,
    generation: Generation,
    /// Length to read for an entry whose own length is not in memory.
    unknown_size: SizeClass,
    /// Number of entries that were found to be overwritten since the last [`Self::take_overwritten`].
    overwritten: AtomicU64,
    /// Positions that wait for the position file; `None` if all positions are in memory.
    demoted: Option<DemotedPlaces>,
}

struct LocatedPartition {
    sets: PackedSets,
    /// Keys for which something newer than the records being loaded is known; `None` if nothing is being loaded.
    superseded: Option<HashSet<KeyHash>>,
}

/// An address: a set, and a tag in it.
#[derive(Clone, Copy)]
struct AddressPlace {
    partition: usize,
    set: SetNumber,
    tag: u16,
}

impl AddressPlace {
    /// Returns the address of entries with `tag` in a set of the volume.
    fn of(set: SetNumber, tag: u16) -> Self {
        Self { partition: (set.0 / PARTITION_SETS) as usize, set: SetNumber(set.0 % PARTITION_SETS), tag }
    }

    /// Returns the number of the set on the volume.
    fn number(self) -> SetNumber {
        SetNumber(self.partition as u64 * PARTITION_SETS + self.set.0)
    }
}

impl LocatedSets {
    /// Creates an index for `entries` entries. `unknown_size` is how much to read of an entry if the index has no
    /// lengths. About `waiting` positions can wait for the position file.
    pub(crate) fn new(
        shape: SetShape,
        entries: u64,
        waiting: usize,
        unknown_size: SizeClass,
        generation: Generation,
    ) -> Self {
        let set_count = Self::sets_for(shape.ways, entries);
        let partition = |index: u64| {
            let sets = PARTITION_SETS.min(set_count - index * PARTITION_SETS);
            Mutex::new(LocatedPartition { sets: PackedSets::new(shape, sets, true), superseded: None })
        };
        let partitions = (0..set_count.div_ceil(PARTITION_SETS)).map(partition).collect();
        let demoted = (shape.positions < shape.ways).then(|| DemotedPlaces::new(waiting));
        Self { partitions, shape, set_count, generation, unknown_size, overwritten: AtomicU64::new(0), demoted }
    }

    /// Returns the number of sets for `entries`, with this number of ways.
    pub(crate) fn sets_for(ways: u32, entries: u64) -> u64 {
        entries.div_ceil(u64::from(ways)).max(1)
    }

    /// Returns the memory that the index takes when it is full, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let partitions = self.partitions.iter();
        let sets = partitions
            .map(|partition| lock(partition).sets.memory_bytes() + size_of::<Mutex<LocatedPartition>>() as u64);
        sets.sum::<u64>() + self.demoted.as_ref().map_or(0, DemotedPlaces::memory_bytes)
    }

    /// Returns the maximum number of entries in the index.
    pub(crate) fn entries_max(&self) -> u64 {
        self.set_count * u64::from(self.shape.ways)
    }

    /// Returns the number of entries. Some of them may already be overwritten in the log, because the index notices
    /// this only later.
    pub(crate) fn entries(&self) -> u64 {
        self.partitions.iter().map(|partition| lock(partition).sets.entries()).sum()
    }

    /// Returns the slots at the address of `key_hash`. If exactly one slot is there and `uses` is set, marks it as the
    /// most recently used. Returns no slots if the position of one of them is only in the position file.
    pub(crate) fn find(&self, key_hash: KeyHash, uses: bool) -> SlotMatches {
        let (mut partition, at) = self.locate(key_hash);
        let Some((mut set, way)) = self.present(&mut partition, at) else { return SlotMatches::default() };
        if self.filed_ways(at, &set).next().is_some() {
            return SlotMatches::default();
        }
        let matches = self.slots(at, &set);
        if uses && matches.only().is_some() {
            self.use_way(&mut partition, at, &mut set, way);
        }
        matches
    }

    /// Returns the slots at `key_hash`'s address whose positions are in memory, without counting a use.
    pub(crate) fn peek(&self, key_hash: KeyHash) -> SlotMatches {
        let (mut partition, at) = self.locate(key_hash);
        self.present(&mut partition, at).map(|(set, _)| self.slots(at, &set)).unwrap_or_default()
    }

    /// Makes the entry at `position` the most recently used one. Without a position, chooses the first entry at
    /// `key_hash`'s address.
    pub(crate) fn count_hit(&self, key_hash: KeyHash, position: Option<Sector>) {
        let (mut partition, at) = self.locate(key_hash);
        let Some((mut set, first)) = self.present(&mut partition, at) else { return };
        let way = position.map_or(Some(first), |position| self.way_at(at, &set, position));
        if let Some(way) = way {
            self.use_way(&mut partition, at, &mut set, way);
        }
    }

    /// Returns whether there is an entry at `key_hash`'s address, even if its position is only in the position file.
    pub(crate) fn knows(&self, key_hash: KeyHash) -> bool {
        let (mut partition, at) = self.locate(key_hash);
        self.present(&mut partition, at).is_some()
    }

    /// Adds `slot` for a key, in place of the key's entries at `replaced`. Also drops the entries of its address whose
    /// positions are only in the position file. These positions were written after the caller had read the file, and
    /// one of the entries may be the key's.
    pub(crate) fn insert(&self, key_hash: KeyHash, slot: IndexSlot, replaced: &[Sector]) -> InsertOutcome {
        let (mut partition, at) = self.locate(key_hash);
        partition.supersede(key_hash);
        let mut set = partition.read(at);
        let own = self.clear_replaced(at, &mut set, replaced);
        let is_overwritten = |&way: &usize| set.place(way).is_some_and(|place| self.is_overwritten(&set, way, place));
        let overwritten = (0..set.ways().len()).find(is_overwritten);
        let way = own.or(overwritten).unwrap_or_else(|| set.least_recent());
        let is_own = own == Some(way);
        let before = set.ways()[way].tag;
        let place = self.place_of(at, &set, way).filter(|_| before != 0);
        let is_elsewhere = before != 0 && place.is_none();
        let inserted = match place.filter(|place| !self.is_overwritten(&set, way, *place)) {
            Some(place) if is_own => InsertOutcome::Replaced(self.slot(place)),
            Some(place) => InsertOutcome::Displaced(self.slot(place), self.address_of(at, before)),
            None if is_elsewhere && !is_own => {
                InsertOutcome::Displaced(self.slot(SetPlace::default()), self.address_of(at, before))
            }
            None => {
                self.overwritten.fetch_add(u64::from(before != 0 && !is_elsewhere), Ordering::Relaxed);
                InsertOutcome::New
            }
        };
        self.demoted.iter().for_each(|demoted| demoted.remove(at.number(), way));
        let place = self.place(&slot, slot.size.sectors());
        let dropped = set.put(way, at.tag, self.generation_bits(slot.position), place);
        assert!(set.ways()[way].tag == at.tag, "an entry is found by its tag");
        self.demote(at, &mut set, dropped);
        partition.sets.write(at.set, &set);
        inserted
    }

    /// Returns a number that identifies `key_hash`'s address.
    pub(crate) fn address(&self, key_hash: KeyHash) -> u64 {
        let set = set_of(key_hash, self.set_count);
        set.0 << u16::BITS | u64::from(self.shape.tag(key_hash))
    }

    /// Removes the entry at `key_hash`'s address and `position`. Returns whether there was such an entry.
    pub(crate) fn remove_at(&self, key_hash: KeyHash, position: Sector) -> bool {
        let (mut partition, at) = self.locate(key_hash);
        let Some((mut set, _)) = self.present(&mut partition, at) else {
            partition.supersede(key_hash);
            return false;
        };
        // In a set whose positions are partly in a file, an entry without a position in memory has position 0.
        let is_there = |way| self.place_of(at, &set, way).unwrap_or_default().position == position.0;
        let Some(way) = set.ways_with(at.tag).find(|&way| is_there(way)) else { return false };
        partition.supersede(key_hash);
        self.clear(at, &mut set, way);
        partition.sets.write(at.set, &set);
        true
    }

    /// Makes the index ignore older records of a removed key that are loaded later. Also removes the entries of the
    /// key's address whose positions are only in the position file, because a removal does not read which of them is
    /// the key's.
    pub(crate) fn note_removed(&self, key_hash: KeyHash) {
        let (mut partition, at) = self.locate(key_hash);
        partition.supersede(key_hash);
        let mut set = partition.read(at);
        loop {
            let filed = self.filed_ways(at, &set).next();
            let Some(way) = filed else { break };
            self.clear(at, &mut set, way);
        }
        partition.sets.write(at.set, &set);
    }

    /// Returns the number of entries that were found to be overwritten since the last call.
    pub(crate) fn take_overwritten(&self) -> u64 {
        // The count is nearly always 0, and a plain load does not take the cache line from other cores.
        if self.overwritten.load(Ordering::Relaxed) == 0 { 0 } else { self.overwritten.swap(0, Ordering::Relaxed) }
    }

    /// Notes the new positions of records that moved at the same time.
    ///
    /// Finds all entries before it changes one, because the old position of one record can be the new position of
    /// another.
    pub(crate) fn relocate(&self, moved: &[MovedRecord]) {
        let is_present = |moved: &&MovedRecord| self.peek(moved.key_hash).at(moved.from).is_some();
        let present: Vec<&MovedRecord> = moved.iter().filter(is_present).collect();
        present.into_iter().for_each(|moved| self.relocate_entry(moved));
    }

    /// Notes the new position of a record, and how many sectors to read there.
    fn relocate_entry(&self, &MovedRecord { key_hash, from, to, sectors, .. }: &MovedRecord) {
        let (mut partition, at) = self.locate(key_hash);
        let Some((mut set, _)) = self.present(&mut partition, at) else { return };
        // An entry that moves to another segment gets the generation of its new place.
        let generation = self.generation_bits(to);
        // Of ways with the same tag, any that has this position may take the new one: nothing else tells them apart.
        let in_memory = set.ways_with(at.tag).find_map(|way| {
            let place = set.place(way).filter(|place| place.position == from.0)?;
            Some((way, place))
        });
        if let Some((way, place)) = in_memory {
            set.set_place(way, self.place(&IndexSlot { position: to, ..self.slot(place) }, sectors));
            set.set_generation(way, generation);
            partition.sets.write(at.set, &set);
            return;
        }
        // A position that is already in the file is not updated: the lookup finds another record there, which is a
        // miss.
        let relocated =
            |way| self.demoted.as_ref().is_some_and(|demoted| demoted.relocate(at.number(), way, from.0, to.0));
        let waiting = set.ways_with(at.tag).find(|&way| set.place(way).is_none() && relocated(way));
        if let Some(way) = waiting {
            set.set_generation(way, generation);
            partition.sets.write(at.set, &set);
        }
    }

    /// Begins to load the entries of an earlier run, the newest first.
    pub(crate) fn begin_loading(&self) {
        self.partitions.iter().for_each(|partition| lock(partition).superseded = Some(HashSet::new()));
        self.demoted.iter().for_each(|demoted| demoted.set_loading(true));
    }

    /// Ends the loading of the entries of an earlier run.
    pub(crate) fn end_loading(&self) {
        self.partitions.iter().for_each(|partition| lock(partition).superseded = None);
        self.demoted.iter().for_each(|demoted| demoted.set_loading(false));
    }

    /// Loads the records in the order of `news`. Ignores a record if something newer is known for its key.
    pub(crate) fn load(&self, news: &[LoadedRecord]) {
        for loaded in news {
            let (mut partition, at) = self.locate(loaded.key_hash);
            if !partition.supersede(loaded.key_hash) {
                continue;
            }
            let Some(slot) = loaded.slot() else { continue };
            let mut set = partition.read(at);
            let place = self.place(&slot, slot.size.sectors());
            let dropped = set.append(at.tag, self.generation_bits(slot.position), place);
            self.demote(at, &mut set, dropped);
            partition.sets.write(at.set, &set);
        }
    }

    /// Checks every set, and that the number of entries is right.
    pub(crate) fn check(&self) {
        self.partitions.iter().for_each(|partition| lock(partition).sets.check());
    }

    /// Clears the ways of the entries at `replaced`, and the ways of entries whose positions are only in the position
    /// file. Leaves one of these ways for the caller to reuse, and returns that way; `None` if there are no such
    /// entries.
    fn clear_replaced(&self, at: AddressPlace, set: &mut UnpackedSet, replaced: &[Sector]) -> Option<usize> {
        let is_replaced = |set: &UnpackedSet, way| {
            self.place_of(at, set, way).is_none_or(|place| replaced.contains(&Sector(place.position)))
        };
        let own = set.ways_with(at.tag).find(|&way| is_replaced(set, way))?;
        loop {
            let other = set.ways_with(at.tag).find(|&way| way != own && is_replaced(set, way));
            let Some(other) = other else { return Some(own) };
            self.clear(at, set, other);
        }
    }

    /// Makes `way` the most recently used one of its set.
    fn use_way(&self, partition: &mut LocatedPartition, at: AddressPlace, set: &mut UnpackedSet, way: usize) {
        let Some(place) = self.place_of(at, set, way) else { return };
        if set.ways()[way].rank > 0 || set.place(way).is_none() {
            self.promote(at, set, way, place);
            partition.sets.write(at.set, set);
        }
    }

    /// Returns the slots at an address whose positions are in memory.
    fn slots(&self, at: AddressPlace, set: &UnpackedSet) -> SlotMatches {
        set.ways_with(at.tag).filter_map(|way| self.place_of(at, set, way)).map(|place| self.slot(place)).collect()
    }

    /// Returns the way of an address's entry at `position`; `None` if there is none.
    fn way_at(&self, at: AddressPlace, set: &UnpackedSet, position: Sector) -> Option<usize> {
        set.ways_with(at.tag).find(|&way| self.place_of(at, set, way).is_some_and(|place| place.position == position.0))
    }

    /// Returns the set of an address and its first way with the tag; `None` if no way has the tag. Before that, clears
    /// the entries of the address that the log has overwritten.
    fn present(&self, partition: &mut LocatedPartition, at: AddressPlace) -> Option<(UnpackedSet, usize)> {
        let mut set = partition.read(at);
        let is_overwritten = |set: &UnpackedSet, way| {
            self.place_of(at, set, way).is_some_and(|place| self.is_overwritten(set, way, place))
        };
        loop {
            let overwritten = set.ways_with(at.tag).find(|&way| is_overwritten(&set, way));
            let Some(way) = overwritten else { break };
            self.overwritten.fetch_add(1, Ordering::Relaxed);
            self.clear(at, &mut set, way);
            assert_eq!(set.ways()[way].tag, 0, "what was overwritten is forgotten");
            partition.sets.write(at.set, &set);
        }
        let way = set.find(at.tag)?;
        Some((set, way))
    }

    fn is_overwritten(&self, set: &UnpackedSet, way: usize, place: SetPlace) -> bool {
        let SetWay { tag, generation, .. } = set.ways()[way];
        tag != 0 && self.generation_bits(Sector(place.position)) != generation
    }

    /// Returns the number of the address with `tag` in the same set.
    fn address_of(&self, at: AddressPlace, tag: u16) -> u64 {
        at.number().0 << u16::BITS | u64::from(tag)
    }

    fn generation_bits(&self, position: Sector) -> u8 {
        ((self.generation)(position) % (1 << self.shape.generation_bits)) as u8
    }

    fn slot(&self, place: SetPlace) -> IndexSlot {
        let size = match place.length {
            0 => self.unknown_size,
            blocks => SizeClass::holding((u64::from(blocks) * LENGTH_SECTORS).min(RECORD_SECTORS_MAX)),
        };
        IndexSlot { position: Sector(place.position), size, hits: 0, short_lived: false }
    }

    fn place(&self, slot: &IndexSlot, sectors: u64) -> SetPlace {
        let length_max = (1 << self.shape.length_bits) - 1;
        SetPlace { position: slot.position.0, length: sectors.div_ceil(LENGTH_SECTORS).min(length_max) as u16 }
    }

    fn locate(&self, key_hash: KeyHash) -> (MutexGuard<'_, LocatedPartition>, AddressPlace) {
        let at = AddressPlace::of(set_of(key_hash, self.set_count), self.shape.tag(key_hash));
        (lock(&self.partitions[at.partition]), at)
    }
}

impl LocatedPartition {
    fn read(&self, at: AddressPlace) -> UnpackedSet {
        self.sets.read(at.set).expect("nothing is forgotten of these sets")
    }

    /// Notes that for this key, something newer than the records being loaded is known. Returns `false` if this was
    /// noted before.
    fn supersede(&mut self, key_hash: KeyHash) -> bool {
        self.superseded.as_mut().is_none_or(|superseded| superseded.insert(key_hash))
    }
}

fn lock(partition: &Mutex<LocatedPartition>) -> MutexGuard<'_, LocatedPartition> {
    partition.lock().ignore_poison()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SplitMix64, hash::KeyHash};
    use std::{collections::HashMap, sync::Arc};

    const LOG_N: SetShape =
        SetShape { ways: 8, tag_bits: 8, generation_bits: 4, position_bits: 32, length_bits: 0, positions: 8 };

    fn index(shape: SetShape, entries: u64) -> (LocatedSets, Arc<AtomicU64>) {
        let round = Arc::new(AtomicU64::new(0));
        let generation = Arc::clone(&round);
        let generation = Box::new(move |_| generation.load(Ordering::Relaxed));
        (LocatedSets::new(shape, entries, 2, SizeClass::holding(128), generation), round)
    }

    fn slot(position: u64, sectors: u64) -> IndexSlot {
        IndexSlot { position: Sector(position), size: SizeClass::holding(sectors), hits: 0, short_lived: false }
    }

    fn moved(key_hash: u64, from: u64, to: u64, sectors: u64) -> MovedRecord {
        MovedRecord { key_hash: KeyHash(key_hash), from: Sector(from), to: Sector(to), sectors, short_lived: false }
    }

    /// Inserts eight entries, which fill a set.
    fn fill(index: &LocatedSets) {
        for n in 1..=8 {
            index.insert(KeyHash(n), slot(n, 3), &[]);
        }
    }

    /// Returns the positions at the address of a hash, in ascending order.
    fn found(index: &LocatedSets, hash: u64) -> Vec<u64> {
        let mut positions: Vec<_> = index.peek(KeyHash(hash)).iter().map(|slot| slot.position.0).collect();
        positions.sort_unstable();
        positions
    }

    /// Guards against an entry that is lost because another key has its tag, and against a slot that stays after its
    /// key was replaced. A model has the position of each key. The keys fill one set, and five of them share two tags.
    #[test]
    fn every_key_of_a_set_keeps_its_place_whatever_its_tag() {
        const KEYS: [u64; 8] = [1, 256, 511, 2, 257, 3, 4, 5];
        let (index, _) = index(LOG_N, 8);
        let mut model: HashMap<u64, u64> = HashMap::new();
        let mut random = SplitMix64::new(34);
        for position in 1..20_000 {
            let key = KEYS[random.next_u64() as usize % KEYS.len()];
            let own: Vec<_> = model.get(&key).map(|&position| Sector(position)).into_iter().collect();
            match random.next_u64() % 4 {
                0 => {
                    let removed = own.iter().all(|&position| index.remove_at(KeyHash(key), position));
                    assert!(removed, "{key} was at {own:?}");
                    model.remove(&key);
                }
                1 if !own.is_empty() => {
                    index.relocate(&[moved(key, own[0].0, position, 3)]);
                    model.insert(key, position);
                }
                2 => index.count_hit(KeyHash(key), own.first().copied()),
                _ => {
                    let inserted = index.insert(KeyHash(key), slot(position, 3), &own);
                    assert_eq!(matches!(inserted, InsertOutcome::Replaced(_)), !own.is_empty(), "{inserted:?}");
                    assert!(!matches!(inserted, InsertOutcome::Displaced(..)), "there is room for every key");
                    model.insert(key, position);
                }
            }
            for key in KEYS {
                let mut of_tag: Vec<_> = model
                    .iter()
                    .filter(|(other, _)| *other % 255 == key % 255)
                    .map(|(_, &position)| position)
                    .collect();
                of_tag.sort_unstable();
                assert_eq!(found(&index, key), of_tag, "{key}");
            }
            index.check();
        }
    }

    /// Guards against an entry that is lost at a start because another key has its tag, and against an older version
    /// that comes back.
    #[test]
    fn loading_keeps_every_key_of_a_tag_in_its_newest_version() {
        let (index, _) = index(LOG_N, 8);
        let loaded = |key_hash, position, removal| LoadedRecord::new(KeyHash(key_hash), slot(position, 3), removal);
        index.begin_loading();
        index.insert(KeyHash(1), slot(50, 3), &[]);
        // Newest first; all have the tag of 1.
        index.load(&[loaded(256, 40, false), loaded(511, 39, true), loaded(766, 38, false), loaded(256, 37, false)]);
        index.load(&[loaded(1, 36, false), loaded(511, 35, false)]);
        index.note_removed(KeyHash(1021));
        index.load(&[loaded(1021, 34, false)]);
        index.end_loading();
        assert_eq!(found(&index, 1), [38, 40, 50]);
    }

    /// Guards against a removed key that comes back because another key has its tag. The record of the removed key
    /// leaves the position to which the other key's entry moves.
    #[test]
    fn an_entry_does_not_follow_the_record_whose_place_it_took() {
        let (index, _) = index(LOG_N, 8);
        index.insert(KeyHash(1), slot(10, 1), &[]);
        index.insert(KeyHash(256), slot(11, 1), &[]);
        assert!(index.remove_at(KeyHash(256), Sector(11)));
        index.relocate(&[moved(1, 10, 11, 1), moved(256, 11, 12, 1)]);
        assert_eq!(found(&index, 1), [11]);
    }

    /// Guards against a lookup that finds an older version of an entry because the newer version's position is only in
    /// the file.
    #[test]
    fn an_address_is_found_once_the_file_was_read_for_all_its_ways() {
        let (index, _) = index(SetShape { positions: 1, ..LOG_N }, 8);
        // All have the tag of 1. One position stays in memory, and two wait.
        for (key_hash, position) in [(1, 10), (256, 20), (511, 30)] {
            assert_eq!(index.insert(KeyHash(key_hash), slot(position, 3), &[]), InsertOutcome::New);
        }
        assert_eq!(found(&index, 1), [10, 20, 30]);
        let batch = index.demoted_batch(|_| false).unwrap();
        let places = batch.places.clone();
        index.demoted_written(&places);
        drop(batch);
        assert_eq!((index.find(KeyHash(1), true), found(&index, 1)), (SlotMatches::default(), vec![30]));
        let mut filed = [None; 8];
        places.iter().for_each(|(_, place)| filed[place.way] = Some(place.position));
        index.recall(KeyHash(1), index.elsewhere(KeyHash(1)).unwrap(), &filed);
        assert_eq!((index.find(KeyHash(1), true).iter().count(), found(&index, 1)), (3, vec![10, 20, 30]));
        index.check();
    }

    /// Guards against two entries of one key. The position of the older entry was written to the file after its record
    /// had been read for the insertion.
    #[test]
    fn an_insertion_drops_the_entries_of_its_address_that_are_only_in_the_file() {
        let (index, _) = index(SetShape { positions: 1, ..LOG_N }, 8);
        for (key_hash, position) in [(1, 10), (256, 20), (511, 30)] {
            index.insert(KeyHash(key_hash), slot(position, 3), &[]);
        }
        let batch = index.demoted_batch(|_| false).unwrap();
        index.demoted_written(&batch.places);
        index.insert(KeyHash(1), slot(40, 3), &[Sector(10)]);
        assert_eq!((found(&index, 1), index.entries()), (vec![30, 40], 2));
        index.check();
    }

    /// Guards against a removed entry that comes back once its position is read from the file.
    #[test]
    fn a_removal_drops_the_entries_of_its_address_that_are_only_in_the_file() {
        let (index, _) = index(SetShape { positions: 1, ..LOG_N }, 8);
        for (key_hash, position) in [(1, 10), (256, 20), (511, 30)] {
            index.insert(KeyHash(key_hash), slot(position, 3), &[]);
        }
        let batch = index.demoted_batch(|_| false).unwrap();
        index.demoted_written(&batch.places);
        index.note_removed(KeyHash(1));
        assert_eq!((found(&index, 1), index.entries()), (vec![30], 1));
        index.check();
    }

    #[test]
    fn what_the_log_has_overwritten_is_gone_and_its_way_is_filled_first() {
        let (index, round) = index(LOG_N, 8);
        fill(&index);
        assert_eq!((index.entries(), found(&index, 8)), (8, vec![8]));
        round.store(1, Ordering::Relaxed);
        assert_eq!(
            index.insert(KeyHash(9), slot(9, 3), &[]),
            InsertOutcome::New,
            "nothing is displaced that is not gone already"
        );
        assert_eq!(index.take_overwritten(), 1);
        assert_eq!((found(&index, 1), found(&index, 9)), (vec![], vec![9]));
    }

    #[test]
    fn the_least_recently_used_of_a_full_set_is_displaced() {
        let (index, _) = index(LOG_N, 8);
        fill(&index);
        index.find(KeyHash(1), true);
        let InsertOutcome::Displaced(gone, address) = index.insert(KeyHash(9), slot(9, 3), &[]) else {
            panic!("the set is full")
        };
        assert_eq!(address, index.address(KeyHash(2)));
        assert_eq!((gone.position, found(&index, 2), found(&index, 1)), (Sector(2), vec![], vec![1]));
    }

    #[test]
    fn loading_never_overrides_what_happened_since() {
        let (index, _) = index(LOG_N, 8000);
        let loaded = |key_hash, position| LoadedRecord::new(key_hash, slot(position, 3), false);
        index.begin_loading();
        index.insert(KeyHash(1 << 60), slot(100, 3), &[]);
        index.insert(KeyHash(2 << 60), slot(200, 3), &[]);
        assert!(index.remove_at(KeyHash(2 << 60), Sector(200)));
        let buried = LoadedRecord::new(KeyHash(3 << 60), slot(1, 1), true);
        index.load(&[
            buried,
            loaded(KeyHash(1 << 60), 11),
            loaded(KeyHash(2 << 60), 12),
            loaded(KeyHash(3 << 60), 13),
            loaded(KeyHash(4 << 60), 14),
        ]);
        index.load(&[loaded(KeyHash(4 << 60), 15)]);
        index.end_loading();
        let found = [1, 2, 3, 4].map(|n| found(&index, n << 60));
        assert_eq!(found, [vec![100], vec![], vec![], vec![14]]);
    }

    #[test]
    fn lengths_are_kept_in_blocks_and_follow_a_move() {
        let (index, _) = index(SetShape { length_bits: 8, ..LOG_N }, 8);
        index.insert(KeyHash(1), slot(50, 17), &[]);
        assert_eq!(index.find(KeyHash(1), true).only().map(|slot| slot.size.sectors()), Some(32));
        index.relocate(&[moved(1, 49, 70, 100)]);
        assert_eq!(found(&index, 1), [50], "it was another entry that moved");
        index.relocate(&[moved(1, 50, 70, 100)]);
        let moved = index.find(KeyHash(1), true).only().map(|slot| (slot.position, slot.size.sectors()));
        assert_eq!(moved, Some((Sector(70), 112)));
        assert!(index.remove_at(KeyHash(1), Sector(70)) && !index.remove_at(KeyHash(1), Sector(70)));
    }
}
