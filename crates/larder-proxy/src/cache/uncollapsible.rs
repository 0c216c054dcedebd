//! Remembers resources whose responses cannot be shared. Requests for them then do not wait in vain for one another's
//! fetches.
//!
//! Owns: a fixed table of key hashes. It may forget a key, and two keys may share a slot. Then one request waits in
//! vain, or requests are not collapsed. Cost: 128 KiB, and one load per miss.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// The keys of resources whose responses cannot be shared.
pub(crate) struct Uncollapsible {
    hasher: RandomState,
    hashes: Box<[AtomicU64]>,
}

impl Uncollapsible {
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        let (hash, place) = self.place(key);
        place.load(Relaxed) == hash
    }

    pub(crate) fn insert(&self, key: &[u8]) {
        let (hash, place) = self.place(key);
        place.store(hash, Relaxed);
    }

    pub(crate) fn remove(&self, key: &[u8]) {
        let (hash, place) = self.place(key);
        if place.load(Relaxed) == hash {
            place.store(EMPTY, Relaxed);
        }
    }

    fn place(&self, key: &[u8]) -> (u64, &AtomicU64) {
        let hash = self.hasher.hash_one(key).max(EMPTY + 1);
        (hash, &self.hashes[hash as usize % PLACE_COUNT])
    }
}

impl Default for Uncollapsible {
    fn default() -> Self {
        Self { hasher: RandomState::new(), hashes: (0..PLACE_COUNT).map(|_| AtomicU64::new(EMPTY)).collect() }
    }
}

const PLACE_COUNT: usize = 16 << 10;
const EMPTY: u64 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_found_until_it_is_taken_out() {
        let uncollapsible = Uncollapsible::default();
        assert!(!uncollapsible.contains(b"a"));
        uncollapsible.insert(b"a");
        assert!(uncollapsible.contains(b"a") && !uncollapsible.contains(b"b"));
        uncollapsible.remove(b"a");
        assert!(!uncollapsible.contains(b"a"));
    }
}
