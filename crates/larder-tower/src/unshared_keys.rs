//! Keys whose last response could not be shared. Requests for them do not wait for one another.
//!
//! Without this, the requests for a resource that is never stored would each wait for the head of another's response
//! first. Cost: 8 KiB. A key may be forgotten early, because another one takes its slot.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of keys that are remembered.
const SLOT_COUNT: usize = 1024;
/// The value of a slot without a key. A key with this value is never remembered.
const NO_KEY: u64 = 0;

/// A set of keys, of bounded size.
pub(crate) struct UnsharedKeys {
    slots: Box<[AtomicU64]>,
}

impl Default for UnsharedKeys {
    fn default() -> Self {
        Self { slots: (0..SLOT_COUNT).map(|_| AtomicU64::new(NO_KEY)).collect() }
    }
}

impl UnsharedKeys {
    pub(crate) fn contains(&self, key: u64) -> bool {
        key != NO_KEY && self.slot(key).load(Relaxed) == key
    }

    pub(crate) fn insert(&self, key: u64) {
        self.slot(key).store(key, Relaxed);
    }

    pub(crate) fn remove(&self, key: u64) {
        // A failure means that the slot has another key, which stays.
        let _ = self.slot(key).compare_exchange(key, NO_KEY, Relaxed, Relaxed);
    }

    fn slot(&self, key: u64) -> &AtomicU64 {
        &self.slots[key as usize % SLOT_COUNT]
    }
}
