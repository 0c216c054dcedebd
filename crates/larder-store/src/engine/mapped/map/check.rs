//! Checks the invariants of the map.

use super::{EntryMap, NONE};

impl EntryMap {
    /// Checks that every entry is found by its hash, is in the order of use once, and is counted.
    pub(in crate::engine::mapped) fn check(&self) {
        let mut id = self.oldest;
        let mut older = NONE;
        let mut count = 0;
        while id != NONE {
            let node = &self.nodes[id as usize];
            assert_eq!(node.older, older, "the order of use is linked both ways");
            let at = self.position(node.key_hash());
            assert_eq!(at.map(|at| self.table[at]), Some(id + 1), "an entry is found by its hash");
            (older, id, count) = (id, node.newer, count + 1);
            assert!(count <= self.entry_count, "the order of use has an end");
        }
        assert_eq!((older, count), (self.newest, self.entry_count), "every entry is in the order of use");
        let mut unused = self.unused;
        let mut unused_count = 0;
        while unused != NONE {
            (unused, unused_count) = (self.nodes[unused as usize].newer, unused_count + 1);
            assert!(unused_count <= self.nodes.len(), "the list of unused nodes has an end");
        }
        assert_eq!(unused_count + count as usize, self.nodes.len(), "a node is an entry's or unused");
        assert!(self.entry_count <= self.entries_max);
    }
}
