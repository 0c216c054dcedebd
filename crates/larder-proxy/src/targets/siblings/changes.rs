//! Resources that clients changed through this node and that another node stores (RFC 9111 4.4).
//!
//! Owns: the table of these resources, until their owner has dropped its stored responses. Invariant: a change is never
//! lost. If two changed resources share a slot of the table, all resources of that slot count as changed. Memory: 512
//! KiB.

use std::sync::atomic::Ordering::Relaxed;

use crate::ground::cache::key_slots::{EMPTY, KeySlots, SPECIAL};

/// The resources that clients changed through this node, in a table of slots by the hash of their keys.
pub(crate) struct ChangedResources {
    slots: KeySlots,
}

impl ChangedResources {
    /// Records that a client changed a resource.
    pub(super) fn note(&self, key: &[u8]) {
        let of_key = self.slots.slot(key);
        let before = of_key.slot.compare_exchange(EMPTY, of_key.hash, Relaxed, Relaxed);
        if before.is_err_and(|before| before != of_key.hash) {
            of_key.slot.store(SEVERAL, Relaxed);
        }
    }

    /// Returns whether a resource may have been changed. Never returns false for a resource that was changed.
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        let of_key = self.slots.slot(key);
        let noted = of_key.slot.load(Relaxed);
        noted == of_key.hash || noted == SEVERAL
    }

    /// Records that the owner of a changed resource has dropped its stored responses.
    pub(super) fn settle(&self, key: &[u8]) {
        let of_key = self.slots.slot(key);
        // A slot with several resources stays as it is, because it does not say which they are.
        let _ = of_key.slot.compare_exchange(of_key.hash, EMPTY, Relaxed, Relaxed);
    }

    fn new(slot_count: usize) -> Self {
        Self { slots: KeySlots::new(slot_count) }
    }
}

impl Default for ChangedResources {
    fn default() -> Self {
        Self::new(SLOT_COUNT)
    }
}

const SLOT_COUNT: usize = 1 << 16;
/// Value of a slot in which several changed resources collide.
const SEVERAL: u64 = SPECIAL;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_is_known_until_it_is_settled_and_never_lost() {
        let changed = ChangedResources::new(1);
        let keys: Vec<Vec<u8>> = (0..6_u8).map(|number| vec![number]).collect();
        assert!(!keys.iter().any(|key| changed.contains(key)));
        changed.note(&keys[0]);
        changed.note(&keys[0]);
        assert!(changed.contains(&keys[0]));
        changed.settle(&keys[1]);
        assert!(changed.contains(&keys[0]));
        changed.settle(&keys[0]);
        assert!(!changed.contains(&keys[0]));
        // Six resources share one slot.
        keys.iter().for_each(|key| changed.note(key));
        keys.iter().for_each(|key| changed.settle(key));
        assert!(keys.iter().all(|key| changed.contains(key)));
    }
}
