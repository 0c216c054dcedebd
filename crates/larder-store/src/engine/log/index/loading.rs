//! The state of a partition while entries of an earlier run are loaded below newer ones.
//!
//! Slots do not contain their keys. To recognize an older record of a key that has a newer one, a partition keeps three
//! things until the end of loading: a fingerprint of each newer slot's key, the removed keys, and the addresses for
//! which nothing may be loaded. This module does not change slots. Invariant: a record is loaded only if no newer one
//! of its key is known. Two keys of one address with the same fingerprint (one pair in 65,535) count as one, and the
//! older is dropped. Cost: two bytes per slot of partitions with newer entries, until the end of loading.

use crate::hash::KeyHash;

use std::collections::{HashMap, HashSet};

/// Fingerprint of a slot whose key is unknown, because the slot was loaded from an image.
const UNKNOWN: u16 = 0;

/// Data that a partition keeps while entries of an earlier run are loaded. From this data, the partition knows which
/// loaded records are older than a change of their key.
pub(super) struct IndexLoading {
    /// Fingerprint of each slot's key, by the number of the slot. Empty until the first slot is added.
    fingerprints: Box<[u16]>,
    slot_count: usize,
    /// Removed keys, by their hashes. Each has its address and the packed slot of the removal's record.
    removed: HashMap<KeyHash, RemovedDuringLoad>,
    /// Addresses whose slots were dropped because there was no place for them.
    forgotten: HashSet<u64>,
}

#[derive(Clone, Copy)]
struct RemovedDuringLoad {
    address: u64,
    tombstone: u64,
}

/// Returns the fingerprint of a key. It uses bits of the hash that do not determine the partition, the bucket or the
/// tag. It is never [`UNKNOWN`].
pub(super) fn fingerprint(key_hash: KeyHash) -> u16 {
    let mixed = key_hash.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48;
    (mixed as u16).max(UNKNOWN + 1)
}

impl IndexLoading {
    pub(super) fn new(slot_count: usize) -> Self {
        Self { fingerprints: Box::default(), slot_count, removed: HashMap::new(), forgotten: HashSet::new() }
    }

    /// Notes that a newer record of a key was added to the index.
    pub(super) fn note_inserted(&mut self, key_hash: KeyHash) {
        self.removed.remove(&key_hash);
    }

    /// Notes that a key was removed.
    pub(super) fn note_removed(&mut self, key_hash: KeyHash, address: u64, tombstone: u64) {
        self.removed.insert(key_hash, RemovedDuringLoad { address, tombstone });
    }

    /// Notes that a slot of this address was dropped while its key was unknown. No record may then be loaded at this
    /// address.
    pub(super) fn note_forgotten(&mut self, address: u64) {
        self.forgotten.insert(address);
    }

    /// Returns whether the record being loaded must be ignored, although its key has no slot: the key was removed, or
    /// slots of its address were dropped.
    pub(super) fn is_newer(&self, key_hash: KeyHash, address: u64) -> bool {
        self.removed.contains_key(&key_hash) || self.forgotten.contains(&address)
    }

    /// Returns whether the fingerprint of a slot permits that the slot is the key's.
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

    /// Drops all fingerprints, because the table was replaced by a table with `slot_count` slots.
    pub(super) fn forget_fingerprints(&mut self, slot_count: usize) {
        self.fingerprints = Box::default();
        self.slot_count = slot_count;
    }

    /// Returns the addresses at which no record may be loaded.
    pub(super) fn forgotten(&self) -> impl Iterator<Item = &u64> {
        self.forgotten.iter()
    }

    /// Returns the removed keys. Each has its hash, its address, and the packed slot of the record of the removal.
    pub(super) fn removed(&self) -> impl Iterator<Item = (KeyHash, u64, u64)> + '_ {
        self.removed.iter().map(|(&key_hash, removed)| (key_hash, removed.address, removed.tombstone))
    }
}
