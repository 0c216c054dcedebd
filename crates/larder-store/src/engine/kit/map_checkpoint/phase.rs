//! The phases of a map's checkpoint: which snapshot is written next, and how far it is written.
//!
//! Owns: the rules between phases. Nothing is written here. Invariant: a store that is being closed stays so.

use super::MapCheckpoint;
use crate::format::snapshot::{MapRecovery, PLACE_COUNT, SnapshotEntry, SnapshotHeader};

/// The state of the work on the next snapshot of the map.
pub(super) enum CheckpointPhase {
    /// The last snapshot is in effect, and no other has been begun.
    InEffect,
    /// Everything from earlier runs was dropped. The next header will describe an empty snapshot.
    StartsOver,
    /// A snapshot must be written from its first page on. Memory lacks entries that the snapshot in effect has, because
    /// the start could not load them all.
    Outdated,
    Writing(SnapshotWalk),
    /// All pages of a snapshot are durable, but its header may be in only one of the two copies. A start could then use
    /// this header or the previous one. This header must be completed before another header is written.
    Unfinished(SnapshotHeader),
    /// The store is being closed, and only `close` may write. `Some` is the header of an unfinished snapshot, which
    /// `close` must complete before it writes another one.
    Closing(Option<SnapshotHeader>),
}

/// A snapshot that is being written.
pub(super) struct SnapshotWalk {
    pub(super) recovery: MapRecovery,
    pub(super) cursor: Option<u64>,
    /// Collected listings that do not fill a page yet.
    pub(super) carried: Vec<SnapshotEntry>,
    pub(super) page: u64,
    pub(super) listing_count: u64,
    pub(super) is_gathered: bool,
}

impl CheckpointPhase {
    /// Enters `phase`. If the store is being closed, does not enter it, and only remembers the header in `phase` that
    /// must be completed.
    pub(super) fn enter(&mut self, phase: Self) {
        *self = match (&*self, phase) {
            (Self::Closing(_), Self::Unfinished(header)) => Self::Closing(Some(header)),
            (Self::Closing(_), _) => Self::Closing(None),
            (_, phase) => phase,
        };
    }

    /// Notes that the header of this run is written. If an earlier header was not completed, it is now replaced, and
    /// its snapshot never takes effect.
    pub(super) fn note_run(&mut self) {
        match self {
            Self::StartsOver => *self = Self::InEffect,
            Self::Unfinished(_) | Self::Closing(_) => self.enter(Self::Outdated),
            Self::InEffect | Self::Outdated | Self::Writing(_) => {}
        }
    }

    pub(super) fn close(&mut self) {
        *self = Self::Closing(self.unfinished());
    }

    pub(super) fn is_closing(&self) -> bool {
        matches!(self, Self::Closing(_))
    }

    /// Returns whether a snapshot must take effect before any change is acknowledged.
    pub(super) fn lacks_snapshot(&self) -> bool {
        matches!(self, Self::Outdated | Self::Writing(_) | Self::Unfinished(_))
    }

    /// Takes out the snapshot that is being written, for the next step. If the caller does not put it back, a new
    /// snapshot is begun from its first page, so that no page is missing.
    pub(super) fn take_begun(&mut self) -> Option<SnapshotWalk> {
        if self.is_closing() {
            return None;
        }
        let begun = std::mem::replace(self, Self::Outdated);
        if let Self::Writing(walk) = begun { Some(walk) } else { None }
    }

    /// Returns the header that must be completed before another header is written; `None` if there is none.
    pub(super) fn unfinished(&self) -> Option<SnapshotHeader> {
        match self {
            Self::Unfinished(header) => Some(header.clone()),
            Self::Closing(header) => header.clone(),
            Self::InEffect | Self::StartsOver | Self::Outdated | Self::Writing(_) => None,
        }
    }
}

impl SnapshotWalk {
    pub(super) fn new(checkpoint: &MapCheckpoint, generation: u64) -> Option<Self> {
        let recovery = checkpoint.header.recovery?;
        let place = (recovery.place + 1) % PLACE_COUNT;
        let journal_from = checkpoint.journal.next();
        let recovery = MapRecovery { generation, place, journal_from, run: checkpoint.journal.run(), epoch: 0 };
        Some(Self::of(recovery))
    }

    pub(super) fn of(recovery: MapRecovery) -> Self {
        Self { recovery, cursor: None, carried: Vec::new(), page: 0, listing_count: 0, is_gathered: false }
    }
}
