//! Remembers the keys of resources to which something applies.
//!
//! Owns: a fixed table of key hashes. It may forget a key, and two keys may share a slot, so it is for facts that save
//! work and that nothing depends on. Cost: 128 KiB. To look a key up takes a hash of it and one load, and no hash while
//! the set is empty.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::key_slots::{EMPTY, KeySlots};

/// A set of keys in fixed memory. It may forget keys, so use it for hints only.
///
/// ```
/// use larder_cache::http::key_set::KeySet;
///
/// let uncollapsible = KeySet::default();
/// uncollapsible.insert(b"a key");
/// assert!(uncollapsible.contains(b"a key") && !uncollapsible.contains(b"another"));
/// ```
pub struct KeySet {
    slots: KeySlots,
    used_count: AtomicUsize,
}

impl KeySet {
    /// Returns whether the set has the key. It may have forgotten the key.
    pub fn contains(&self, key: &[u8]) -> bool {
        if self.used_count.load(Relaxed) == 0 {
            return false;
        }
        let of_key = self.slots.slot(key);
        of_key.slot.load(Relaxed) == of_key.hash
    }

    /// Adds a key. It replaces an older key that has the same slot.
    pub fn insert(&self, key: &[u8]) {
        let of_key = self.slots.slot(key);
        if of_key.slot.swap(of_key.hash, Relaxed) == EMPTY {
            self.used_count.fetch_add(1, Relaxed);
        }
    }

    /// Removes a key.
    pub fn remove(&self, key: &[u8]) {
        if self.used_count.load(Relaxed) == 0 {
            return;
        }
        let of_key = self.slots.slot(key);
        if of_key.slot.compare_exchange(of_key.hash, EMPTY, Relaxed, Relaxed).is_ok() {
            self.used_count.fetch_sub(1, Relaxed);
        }
    }
}

impl Default for KeySet {
    fn default() -> Self {
        Self { slots: KeySlots::new(SLOT_COUNT), used_count: AtomicUsize::new(0) }
    }
}

const SLOT_COUNT: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_found_until_it_is_taken_out() {
        let keys = KeySet::default();
        assert!(!keys.contains(b"a"));
        keys.insert(b"a");
        assert!(keys.contains(b"a") && !keys.contains(b"b"));
        keys.insert(b"a");
        keys.insert(b"b");
        keys.remove(b"a");
        assert!(!keys.contains(b"a") && keys.contains(b"b"));
        keys.remove(b"a");
        assert!(keys.contains(b"b"));
    }
}
