//! Checks the invariants between the front, its index, and the sets of `tiny`.

use super::TinyState;
use crate::engine::kit::state_lock::CheckedState;

impl CheckedState for TinyState {
    fn check(&self) {
        self.front.check();
        self.long.check();
        self.index.check();
        let set_count = self.sets.set_count();
        for (&set, write) in &self.set_writes {
            assert!(set.0 < u64::from(set_count), "{set:?} of {set_count} is being written");
            assert!(
                !write.is_believed() || self.sets.version(set) != 0,
                "what a set holds is known while it is written"
            );
        }
        assert!(self.reported_failures <= self.failed_packs, "a flush reports failures that occurred");
        assert!(self.ready || self.index.len() == 0, "nothing is in the front before it is known");
    }

    fn check_cost(&self) -> u64 {
        self.index.slot_count() + self.front.segment_count() + self.long.segment_count()
    }
}
