//! Checks that memory agrees with the writes in flight to the sets of a disk table.

use super::TableState;
use crate::engine::kit::state_lock::CheckedState;

impl CheckedState for TableState {
    fn check(&self) {
        let dirty = self.held.values().flatten().filter_map(|dirty| dirty.record.as_ref());
        let dirty_bytes: u64 = dirty.map(|record| record.len() as u64).sum();
        assert_eq!(dirty_bytes, self.dirty_bytes, "what is on its way is counted");
        self.ring.check();
        self.memory.check();
    }

    fn check_cost(&self) -> u64 {
        self.memory.check_cost() + self.held.len() as u64
    }
}
