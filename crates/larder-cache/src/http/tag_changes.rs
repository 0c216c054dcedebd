//! Remembers resources whose entity tag alternates, for example because an origin's servers generate different tags.
//!
//! Parts of such a resource rarely fit together: requesting a missing one costs a request that brings nothing. So its
//! ranges are forwarded until all of it is stored. Nothing but cost depends on this table, and it may forget a
//! resource.
//!
//! Memory: a hash and a time for each of at most `RESOURCE_COUNT_MAX` resources.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use quick_cache::sync::Cache;

/// The resources whose entity tags have changed recently.
pub struct TagChanges {
    by_hash: Cache<u64, TagChange>,
    hasher: RandomState,
    are_known: AtomicBool,
}

/// The time of a resource's last change of its entity tag, and whether it followed another change.
#[derive(Clone, Copy)]
struct TagChange {
    last: Instant,
    /// Whether the change came soon after another one.
    is_repeated: bool,
}

impl TagChanges {
    /// Records a change of an entity tag: the origin has another one than the tag with which a missing part was
    /// requested. `primary` is the key of the resource.
    pub fn note(&self, primary: &[u8], now: Instant) {
        let hash = self.hasher.hash_one(primary);
        let is_repeated = self.by_hash.get(&hash).is_some_and(|change| change.is_within(REPEAT_MAX, now));
        self.by_hash.insert(hash, TagChange { last: now, is_repeated });
        self.are_known.store(true, Relaxed);
    }

    /// Returns whether any change was recorded since the start. While there was none, requests need no search.
    pub fn are_known(&self) -> bool {
        self.are_known.load(Relaxed)
    }

    /// Returns whether the entity tag of a resource alternates. Parts of different responses are then unlikely to fit
    /// together. `primary` is the key of the resource.
    pub fn are_frequent(&self, primary: &[u8], now: Instant) -> bool {
        let change = self.by_hash.get(&self.hasher.hash_one(primary));
        change.is_some_and(|change| change.is_repeated && change.is_within(KNOWN_FOR, now))
    }
}

impl Default for TagChanges {
    fn default() -> Self {
        Self { by_hash: Cache::new(RESOURCE_COUNT_MAX), hasher: RandomState::new(), are_known: AtomicBool::new(false) }
    }
}

impl TagChange {
    fn is_within(&self, limit: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.last) <= limit
    }
}

/// Maximum number of resources that are remembered.
const RESOURCE_COUNT_MAX: usize = 4096;
/// Maximum time between two changes that count as an alternation, not as new versions. Few resources really change
/// twice in that time.
const REPEAT_MAX: Duration = Duration::from_secs(60);
/// Time after the last change for which requests for ranges are passed on to the origin. After that, one request finds
/// out whether the tag still alternates.
const KNOWN_FOR: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_that_changes_to_and_fro_is_known_for_a_while_and_a_new_version_is_not() {
        let changes = TagChanges::default();
        let start = Instant::now();
        changes.note(b"a", start);
        assert!(!changes.are_frequent(b"a", start));
        changes.note(b"a", start + 2 * REPEAT_MAX);
        assert!(!changes.are_frequent(b"a", start + 2 * REPEAT_MAX), "another version");
        let last = start + 3 * REPEAT_MAX;
        changes.note(b"a", last);
        assert!(changes.are_frequent(b"a", last + KNOWN_FOR) && !changes.are_frequent(b"b", last));
        assert!(!changes.are_frequent(b"a", last + KNOWN_FOR + Duration::from_secs(1)));
    }

    #[test]
    fn number_of_resources_is_bounded() {
        let changes = TagChanges::default();
        let now = Instant::now();
        (0..10 * RESOURCE_COUNT_MAX).for_each(|number| changes.note(&number.to_le_bytes(), now));
        assert!(changes.by_hash.len() <= RESOURCE_COUNT_MAX);
    }
}
