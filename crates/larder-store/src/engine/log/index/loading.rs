//! The facts that a partition needs while entries of an earlier run are loaded beneath newer ones.
//!
//! Slots do not contain their keys. To recognize an older record of a key that has a newer one already, a partition
//! remembers until loading ends: a fingerprint of each newer slot's key, the keys that were removed, and the addresses
//! of which nothing may be loaded. Does not: touch slots. Invariant: a record is loaded only if no newer one of its key
//! is known. Two keys of one address with the same fingerprint (one pair in 65,535) count as one, and the older is
//! forgotten. Cost: two bytes a slot of partitions with newer entries, until loading ends.

use crate::hash::KeyHash;

use std::collections::{HashMap, HashSet};

/// The fingerprint of a slot of which no key is known: one from an image.
const UNKNOWN: u16 = 0;

/// See the module.
pub(super) struct IndexLoading {
    /// By the slot's number; empty until the first slot comes.
    fingerprints: Box<[u16]>,
    slot_count: usize,
    /// Keys that were removed, as hashes, with their address and the packed slot of the removal's record.
    removed: HashMap<KeyHash, RemovedDuringLoad>,
    /// Addresses whose slots went for another reason.
    forgotten: HashSet<u64>,
}

#[derive(Clone, Copy)]
struct RemovedDuringLoad {
    address: u64,
    tombstone: u64,
}

/// Bits of a key's hash that choose neither partition, bucket nor tag alone, as a number over 0.
pub(super) fn fingerprint(key_hash: KeyHash) -> u16 {
    let mixed = key_hash.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48;
    (mixed as u16).max(UNKNOWN + 1)
}

impl IndexLoading {
    pub(super) fn new(slot_count: usize) -> Self {
        Self { fingerprints: Box::default(), slot_count, removed: HashMap::new(), forgotten: HashSet::new() }
    }

    /// Notes that a key has a newer record, which is in the index.
    pub(super) fn note_inserted(&mut self, key_hash: KeyHash) {
        self.removed.remove(&key_hash);
    }

    /// Notes that a key was removed. Without a record that says so, nothing of its address counts that is older.
    pub(super) fn note_removed(&mut self, key_hash: KeyHash, address: u64, tombstone: Option<u64>) {
        match tombstone {
            Some(tombstone) => _ = self.removed.insert(key_hash, RemovedDuringLoad { address, tombstone }),
            None => _ = self.forgotten.insert(address),
        }
    }

    /// Notes that a slot of this address went, of a key that is not known.
    pub(super) fn note_forgotten(&mut self, address: u64) {
        self.forgotten.insert(address);
    }

    /// Whether something newer is known of a key that is not in the index.
    pub(super) fn is_newer(&self, key_hash: KeyHash, address: u64) -> bool {
        self.removed.contains_key(&key_hash) || self.forgotten.contains(&address)
    }

    /// Whether a slot that is there may be of this key.
    pub(super) fn may_be_of(&self, slot_number: usize, key_hash: KeyHash) -> bool {
        [UNKNOWN, fingerprint(key_hash)].contains(&self.fingerprint_at(slot_number))
    }

    pub(super) fn fingerprint_at(&self, slot_number: usize) -> u16 {
        self.fingerprints.get(slot_number).copied().unwrap_or(UNKNOWN)
    }

    pub(super) fn set_fingerprint(&mut self, slot_number: usize, fingerprint: u16) {
        assert!(slot_number < self.slot_count);
        if self.fingerprints.is_empty() {
            self.fingerprints = vec![UNKNOWN; self.slot_count].into();
        }
        self.fingerprints[slot_number] = fingerprint;
    }

    /// Forgets all fingerprints. The table is replaced by one of `slot_count` slots.
    pub(super) fn forget_fingerprints(&mut self, slot_count: usize) {
        self.fingerprints = Box::default();
        self.slot_count = slot_count;
    }

    /// Addresses of which nothing may be loaded.
    pub(super) fn forgotten(&self) -> impl Iterator<Item = &u64> {
        self.forgotten.iter()
    }

    /// The keys that were removed: their hash, address, and the packed slot of the removal's record.
    pub(super) fn removed(&self) -> impl Iterator<Item = (KeyHash, u64, u64)> + '_ {
        self.removed.iter().map(|(&key_hash, removed)| (key_hash, removed.address, removed.tombstone))
    }
}
