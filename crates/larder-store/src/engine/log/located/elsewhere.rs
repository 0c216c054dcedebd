//! Entries whose positions do not fit in memory: they wait for the position file, or are in it.
//!
//! Invariant: a position from the file counts only if the file was not written since the lookup began, so that a
//! replaced position does not come back. Cost: another lock for entries that are not in their set; the engine reads and
//! writes the file. Source: HashCache (NSDI 2009), LogLRU.

use super::{
    AddressPlace, LocatedSets,
    demoted::{DemotedBatch, DemotedPlaces, WayPosition},
    lock,
};
use crate::{
    engine::kit::sets::{DemotedPlace as Dropped, SetPlace, UnpackedSet},
    hash::KeyHash,
    units::{Sector, SetNumber},
};
use std::sync::atomic::Ordering;

/// A set with an entry whose position is only in the position file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FiledSet {
    pub(crate) set: SetNumber,
    /// Number of writes of the position file when the entry was looked up.
    version: u64,
}

impl LocatedSets {
    /// Returns the set of `key_hash` if an entry at the address of `key_hash` has its position only in the position
    /// file; otherwise `None`.
    pub(crate) fn elsewhere(&self, key_hash: KeyHash) -> Option<FiledSet> {
        let version = self.demoted.as_ref()?.version();
        let (mut partition, at) = self.locate(key_hash);
        let (set, _) = self.present(&mut partition, at)?;
        self.filed_ways(at, &set).next().map(|_| FiledSet { set: at.number(), version })
    }

    /// Takes over the positions that were read from the file, one for each way, unless the set or the file has changed
    /// since [`Self::elsewhere`]. Drops entries that have no position in the file.
    pub(crate) fn recall(&self, key_hash: KeyHash, elsewhere: FiledSet, positions: &[Option<u64>]) {
        let Some(demoted) = &self.demoted else { return };
        let (mut partition, at) = self.locate(key_hash);
        let Some((mut set, _)) = self.present(&mut partition, at) else { return };
        if demoted.version() != elsewhere.version {
            return;
        }
        let filed: Vec<usize> = self.filed_ways(at, &set).collect();
        for way in filed {
            let generation = set.ways()[way].generation;
            match positions.get(way).copied().flatten() {
                Some(position) if self.generation_bits(Sector(position)) == generation => {
                    self.promote(at, &mut set, way, SetPlace { position, length: 0 });
                }
                // Its position may be in a batch that is being written.
                None if demoted.is_writing() => {}
                _ => {
                    self.overwritten.fetch_add(1, Ordering::Relaxed);
                    set.clear(way);
                }
            }
        }
        partition.sets.write(at.set, &set);
    }

    /// Returns whether so many positions wait for the position file that a write is worth its cost.
    pub(crate) fn demoted_are_due(&self) -> bool {
        self.demoted.as_ref().is_some_and(DemotedPlaces::is_due)
    }

    /// Returns whether so many positions wait for the position file that a write is worth its cost, and the records of
    /// some of them are probably on the device.
    pub(crate) fn demoted_batch_is_likely(&self) -> bool {
        self.demoted.as_ref().is_some_and(DemotedPlaces::is_batch_likely)
    }

    /// Returns the positions to write to the position file; `None` if no write is due. Leaves out positions of records
    /// that may still move.
    pub(crate) fn demoted_batch(&self, may_move: impl Fn(Sector) -> bool) -> Option<DemotedBatch<'_>> {
        self.demoted.as_ref()?.batch(may_move)
    }

    /// Notes that the position file now contains the positions in `places`.
    pub(crate) fn demoted_written(&self, places: &[(SetNumber, WayPosition)]) {
        self.demoted.iter().for_each(|demoted| demoted.written(places));
    }

    /// Drops the entries whose positions could not be written to the file, unless other entries have replaced them
    /// since.
    pub(crate) fn demoted_lost(&self, places: &[(SetNumber, WayPosition)]) {
        for &(set, WayPosition { way, position }) in places {
            let at = AddressPlace::of(set, 0);
            let mut partition = lock(&self.partitions[at.partition]);
            let mut contents = partition.read(at);
            let waits = self.place_of(at, &contents, way).is_some_and(|place| place.position == position);
            if contents.place(way).is_none() && waits {
                self.clear(at, &mut contents, way);
                partition.sets.write(at.set, &contents);
            }
        }
    }

    /// Returns the ways of an address whose positions are only in the position file.
    pub(super) fn filed_ways<'a>(&'a self, at: AddressPlace, set: &'a UnpackedSet) -> impl Iterator<Item = usize> + 'a {
        set.ways_with(at.tag).filter(move |&way| self.place_of(at, set, way).is_none())
    }

    /// Returns the place of the entry in `way`; `None` if its position is only in the position file.
    pub(super) fn place_of(&self, at: AddressPlace, set: &UnpackedSet, way: usize) -> Option<SetPlace> {
        set.place(way).or_else(|| {
            let position = self.demoted.as_ref()?.get(at.number(), way)?;
            Some(SetPlace { position, length: 0 })
        })
    }

    pub(super) fn promote(&self, at: AddressPlace, set: &mut UnpackedSet, way: usize, place: SetPlace) {
        self.demoted.iter().for_each(|demoted| demoted.remove(at.number(), way));
        assert_eq!(set.ways()[way].tag, at.tag, "the way of the key is promoted");
        let dropped = set.promote(way, place);
        self.demote(at, set, dropped);
    }

    /// Moves a position from a set to the list of those that wait for the position file. Drops the position's entry if
    /// the list is full.
    pub(super) fn demote(&self, at: AddressPlace, set: &mut UnpackedSet, dropped: Option<Dropped>) {
        let (Some(demoted), Some(Dropped { way, place })) = (&self.demoted, dropped) else { return };
        assert_ne!(set.ways()[way].tag, 0, "an entry's place is demoted");
        if !demoted.put(at.number(), WayPosition { way, position: place.position }) {
            self.overwritten.fetch_add(1, Ordering::Relaxed);
            set.clear(way);
        }
    }

    pub(super) fn clear(&self, at: AddressPlace, set: &mut UnpackedSet, way: usize) {
        self.demoted.iter().for_each(|demoted| demoted.remove(at.number(), way));
        set.clear(way);
        debug_assert_eq!(set.ways()[way].tag, 0, "a cleared way is empty");
    }
}
