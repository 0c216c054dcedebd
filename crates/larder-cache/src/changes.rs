//! Distinguishes work that began before a change of a key from work that began after it.
//!
//! Owns: the number of the last change for each of many groups of keys, and two ways to group them. Invariant: work
//! that began before a change of its key always sees that change. Two keys that share both groups share their changes,
//! and then a result is discarded without need. (With only one grouping, a fetch during which a hundred other keys
//! change would be discarded once in forty times.)
//!
//! [`MemoryCache`](crate::MemoryCache) uses it, and so can a program that fetches values which may be removed
//! meanwhile. Cost: 64 KiB of memory, two loads. The grouping is that of a count-min sketch (Cormode and Muthukrishnan,
//! 2005), with the latest number in place of sums.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire},
    },
};

/// The changes of all keys, in order: tells work that began before a change of its key from later work.
///
/// For programs that keep values of a store of their own in a [`MemoryCache`](crate::MemoryCache). Users of
/// [`Cache`](crate::Cache) do not need it.
pub struct KeyChanges {
    hasher: RandomState,
    /// Number of changes so far.
    change_count: AtomicU64,
    /// Number of the last change in each group of keys.
    last: [Box<[AtomicU64]>; 2],
}

/// The number of changes at the time when some work began, see [`KeyChanges::now`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeMoment(u64);

impl KeyChanges {
    /// Returns the current moment.
    pub fn now(&self) -> ChangeMoment {
        ChangeMoment(self.change_count.load(Acquire))
    }

    /// Returns whether a key has not changed since `since`.
    pub fn is_unchanged(&self, key: &[u8], since: ChangeMoment) -> bool {
        self.groups_of(key).into_iter().any(|last| last.load(Acquire) <= since.0)
    }

    /// Records a change of a key.
    pub fn advance(&self, key: &[u8]) {
        let number = self.change_count.fetch_add(1, AcqRel) + 1;
        for last in self.groups_of(key) {
            // A later change in the group may already have stored its number. That number also covers all work that
            // began before this change.
            last.fetch_max(number, AcqRel);
        }
    }

    /// Records a change of every key.
    pub fn advance_all(&self) {
        let number = self.change_count.fetch_add(1, AcqRel) + 1;
        for last in self.last.iter().flatten() {
            last.fetch_max(number, AcqRel);
        }
    }

    fn groups_of(&self, key: &[u8]) -> [&AtomicU64; 2] {
        let hash = self.hasher.hash_one(key);
        let [first, second] = &self.last;
        [&first[hash as u32 as usize % GROUP_COUNT], &second[(hash >> 32) as usize % GROUP_COUNT]]
    }
}

impl fmt::Debug for KeyChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyChanges").field("change_count", &self.change_count).finish_non_exhaustive()
    }
}

impl Default for KeyChanges {
    fn default() -> Self {
        let groups = || (0..GROUP_COUNT).map(|_| AtomicU64::new(0)).collect();
        Self { hasher: RandomState::new(), change_count: AtomicU64::new(0), last: [groups(), groups()] }
    }
}

const GROUP_COUNT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_is_seen_by_who_began_before_it_and_by_nobody_else() {
        let changes = KeyChanges::default();
        let before = changes.now();
        assert!(changes.is_unchanged(b"a", before));
        changes.advance(b"a");
        assert!(!changes.is_unchanged(b"a", before));
        assert!(changes.is_unchanged(b"a", changes.now()));
        changes.advance_all();
        assert!(!changes.is_unchanged(b"b", before));
    }

    /// A response that is fetched while other keys change must still be stored.
    #[test]
    fn hundred_changes_of_others_are_hardly_ever_taken_for_ones_own() {
        let changes = KeyChanges::default();
        let key = |number: u32| number.to_le_bytes();
        let mut wrong_count = 0;
        for round in 0..1000 {
            let before = changes.now();
            (0..100).for_each(|other| changes.advance(&key(1 + round * 100 + other)));
            wrong_count += usize::from(!changes.is_unchanged(&key(0), before));
        }
        // One grouping would discard about 24 of them, two discard less than one.
        assert!(wrong_count <= 8, "{wrong_count}");
    }
}
