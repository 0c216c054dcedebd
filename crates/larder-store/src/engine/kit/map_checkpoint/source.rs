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

/// An engine whose map is saved by checkpoints.
pub(crate) trait CheckpointEngine: Engine {
    /// The engine's state, which a lock protects.
    type State: CheckpointSource;

    fn lock_map_state(&self) -> LockedState<'_, Self::State>;
}

/// The state of an engine whose map is saved by checkpoints.
pub(crate) trait CheckpointSource: AsMut<TaskWaiters> + CheckedState {
    fn checkpoint(&mut self) -> &mut MapCheckpoint;

    fn numbers(&mut self) -> &mut RunNumbers;

    /// Returns about `count_max` listings of entries that are on the volume. Continues at `cursor`; `None` means from
    /// the start. With `in_order`, the listings are in the order of use. The caller sets `in_order` only while the map
    /// does not change.
    fn gather(&self, cursor: Option<u64>, in_order: bool, count_max: usize) -> MapPart;

    /// Returns the number of entries in the map.
    fn entry_count(&self) -> u64;

    /// Returns the position at which the next record is written, in a unit that depends on the layout.
    fn pointer(&self) -> u64;

    /// Returns the number of slots in each file of slots.
    fn slot_counts(&self) -> Vec<u32>;
}

/// Some listings of a map.
pub(crate) struct MapPart {
    pub(crate) listings: Vec<SnapshotEntry>,
    /// The cursor for the next listings; `None` if this part is the last.
    pub(crate) next: Option<u64>,
}
