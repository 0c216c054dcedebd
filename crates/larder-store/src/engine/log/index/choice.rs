//! The index of the log's policies: two-choice buckets, or HashCache's sets.
//!
//! Delegates every call and decides nothing. Invariant: both kinds give the same results, except for lost entries: sets
//! drop an entry when they are full, as in HashCache. This is an enum, so that the engine, its readers and its recovery
//! need not be generic over it (docs/internals/rfcs). Cost: one match per call.

use super::{IndexSlot, InsertOutcome, LoadedRecord, SlotMatches, VolumeIndex};
use crate::{
    engine::log::{layout::MovedRecord, located::LocatedSets},
    hash::KeyHash,
    units::{Sector, SegmentGeometry},
};

/// The index of a volume with a policy on the log.
pub(crate) enum LogIndex {
    Buckets(VolumeIndex),
    Sets(LocatedSets),
}

/// Expands `$call` for each variant, so that it runs on the index inside.
macro_rules! each {
    ($choice:expr, $index:ident => $call:expr) => {
        match $choice {
            LogIndex::Buckets($index) => $call,
            LogIndex::Sets($index) => $call,
        }
    };
}

impl LogIndex {
    /// Returns the index of buckets, the only kind with checkpoints.
    ///
    /// # Panics
    /// If the index consists of sets, because they have no checkpoints.
    pub(crate) fn buckets(&self) -> &VolumeIndex {
        match self {
            Self::Buckets(index) => index,
            Self::Sets(_) => panic!("only an index of buckets has checkpoints"),
        }
    }

    /// Returns whether a removal drops all entries of its key's address. An index of sets does this: it has no place
    /// for a slot of the removal, and a removal must not wait for reads that show which entry is its key's.
    pub(crate) fn removes_by_address(&self) -> bool {
        matches!(self, Self::Sets(_))
    }

    /// Checks the number of slots, and that their positions are valid.
    pub(crate) fn check(&self, geometry: &SegmentGeometry) {
        match self {
            Self::Buckets(index) => index.check(geometry),
            Self::Sets(sets) => sets.check(),
        }
    }

    /// Returns the memory that the index takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        each!(self, index => index.memory_bytes())
    }

    /// Returns about how many entries the index can hold.
    pub(crate) fn entries_max(&self) -> u64 {
        each!(self, index => index.entries_max())
    }

    /// Returns the number of entries in the index.
    pub(crate) fn entries(&self) -> u64 {
        each!(self, index => index.entries())
    }

    /// Returns the slots like [`VolumeIndex::find`] if `uses` is set, otherwise like [`VolumeIndex::peek`]. Returns no
    /// slots if a slot's position is only in the position file.
    pub(crate) fn find(&self, key_hash: KeyHash, uses: bool) -> SlotMatches {
        match self {
            Self::Buckets(index) if uses => index.find(key_hash),
            Self::Buckets(index) => index.peek(key_hash),
            Self::Sets(index) => index.find(key_hash, uses),
        }
    }

    /// Returns the slots like [`VolumeIndex::peek`], except those whose positions are only in the position file.
    pub(crate) fn peek(&self, key_hash: KeyHash) -> SlotMatches {
        each!(self, index => index.peek(key_hash))
    }

    /// Counts a hit of the entry at `position`. Without a position, counts a hit of the entries that may be those of
    /// `key_hash` ([`VolumeIndex::count_hit`]).
    pub(crate) fn count_hit(&self, key_hash: KeyHash, position: Option<Sector>) {
        each!(self, index => index.count_hit(key_hash, position))
    }

    /// Returns whether there may be an entry of the key with this hash.
    pub(crate) fn knows(&self, key_hash: KeyHash) -> bool {
        match self {
            Self::Buckets(index) => !index.peek(key_hash).is_empty(),
            Self::Sets(index) => index.knows(key_hash),
        }
    }

    /// Adds a slot for a key, and removes the key's slots at the positions in `replaced`.
    pub(crate) fn insert(&self, key_hash: KeyHash, slot: IndexSlot, replaced: &[Sector]) -> InsertOutcome {
        each!(self, index => index.insert(key_hash, slot, replaced))
    }

    /// Returns whether the address of `key_hash` has a slot and a free place for another slot. Another thread may take
    /// that place.
    pub(crate) fn has_room_beside(&self, key_hash: KeyHash) -> bool {
        match self {
            Self::Buckets(index) => index.has_room_beside(key_hash),
            Self::Sets(_) => false,
        }
    }

    /// Returns a number that identifies `key_hash`'s address among all addresses of the index.
    pub(crate) fn address(&self, key_hash: KeyHash) -> u64 {
        each!(self, index => index.address(key_hash))
    }

    /// Removes the slots with `key_hash`'s address and one of these positions. Returns how many slots were removed.
    pub(crate) fn remove(&self, key_hash: KeyHash, positions: &[Sector]) -> u64 {
        match self {
            Self::Buckets(index) => index.remove(key_hash, positions),
            Self::Sets(index) => {
                positions.iter().filter(|&&position| index.remove_at(key_hash, position)).count() as u64
            }
        }
    }

    /// Prevents older records of a removed key from being loaded. `tombstone` is the slot of the record of the removal.
    pub(crate) fn note_removed(&self, key_hash: KeyHash, tombstone: IndexSlot) {
        match self {
            Self::Buckets(index) => index.note_removed(key_hash, tombstone),
            Self::Sets(index) => index.note_removed(key_hash),
        }
    }

    /// Notes the new positions of records that moved. Returns the records that have no slot in the index.
    pub(crate) fn relocate(&self, moved: &[MovedRecord]) -> Vec<MovedRecord> {
        match self {
            Self::Buckets(index) => moved.iter().filter(|moved| !index.relocate(moved)).copied().collect(),
            Self::Sets(index) => {
                index.relocate(moved);
                // Sets forget entries by themselves, and nothing counts on it.
                Vec::new()
            }
        }
    }

    /// Begins to load the entries of an earlier run, the newest first.
    pub(crate) fn begin_loading(&self) {
        each!(self, index => index.begin_loading());
    }

    /// Returns whether everything that an earlier run stored at the address of `key_hash` is loaded. An index of sets
    /// does not know this for a single address, so it returns `false` until all entries are loaded.
    pub(crate) fn has_loaded(&self, key_hash: KeyHash) -> bool {
        match self {
            Self::Buckets(index) => index.has_loaded(key_hash),
            Self::Sets(_) => false,
        }
    }

    /// Ends the loading of the entries of an earlier run.
    pub(crate) fn end_loading(&self) {
        each!(self, index => index.end_loading());
    }

    /// Loads records of an earlier run. Ignores records of keys for which something newer is known.
    pub(crate) fn load(&self, news: &[LoadedRecord]) {
        each!(self, index => index.load(news));
    }
}
