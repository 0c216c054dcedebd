//! Checks the relations between the map, the room of its entries, and the writes in flight.

use super::state::MappedState;
use crate::engine::kit::state_lock::CheckedState;

impl CheckedState for MappedState {
    fn check(&self) {
        self.map.check();
        assert!(self.effects.is_empty(), "every step starts what follows from it");
        if self.is_recovering {
            // Room is assigned only at the end of the recovery.
            return;
        }
        self.space.check();
        let of_entries: u64 = self.map.oldest_first().map(|(_, entry)| self.space.taken_by(entry.sectors.into())).sum();
        let held_back = self.held_back_sectors + self.lost_sectors;
        assert_eq!(
            of_entries + held_back,
            self.used_sectors,
            "room is an entry's, or held back until a transfer is over"
        );
        let mut dirty_bytes = 0;
        let mut unplaced = 0;
        let mut dropped = 0;
        for (&sequence, dirty) in self.dirty.iter() {
            let taken = self.space.taken_by(dirty.sectors.into());
            dirty_bytes += dirty.record.len() as u64;
            unplaced += if dirty.place.is_none() { taken } else { 0 };
            dropped += if dirty.dropped { taken } else { 0 };
            let is_in_map = self.map.find(dirty.key_hash).is_some_and(|entry| entry.sequence == sequence);
            assert_eq!(is_in_map, !dirty.dropped, "what is dirty is in the map until it is dropped");
        }
        assert_eq!(dirty_bytes, self.dirty.len_bytes(), "what is dirty is counted");
        assert!(dropped <= self.held_back_sectors, "the room of what was dropped is held back");
        if let Some(in_use) = self.space.sectors_in_use() {
            assert_eq!(
                in_use + unplaced,
                self.used_sectors + self.resting.sectors(),
                "the layout has given out what is used or rests"
            );
        }
    }

    fn check_cost(&self) -> u64 {
        3 * self.map.entry_count() + self.space.capacity_sectors() / 64
    }
}
