//! Resources that clients changed through this node and that another node stores (RFC 9111 4.4).
//!
//! Owns: the table of these resources, until their owner has dropped its stored responses. Invariant: a change is never
//! lost. If two changed resources share a slot of the table, all resources of that slot count as changed. Memory: 512
//! KiB.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// The table. Its hash is keyed with a secret, so that nobody can choose resources that share a slot.
pub(crate) struct ChangedResources {
    places: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl ChangedResources {
    /// Notes that a resource was changed.
    pub(super) fn note(&self, key: &[u8]) {
        let (place, hash) = self.place(key);
        let before = place.compare_exchange(NOTHING, hash, Relaxed, Relaxed);
        if before.is_err_and(|before| before != hash) {
            place.store(SEVERAL, Relaxed);
        }
    }

    /// Returns whether a resource was changed.
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        let (place, hash) = self.place(key);
        let noted = place.load(Relaxed);
        noted == hash || noted == SEVERAL
    }

    /// Notes that the owner has dropped its stored responses of a resource.
    pub(super) fn settle(&self, key: &[u8]) {
        let (place, hash) = self.place(key);
        // A slot with several resources stays as it is, because it does not contain their names.
        let _ = place.compare_exchange(hash, NOTHING, Relaxed, Relaxed);
    }

    fn place(&self, key: &[u8]) -> (&AtomicU64, u64) {
        let hash = self.hasher.hash_one(key).clamp(NOTHING + 1, SEVERAL - 1);
        (&self.places[(hash % self.places.len() as u64) as usize], hash)
    }

    fn new(place_count: usize) -> Self {
        let places = (0..place_count).map(|_| AtomicU64::new(NOTHING)).collect();
        Self { places, hasher: RandomState::new() }
    }
}

impl Default for ChangedResources {
    fn default() -> Self {
        Self::new(PLACE_COUNT)
    }
}

const PLACE_COUNT: usize = 1 << 16;
const NOTHING: u64 = 0;
const SEVERAL: u64 = u64::MAX;

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
