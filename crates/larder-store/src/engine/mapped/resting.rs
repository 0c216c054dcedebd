//! The room of removed entries that the journal still lists.
//!
//! A removal reaches the journal up to half a second later. If its room were written before that, a kill would leave a
//! listed entry with bytes of another, which looks like damage. So the room rests until the removal is in the journal,
//! and records take other room. If there is none, a commit writes the journal first, and an entry that waits in a
//! locality buffer is rejected.
//! Owns: the resting rooms, oldest first. Invariant: no room is written while the journal lists an entry in it. Layouts
//! in files need none of this: a listed entry whose slot has another is recognized by that one's head, because both
//! begin at the same place. Cost: 32 bytes per removal that is not in the journal.

use super::map::MapPlace;
use std::collections::VecDeque;

#[derive(Default)]
pub(super) struct RestingRooms {
    rooms: VecDeque<RestingRoom>,
    /// Length of all spaces that may not be reused yet, in sectors.
    sectors: u64,
}

struct RestingRoom {
    place: MapPlace,
    sectors: u64,
    /// Number of changes in the journal once it contains the removal.
    noted: u64,
}

impl RestingRooms {
    /// Adds the space of a removed entry. It may be reused once the journal has `noted` changes.
    pub(super) fn add(&mut self, place: MapPlace, sectors: u64, noted: u64) {
        assert!(sectors > 0, "a room has a length");
        assert!(self.rooms.back().is_none_or(|last| last.noted <= noted), "removals are noted in their order");
        self.sectors += sectors;
        self.rooms.push_back(RestingRoom { place, sectors, noted });
    }

    /// Removes and returns the oldest space if it may be reused. `is_written` returns whether the journal on the volume
    /// has a given number of changes.
    pub(super) fn take_rested(&mut self, is_written: impl Fn(u64) -> bool) -> Option<(MapPlace, u64)> {
        let room = self.rooms.pop_front_if(|room| is_written(room.noted))?;
        self.sectors -= room.sectors;
        Some((room.place, room.sectors))
    }

    /// Returns the length of all spaces that may not be reused yet, in sectors.
    pub(super) fn sectors(&self) -> u64 {
        self.sectors
    }
}
