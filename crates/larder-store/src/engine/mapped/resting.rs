//! The room of removed entries that the journal still lists.
//!
//! A removal is in the journal only half a second after it. If its room were written before that, a kill would leave a
//! listed entry with bytes of another. Such an entry is a miss, but nothing could tell it from damage. So the room rests
//! until the journal says that the entry is gone, and other room is taken meanwhile; a volume has some percent to spare.
//! Owns: the resting rooms, oldest first. Invariant: nothing waits for a room that rests. If there is no other, or too
//! many rest, it is given back early. Layouts in files need none of this: a listed entry whose slot has another is
//! recognized by that one's head, because both begin at the same place.

use super::map::MapPlace;
use std::collections::VecDeque;

/// Most rooms that rest: 1.5 MB of memory.
const RESTING_MAX: usize = 1 << 16;

#[derive(Default)]
pub(super) struct RestingRooms(VecDeque<RestingRoom>);

struct RestingRoom {
    place: MapPlace,
    sectors: u32,
    /// The number of changes in the journal up to the removal.
    noted: u64,
}

impl RestingRooms {
    /// Lets a room rest until `noted` changes are in the journal.
    pub(super) fn add(&mut self, place: MapPlace, sectors: u32, noted: u64) {
        assert!(sectors > 0, "a room has a length");
        assert!(self.0.back().is_none_or(|last| last.noted <= noted), "removals are noted in their order");
        self.0.push_back(RestingRoom { place, sectors, noted });
    }

    /// Takes the oldest room if `is_written` says that its removal is in the journal, or if too many rest.
    pub(super) fn take_rested(&mut self, is_written: impl Fn(u64) -> bool) -> Option<(MapPlace, u32)> {
        let is_many = self.0.len() > RESTING_MAX;
        self.0.front().is_some_and(|room| is_many || is_written(room.noted)).then(|| self.take_any())?
    }

    /// Takes the oldest room, although the journal may list its entry.
    pub(super) fn take_any(&mut self) -> Option<(MapPlace, u32)> {
        self.0.pop_front().map(|room| (room.place, room.sectors))
    }

    /// Returns the lengths in sectors of the rooms that rest.
    pub(super) fn lengths(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|room| room.sectors)
    }
}
