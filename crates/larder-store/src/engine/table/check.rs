//! Checks that memory agrees with the writes in flight to the sets of a disk table.

use super::{BinGroup, TableState, gather::PlacedEntry};
use crate::{engine::kit::state_lock::CheckedState, units::SetNumber};

impl CheckedState for TableState {
    fn check(&self) {
        let dirty = self.held.values().flatten().filter_map(|dirty| dirty.record.as_ref());
        let dirty_bytes: u64 = dirty.map(|record| record.len() as u64).sum();
        assert_eq!(dirty_bytes, self.dirty_bytes, "what is on its way is counted");
        self.gathered.waiting.check(|entry| entry.record.len() as u64);
        let waits = |set: &SetNumber| self.held.get(set).and_then(|held| held.as_ref()?.waits_in);
        let is_noted = |(group, entry): (BinGroup, &PlacedEntry)| waits(&entry.at.set) == Some(group);
        assert!(self.gathered.waiting.records().all(is_noted), "a waiting entry holds its set");
        self.ring.check();
        self.memory.check();
    }

    fn check_cost(&self) -> u64 {
        self.memory.check_cost() + self.held.len() as u64
    }
}
