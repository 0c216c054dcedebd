//! A fixed table of key hashes.
//!
//! Owns: the choice of a key's slot, and of the hash in it. Invariant: the hash of a key is never [`EMPTY`] or
//! [`SPECIAL`], so that a slot can have these two values too. The hash has a secret seed, so that nobody can foresee
//! which keys share a slot. Cost: about 40 instructions for a hash, a tenth of what the standard library's takes.

use std::{hash::BuildHasher as _, sync::atomic::AtomicU64};

use foldhash::fast::RandomState;

/// A table with a fixed number of atomic slots. A key's hash selects its slot, so several keys may share one.
///
/// ```
/// use larder_cache::http::key_slots::KeySlots;
/// use std::sync::atomic::Ordering::Relaxed;
///
/// let table = KeySlots::new(1024);
/// let found = table.slot(b"a key");
/// found.slot.store(found.hash, Relaxed);
/// assert_eq!(table.slot(b"a key").slot.load(Relaxed), found.hash);
/// ```
pub struct KeySlots {
    slots: Box<[AtomicU64]>,
    hasher: RandomState,
}

/// The slot of a key, and the hash to store in it for this key. [`KeySlots`] has an example.
pub struct KeySlot<'a> {
    /// The slot.
    pub slot: &'a AtomicU64,
    /// The hash of the key.
    pub hash: u64,
}

impl KeySlots {
    /// Creates a table with this number of empty slots, 8 bytes each.
    pub fn new(slot_count: usize) -> Self {
        assert!(slot_count > 0, "a key needs a slot");
        let slots = (0..slot_count).map(|_| AtomicU64::new(EMPTY)).collect();
        Self { slots, hasher: RandomState::default() }
    }

    /// Returns the slot of a key. Other keys may share it.
    pub fn slot(&self, key: &[u8]) -> KeySlot<'_> {
        let hash = self.hasher.hash_one(key).clamp(EMPTY + 1, SPECIAL - 1);
        KeySlot { slot: &self.slots[(hash % self.slots.len() as u64) as usize], hash }
    }
}

/// The value of a slot that no key has.
pub const EMPTY: u64 = 0;
/// A value that is not the hash of any key. The table's owner gives it a meaning.
pub const SPECIAL: u64 = u64::MAX;
