//! What must hold between the objects and clusters of `ucfs`.

use super::State;
use crate::engine::kit::state_lock::Checked;

impl Checked for State {
    fn check(&self) {
        self.clusters.check();
        self.objects.check();
        let mut chained = 0;
        for cluster in self.clusters.used() {
            let (mut count, mut sectors) = (0, 0);
            for (placing, place) in self.objects.chain(self.clusters.first(cluster)) {
                assert_eq!(place.cluster, cluster, "an object is chained to its own cluster");
                assert_eq!(self.objects.find(placing), Some(place), "what is chained is found");
                (count, sectors) = (count + 1, sectors + u64::from(place.sectors));
            }
            let counted = (self.clusters.object_count(cluster), self.clusters.live_sectors(cluster));
            assert_eq!((count, sectors), counted, "what a cluster counts is what is chained to it");
            chained += count;
        }
        assert_eq!(chained, self.objects.len(), "every object is in the chain of one cluster");
    }

    fn check_cost(&self) -> u64 {
        self.clusters.count() + 2 * self.objects.capacity() as u64
    }
}
