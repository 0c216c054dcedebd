//! Remembers the keys of resources to which something applies.
//!
//! Owns: a fixed table of key hashes. It may forget a key, and two keys may share a slot, so it is for facts that save
//! work and that nothing depends on. Cost: 128 KiB, and one load to look a key up.

use std::sync::atomic::Ordering::Relaxed;

use super::key_slots::{EMPTY, KeySlots};

/// A set of keys that may forget some.
pub(crate) struct KeySet {
    slots: KeySlots,
}

impl KeySet {
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        let of_key = self.slots.slot(key);
        of_key.slot.load(Relaxed) == of_key.hash
    }

    pub(crate) fn insert(&self, key: &[u8]) {
        let of_key = self.slots.slot(key);
        of_key.slot.store(of_key.hash, Relaxed);
    }

    pub(crate) fn remove(&self, key: &[u8]) {
        let of_key = self.slots.slot(key);
        if of_key.slot.load(Relaxed) == of_key.hash {
            of_key.slot.store(EMPTY, Relaxed);
        }
    }
}

impl Default for KeySet {
    fn default() -> Self {
        Self { slots: KeySlots::new(SLOT_COUNT) }
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
        keys.remove(b"a");
        assert!(!keys.contains(b"a"));
    }
}
