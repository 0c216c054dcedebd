//! Remembers resources whose responses cannot be shared. Requests for them then do not wait in vain for one another's
//! fetches.
//!
//! Owns: a fixed table of key hashes. It may forget a key, and two keys may share a slot. Then one request waits in
//! vain, or requests are not collapsed. Cost: 128 KiB, and one load per miss.

use std::sync::atomic::Ordering::Relaxed;

use super::key_slots::{EMPTY, KeySlots};

/// The keys of resources whose responses cannot be shared.
pub(crate) struct Uncollapsible {
    slots: KeySlots,
}

impl Uncollapsible {
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

impl Default for Uncollapsible {
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
        let uncollapsible = Uncollapsible::default();
        assert!(!uncollapsible.contains(b"a"));
        uncollapsible.insert(b"a");
        assert!(uncollapsible.contains(b"a") && !uncollapsible.contains(b"b"));
        uncollapsible.remove(b"a");
        assert!(!uncollapsible.contains(b"a"));
    }
}
