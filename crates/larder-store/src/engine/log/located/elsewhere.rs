//! Entries whose positions do not fit in memory: they wait for the position file, or are in it.
//!
//! Invariant: a position from the file counts only if the file was not written since the lookup began, so that a
//! replaced position does not come back. Cost: another lock for entries that are not in their set; the engine reads and
//! writes the file. Source: HashCache (NSDI 2009), LogLRU.

use super::{
    AddressPlace, LocatedSets,
    demoted::{DemotedBatch, DemotedPlaces},
    lock,
};
use crate::{
    engine::kit::sets::{DemotedPlace as Dropped, SetPlace, UnpackedSet},
    format::positions::TagPlace,
    hash::KeyHash,
    units::{Sector, SetNumber},
};
use std::sync::atomic::Ordering;

/// An entry whose position is only in the position file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FiledPlace {
    pub(crate) set: SetNumber,
    pub(crate) tag: u16,
    /// The version of the file at the time of the lookup.
    version: u64,
}

impl LocatedSets {
    /// Returns where the position file has the position of `key_hash`'s entry, if only the file has it.
    pub(crate) fn elsewhere(&self, key_hash: KeyHash) -> Option<FiledPlace> {
        let version = self.demoted.as_ref()?.version();
        let (mut partition, at) = self.locate(key_hash);
        let (set, way) = self.present(&mut partition, at)?;
        self.place_of(at, &set, way).is_none().then_some(FiledPlace { set: at.number(), tag: at.tag, version })
    }

    /// Adopts the position read from the file, unless something changed since `elsewhere` was returned. Drops an entry
    /// that the file does not have.
    pub(crate) fn recall(&self, key_hash: KeyHash, elsewhere: FiledPlace, position: Option<u64>) {
        let Some(demoted) = &self.demoted else { return };
        let (mut partition, at) = self.locate(key_hash);
        let Some((mut set, way)) = self.present(&mut partition, at) else { return };
        if self.place_of(at, &set, way).is_some() || demoted.version() != elsewhere.version {
            return;
        }
        let generation = set.ways()[way].generation;
        match position {
            Some(position) if self.generation_bits(Sector(position)) == generation => {
                self.promote(at, &mut set, way, SetPlace { position, length: 0 });
            }
            // Its position may be in a batch that is being written.
            None if demoted.is_writing() => return,
            _ => {
                self.overwritten.fetch_add(1, Ordering::Relaxed);
                set.clear(way);
            }
        }
        partition.sets.write(at.set, &set);
    }

    /// Returns whether positions are due to be written to the position file.
    pub(crate) fn demoted_are_due(&self) -> bool {
        self.demoted.as_ref().is_some_and(DemotedPlaces::is_due)
    }

    /// Returns whether positions are due, and the records of some are likely on the device.
    pub(crate) fn demoted_batch_is_likely(&self) -> bool {
        self.demoted.as_ref().is_some_and(DemotedPlaces::is_batch_likely)
    }

    /// Returns the positions to write to the position file, if a write is due, except for records that may still move.
    pub(crate) fn demoted_batch(&self, may_move: impl Fn(Sector) -> bool) -> Option<DemotedBatch<'_>> {
        self.demoted.as_ref()?.batch(may_move)
    }

    /// Returns the tags of a set's entries.
    pub(crate) fn tags(&self, set: SetNumber) -> Vec<u16> {
        let at = AddressPlace::of(set, 0);
        let set = lock(&self.partitions[at.partition]).sets.read(at.set).expect("nothing is forgotten of these sets");
        set.ways().iter().map(|way| way.tag).filter(|&tag| tag != 0).collect()
    }

    /// Notes that the position file has these positions.
    pub(crate) fn demoted_written(&self, places: &[(SetNumber, TagPlace)]) {
        self.demoted.iter().for_each(|demoted| demoted.written(places));
    }

    /// Drops the entries whose positions could not be written, unless they were replaced since.
    pub(crate) fn demoted_lost(&self, places: &[(SetNumber, TagPlace)]) {
        for &(set, TagPlace { tag, position }) in places {
            let at = AddressPlace::of(set, tag);
            let mut partition = lock(&self.partitions[at.partition]);
            let mut contents = partition.read(at);
            let Some(way) = contents.find(tag) else { continue };
            if contents.place(way).is_none()
                && self.place_of(at, &contents, way).map(|place| place.position) == Some(position)
            {
                self.clear(at, &mut contents, way);
                partition.sets.write(at.set, &contents);
            }
        }
    }

    /// Returns the place of an address's entry, if it is in memory.
    pub(super) fn place_of(&self, at: AddressPlace, set: &UnpackedSet, way: usize) -> Option<SetPlace> {
        set.place(way).or_else(|| {
            let position = self.demoted.as_ref()?.get(at.number(), at.tag)?;
            Some(SetPlace { position, length: 0 })
        })
    }

    pub(super) fn promote(&self, at: AddressPlace, set: &mut UnpackedSet, way: usize, place: SetPlace) {
        self.demoted.iter().for_each(|demoted| demoted.remove(at.number(), at.tag));
        assert_eq!(set.ways()[way].tag, at.tag, "the way of the key is promoted");
        let dropped = set.promote(way, place);
        self.demote(at, set, dropped);
    }

    /// Adds a position to those waiting for the position file. If there is no room, drops its entry.
    pub(super) fn demote(&self, at: AddressPlace, set: &mut UnpackedSet, dropped: Option<Dropped>) {
        let (Some(demoted), Some(Dropped { way, place })) = (&self.demoted, dropped) else { return };
        assert_ne!(set.ways()[way].tag, 0, "an entry's place is demoted");
        let pair = TagPlace { tag: set.ways()[way].tag, position: place.position };
        if !demoted.put(at.number(), pair) {
            self.overwritten.fetch_add(1, Ordering::Relaxed);
            set.clear(way);
        }
    }

    pub(super) fn clear(&self, at: AddressPlace, set: &mut UnpackedSet, way: usize) {
        self.demoted.iter().for_each(|demoted| demoted.remove(at.number(), at.tag));
        set.clear(way);
        debug_assert_eq!(set.ways()[way].tag, 0, "a cleared way is empty");
    }
}
