//! Checks the invariants of the cluster table.

use super::{ClusterState, ClusterTable, NONE};

impl<F: Copy> ClusterTable<F> {
    /// Checks the states of all clusters, their order of use, and the writes in flight.
    pub(in crate::engine::clusters) fn check(&self) {
        let count_of = |state| self.table.iter().filter(|line| line.state == state).count();
        assert_eq!(count_of(ClusterState::Free), self.free_count as usize, "free clusters are counted");
        assert_eq!(count_of(ClusterState::Open), self.open.iter().flatten().count(), "an open cluster is some group's");
        assert_eq!(count_of(ClusterState::Sealed), self.in_flight.len(), "a sealed cluster is on its way");
        for (cluster, _) in self.open.iter().flatten() {
            assert_eq!(self.table[*cluster as usize].state, ClusterState::Open);
        }
        for write in &self.partial_writes {
            let line = &self.table[write.cluster as usize];
            assert!(matches!(line.state, ClusterState::Open | ClusterState::Sealed), "what is written is not full yet");
            assert!(line.sequence == write.sequence && line.written_sectors <= write.end_sectors);
        }
        for (cluster, pack) in &self.in_flight {
            assert_eq!(self.table[*cluster as usize].state, ClusterState::Sealed);
            assert_eq!(self.table[*cluster as usize].sequence, pack.sequence);
        }
        self.check_spans();
        self.check_order();
    }

    /// Checks that each continuation, a cluster that only continues a long entry, belongs to exactly one entry, and
    /// that this entry begins in an earlier cluster.
    fn check_spans(&self) {
        let mut end = 0;
        for (cluster, line) in self.table.iter().enumerate() {
            match line.state {
                ClusterState::Continued => assert!(cluster < end, "cluster {cluster} continues nothing"),
                ClusterState::Free | ClusterState::Open | ClusterState::Sealed | ClusterState::Full => {
                    assert!(cluster >= end, "an entry ends where the next cluster begins");
                    end = cluster + usize::from(line.span);
                    assert!(line.state != ClusterState::Free || line.entry_count == 0, "nothing is in a free cluster");
                }
            }
        }
        assert!(end <= self.table.len(), "the last entry ends within the volume");
    }

    /// Checks that the order of use has each full cluster once, in both directions.
    fn check_order(&self) {
        let mut older = NONE;
        let mut count = 0;
        for cluster in self.lru() {
            let line = &self.table[cluster as usize];
            assert_eq!((line.state, line.older), (ClusterState::Full, older), "cluster {cluster} in the order of use");
            (older, count) = (cluster, count + 1);
            assert!(count <= self.table.len(), "the order of use has an end");
        }
        assert_eq!(older, self.newest, "the list ends with the most recently used");
        assert_eq!(count, self.table.iter().filter(|line| line.state == ClusterState::Full).count());
    }

    /// Returns the clusters in which an entry can begin: those that are open, being written or full.
    pub(in crate::engine::clusters) fn used(&self) -> impl Iterator<Item = u32> {
        let begins = |state| matches!(state, ClusterState::Open | ClusterState::Sealed | ClusterState::Full);
        (0..self.area.count).filter(move |&cluster| begins(self.table[cluster as usize].state))
    }

    /// Returns how many sectors the entries of a cluster take.
    pub(in crate::engine::clusters) fn live_sectors(&self, cluster: u32) -> u64 {
        self.table[cluster as usize].live_sectors.into()
    }

    /// Returns the number of clusters of the volume.
    pub(in crate::engine::clusters) fn count(&self) -> u64 {
        self.area.count.into()
    }
}
