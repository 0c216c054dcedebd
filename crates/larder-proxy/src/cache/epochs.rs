//! Tells work that began before a change of a key from work that began after it.
//!
//! Owns: a count of changes per group of keys. Invariant: whoever began before a key was changed sees
//! another epoch after it. Two keys may share a count; then something too much is not kept.
//! Used for invalidations (RFC 9111 4.4) and for what leaves memory. Cost: fixed memory, one load.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire},
    },
};

/// Counts changes.
pub(crate) struct Epochs {
    hasher: RandomState,
    counts: Box<[AtomicU64]>,
}

/// The state of a key at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(u64);

impl Epochs {
    /// The present epoch of a key.
    pub(crate) fn of(&self, key: &[u8]) -> Epoch {
        Epoch(self.count(key).load(Acquire))
    }

    /// Begins a new epoch for a key.
    pub(crate) fn advance(&self, key: &[u8]) {
        self.count(key).fetch_add(1, AcqRel);
    }

    fn count(&self, key: &[u8]) -> &AtomicU64 {
        &self.counts[self.hasher.hash_one(key) as usize % self.counts.len()]
    }
}

impl Default for Epochs {
    fn default() -> Self {
        Self { hasher: RandomState::new(), counts: (0..GROUP_COUNT).map(|_| AtomicU64::new(0)).collect() }
    }
}

const GROUP_COUNT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_begins_a_new_epoch() {
        let epochs = Epochs::default();
        let before = epochs.of(b"a");
        assert_eq!(epochs.of(b"a"), before);
        epochs.advance(b"a");
        assert_ne!(epochs.of(b"a"), before);
    }
}
