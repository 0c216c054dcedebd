//! The memory of the sets: none, all, or the recently used ones.
//!
//! Owns: the choice that the policy makes, and the count of entries. Invariant: the returned content of a set is what
//! the engine last wrote there. If memory has no content, the set must be read from the volume.

use super::resident::ResidentSets;
use crate::{
    engine::kit::sets::{PackedSets, SetShape, UnpackedSet},
    units::SetNumber,
};

/// The data of the sets that are in memory, by policy.
pub(crate) enum SetMemory {
    Nothing,
    All(PackedSets),
    Recent(ResidentSets),
}

impl SetMemory {
    /// Returns the content of a set, and counts a use of the set. Returns `None` if the set is not in memory.
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

    /// Returns the content of a set without counting a use. Returns `None` if the set is not in memory.
    pub(crate) fn peek(&self, set: SetNumber) -> Option<UnpackedSet> {
        match self {
            Self::Nothing => None,
            Self::All(sets) => sets.read(set),
            Self::Recent(sets) => sets.peek(set),
        }
    }

    /// Checks the sets in memory, and that the number of entries is right.
    pub(super) fn check(&self) {
        match self {
            Self::Nothing => {}
            Self::All(sets) => sets.check(),
            Self::Recent(sets) => sets.check(),
        }
    }

    /// Returns about how many ways [`Self::check`] examines.
    pub(super) fn check_cost(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::All(sets) => sets.way_count(),
            Self::Recent(sets) => sets.way_count(),
        }
    }

    /// Returns which fields of each set are in memory; `None` if no set is in memory.
    pub(crate) fn shape(&self) -> Option<SetShape> {
        match self {
            Self::Nothing => None,
            Self::All(sets) => Some(*sets.shape()),
            Self::Recent(sets) => Some(*sets.shape()),
        }
    }

    /// Returns the maximum memory that the sets take, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::All(sets) => sets.memory_bytes(),
            Self::Recent(sets) => sets.memory_bytes(),
        }
    }

    /// Returns whether [`Self::entries`] counts all entries, because the content of every set is known.
    pub(crate) fn counts_all(&self) -> bool {
        match self {
            Self::Nothing | Self::Recent(_) => false,
            Self::All(sets) => sets.are_all_known(),
        }
    }

    /// Returns the number of entries in sets that are in memory.
    pub(crate) fn entries(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::All(sets) => sets.entries(),
            Self::Recent(sets) => sets.entries(),
        }
    }
}
