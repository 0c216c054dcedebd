//! The memory of the sets: none, all, or the recently used ones.
//!
//! Owns: the choice that the policy makes, and the count of entries. Invariant: the returned content of a set is what
//! the engine last wrote there. If memory has no content, the set must be read from the volume.

use super::resident::ResidentSets;
use crate::{
    engine::kit::sets::{PackedSets, SetShape, UnpackedSet},
    units::SetNumber,
};

/// The memory of the sets.
pub(crate) enum SetMemory {
    Nothing,
    All(PackedSets),
    Recent(ResidentSets),
}

impl SetMemory {
    /// Returns a set, and counts a use of it.
    pub(crate) fn read(&mut self, set: SetNumber) -> Option<UnpackedSet> {
        match self {
            Self::Nothing => None,
            Self::All(sets) => sets.read(set),
            Self::Recent(sets) => sets.read(set),
        }
    }

    /// Stores the content of a set.
    pub(crate) fn write(&mut self, set: SetNumber, contents: &UnpackedSet) {
        match self {
            Self::Nothing => {}
            Self::All(sets) => sets.write(set, contents),
            Self::Recent(sets) => sets.write(set, contents),
        }
    }

    /// Marks the content of a set as unknown.
    pub(crate) fn forget(&mut self, set: SetNumber) {
        match self {
            Self::Nothing => {}
            Self::All(sets) => sets.forget(set),
            Self::Recent(sets) => sets.forget(set),
        }
    }

    /// Returns a set, without counting a use.
    pub(crate) fn peek(&self, set: SetNumber) -> Option<UnpackedSet> {
        match self {
            Self::Nothing => None,
            Self::All(sets) => sets.read(set),
            Self::Recent(sets) => sets.peek(set),
        }
    }

    /// Checks the sets in memory, and the count of entries.
    pub(super) fn check(&self) {
        match self {
            Self::Nothing => {}
            Self::All(sets) => sets.check(),
            Self::Recent(sets) => sets.check(),
        }
    }

    /// Returns the approximate number of ways that [`Self::check`] examines.
    pub(super) fn check_cost(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::All(sets) => sets.way_count(),
            Self::Recent(sets) => sets.way_count(),
        }
    }

    /// Returns the shape of a set in memory, if sets are kept.
    pub(crate) fn shape(&self) -> Option<SetShape> {
        match self {
            Self::Nothing => None,
            Self::All(sets) => Some(*sets.shape()),
            Self::Recent(sets) => Some(*sets.shape()),
        }
    }

    /// Returns the memory when full, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::All(sets) => sets.memory_bytes(),
            Self::Recent(sets) => sets.memory_bytes(),
        }
    }

    /// Returns whether memory knows all entries. It does not if some sets must be read first.
    pub(crate) fn counts_all(&self) -> bool {
        match self {
            Self::Nothing | Self::Recent(_) => false,
            Self::All(sets) => sets.are_all_known(),
        }
    }

    /// Returns the number of entries that memory knows.
    pub(crate) fn entries(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::All(sets) => sets.entries(),
            Self::Recent(sets) => sets.entries(),
        }
    }
}
