//! Keys whose entries are exempt from eviction until they are unpinned.
//!
//! Owns: the pinned keys, and the space that their entries take on the volume. The engine keeps the entries when it
//! reclaims; the caller, which knows the keys, restores pins after a restart. Invariant: pinned entries take at most
//! their share of the volume, so that reclaim always finds something. The share includes the unused space that entries
//! of their length leave in a segment. Cost: none while nothing is pinned; otherwise about 24 bytes of memory per
//! pinned key, and a lock for each record written or reclaimed.

use crate::sync::IgnorePoison;
use crate::{
    hash::KeyHash,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    units::{SECTOR_BYTES, sectors},
};
use std::collections::HashMap;

/// Maximum number of keys that can be pinned on one volume at a time. They take 24 MiB of memory.
const PINS_MAX: usize = 1 << 20;
/// Maximum bytes that a record takes on the volume in addition to key, head and body. Includes its unit's header and
/// its line in the trailer.
const OVERHEAD_BYTES: u64 = 4 << 10;

/// The pinned keys of a volume.
pub(crate) struct PinnedKeys {
    charges: Mutex<PinCharges>,
    /// Number of pinned keys, readable without the lock.
    count: AtomicU64,
    sectors_max: u64,
    segment_sectors: u64,
}

#[derive(Default)]
struct PinCharges {
    /// The pinned keys, each with the sectors that its entry may take.
    by_key: HashMap<KeyHash, u32>,
    sectors: u64,
}

impl PinnedKeys {
    /// Creates an empty list for a volume of `size_bytes` in segments of `segment_bytes`. Pinned entries may take
    /// `share` of the volume.
    pub(crate) fn new(size_bytes: u64, segment_bytes: u64, share: f64) -> Self {
        assert!((0.0..=1.0).contains(&share), "the share was checked");
        let sectors_max = ((size_bytes / SECTOR_BYTES) as f64 * share) as u64;
        let segment_sectors = segment_bytes / SECTOR_BYTES;
        Self { charges: Mutex::default(), count: AtomicU64::new(0), sectors_max, segment_sectors }
    }

    /// Pins a key. `len_bytes` is the length of its entry with key and head. Returns `false`, without pinning, if the
    /// limit on pinned bytes or keys is reached.
    pub(crate) fn insert(&self, key_hash: KeyHash, len_bytes: u64) -> bool {
        let charge = self.charge(len_bytes);
        let mut charges = self.lock();
        let before = charges.by_key.remove(&key_hash).map_or(0, u64::from);
        charges.sectors -= before;
        let has_room = charges.sectors + u64::from(charge) <= self.sectors_max && charges.by_key.len() < PINS_MAX;
        if has_room {
            charges.sectors += u64::from(charge);
            charges.by_key.insert(key_hash, charge);
        }
        assert!(charges.sectors <= self.sectors_max, "what is pinned has a bound");
        self.count.store(charges.by_key.len() as u64, Ordering::Release);
        has_room
    }

    /// Unpins a key. Returns whether it was pinned.
    pub(crate) fn remove(&self, key_hash: KeyHash) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut charges = self.lock();
        let Some(charge) = charges.by_key.remove(&key_hash) else { return false };
        assert!(u64::from(charge) <= charges.sectors, "what is unpinned was counted");
        charges.sectors -= u64::from(charge);
        self.count.store(charges.by_key.len() as u64, Ordering::Release);
        true
    }

    /// Unpins all keys.
    pub(crate) fn clear(&self) {
        let mut charges = self.lock();
        *charges = PinCharges::default();
        self.count.store(0, Ordering::Release);
    }

    /// Returns whether a key is pinned.
    pub(crate) fn contains(&self, key_hash: KeyHash) -> bool {
        !self.is_empty() && self.lock().by_key.contains_key(&key_hash)
    }

    /// Returns the pinned keys.
    pub(crate) fn keys(&self) -> Vec<KeyHash> {
        self.lock().by_key.keys().copied().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Returns how many bytes of the volume pinned entries take.
    pub(crate) fn bytes(&self) -> u64 {
        self.lock().sectors * SECTOR_BYTES
    }

    /// Returns how many bytes of the volume pinned entries may take.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.sectors_max * SECTOR_BYTES
    }

    /// Returns the sectors charged for a pinned entry of `len_bytes`: its own, and its share of the space that is
    /// unusable at the end of a segment full of such entries.
    fn charge(&self, len_bytes: u64) -> u32 {
        let own = sectors(len_bytes).max(1);
        let fitting = self.segment_sectors.saturating_sub(sectors(OVERHEAD_BYTES)) / (own + 1);
        let part = self.segment_sectors / fitting.max(1);
        u32::try_from(own.max(part.min(2 * own))).unwrap_or(u32::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, PinCharges> {
        self.charges.lock().ignore_poison()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pinned_is_counted_once_and_has_a_bound() {
        let pins = PinnedKeys::new(1 << 20, 256 << 10, 0.25);
        assert!(pins.is_empty() && !pins.contains(KeyHash(1)) && !pins.remove(KeyHash(1)));
        assert!(pins.insert(KeyHash(1), 100 << 10));
        let bytes = pins.bytes();
        assert!(((100 << 10)..(200 << 10)).contains(&bytes), "{bytes}");
        assert!(pins.insert(KeyHash(1), 100 << 10));
        assert_eq!((pins.count(), pins.bytes()), (1, bytes), "pinned again is pinned once");
        assert!(!pins.insert(KeyHash(2), 200 << 10) && !pins.contains(KeyHash(2)));
        assert!(
            pins.insert(KeyHash(1), 1000) && pins.bytes() < 3 << 10,
            "a shorter entry in its place gives room back"
        );
        assert!(pins.insert(KeyHash(2), 100 << 10));
        assert!(pins.remove(KeyHash(1)) && pins.count() == 1);
        pins.clear();
        assert_eq!((pins.count(), pins.bytes()), (0, 0));
    }

    #[test]
    fn an_entry_that_fills_a_segment_alone_counts_as_the_segment() {
        let pins = PinnedKeys::new(1 << 30, 2 << 20, 0.25);
        assert!(pins.insert(KeyHash(1), (1 << 20) + 1000));
        assert!(pins.bytes() > 1_900_000, "{}", pins.bytes());
        let nothing = PinnedKeys::new(1 << 30, 2 << 20, 0.0);
        assert!(!nothing.insert(KeyHash(1), 1));
    }
}
