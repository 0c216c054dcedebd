//! The traits through which a checkpoint uses an engine and its map.

use super::MapCheckpoint;
use crate::{
    engine::{
        Engine,
        kit::{
            numbers::RunNumbers,
            state_lock::{CheckedState, LockedState},
        },
    },
    format::snapshot::SnapshotEntry,
    volume::waiters::TaskWaiters,
};

/// An engine whose map has a checkpoint.
pub(crate) trait CheckpointEngine: Engine {
    /// The state under its lock.
    type State: CheckpointSource;

    fn lock_map_state(&self) -> LockedState<'_, Self::State>;
}

/// The state of such an engine.
pub(crate) trait CheckpointSource: AsMut<TaskWaiters> + CheckedState {
    fn checkpoint(&mut self) -> &mut MapCheckpoint;

    fn numbers(&mut self) -> &mut RunNumbers;

    /// Returns about `count_max` listings of the entries on the volume, from `cursor` on (`None`: from the start). With
    /// `in_order` they are in the order of use, which the caller requests only while nothing changes.
    fn gather(&self, cursor: Option<u64>, in_order: bool, count_max: usize) -> MapPart;

    /// Returns the number of entries in the map.
    fn entry_count(&self) -> u64;

    /// Returns the position at which the next record is written.
    fn pointer(&self) -> u64;

    /// Returns the lengths of the files of slots.
    fn slot_counts(&self) -> Vec<u32>;
}

/// A part of a map.
pub(crate) struct MapPart {
    pub(crate) listings: Vec<SnapshotEntry>,
    /// The start of the next part; `None` after the last.
    pub(crate) next: Option<u64>,
}
