//! Checks the invariants between the entries and clusters of `ucfs`.

use super::ClustersState;
use crate::engine::kit::state_lock::CheckedState;

impl CheckedState for ClustersState {
    fn check(&self) {
        self.clusters.check();
        self.entries.check();
        let mut chained = 0;
        for cluster in self.clusters.used() {
            let mut count = 0;
            let mut sectors = 0;
            for (key_hash, place) in self.entries.chain(self.clusters.first(cluster)) {
                assert_eq!(place.cluster, cluster, "an entry is chained to its own cluster");
                assert_eq!(self.entries.find(key_hash), Some(place), "what is chained is found");
                (count, sectors) = (count + 1, sectors + u64::from(place.sectors));
            }
            let counted = (self.clusters.entry_count(cluster), self.clusters.live_sectors(cluster));
            assert_eq!((count, sectors), counted, "a cluster counts the entries that are chained to it");
            chained += count;
        }
        assert_eq!(chained, self.entries.len(), "every entry is in the chain of one cluster");
    }

    fn check_cost(&self) -> u64 {
        self.clusters.count() + 2 * self.entries.capacity() as u64
    }
}
