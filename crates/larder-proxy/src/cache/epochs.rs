//! Tells work that began before a change of a key from work that began after it.
//!
//! Owns: the number of the last change, for each of many groups of keys. Invariant: whoever began before a key was
//! changed sees another epoch after it, and finds the change after the moment it began. Two keys may share a
//! number; then something too much is not kept. Used for invalidations (RFC 9111 4.4) and for what leaves memory.
//! Cost: fixed memory, one load.

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
    /// Number of changes so far.
    change_count: AtomicU64,
    /// Number of the last change, by group of keys.
    last: Box<[AtomicU64]>,
}

/// The state of a key at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(u64);

/// A moment between changes, for work on keys that are not known when it begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(u64);

impl Epochs {
    /// The present epoch of a key.
    pub(crate) fn of(&self, key: &[u8]) -> Epoch {
        Epoch(self.last_of(key).load(Acquire))
    }

    /// Now.
    pub(crate) fn now(&self) -> Moment {
        Moment(self.change_count.load(Acquire))
    }

    /// The present epoch of a key, if that has not changed since `moment`.
    pub(crate) fn since(&self, key: &[u8], moment: Moment) -> Option<Epoch> {
        Some(self.of(key)).filter(|epoch| epoch.0 <= moment.0)
    }

    /// Begins a new epoch for a key.
    pub(crate) fn advance(&self, key: &[u8]) {
        let number = self.change_count.fetch_add(1, AcqRel) + 1;
        // A later change of the group may have been faster. Who began after that began after this one too.
        self.last_of(key).fetch_max(number, AcqRel);
    }

    /// Begins a new epoch for every key.
    pub(crate) fn advance_all(&self) {
        let number = self.change_count.fetch_add(1, AcqRel) + 1;
        for last in &self.last {
            last.fetch_max(number, AcqRel);
        }
    }

    fn last_of(&self, key: &[u8]) -> &AtomicU64 {
        &self.last[self.hasher.hash_one(key) as usize % self.last.len()]
    }
}

impl Default for Epochs {
    fn default() -> Self {
        let last = (0..GROUP_COUNT).map(|_| AtomicU64::new(0)).collect();
        Self { hasher: RandomState::new(), change_count: AtomicU64::new(0), last }
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

    #[test]
    fn change_after_a_moment_is_told_from_one_before_it() {
        let epochs = Epochs::default();
        epochs.advance(b"a");
        let moment = epochs.now();
        assert_eq!(epochs.since(b"a", moment), Some(epochs.of(b"a")));
        epochs.advance(b"a");
        assert_eq!(epochs.since(b"a", moment), None);
        assert!(epochs.since(b"a", epochs.now()).is_some());
    }
}
