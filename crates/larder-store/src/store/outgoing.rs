//! The receiver of evicted entries, and the number by which it knows that a store is still the same.

use super::Store;
use crate::{EngineRow, LogRow, hash::KeyHasher, volume::evictions::EvictionReceiver};
use std::sync::Arc;

impl Store {
    /// Sets the receiver of entries that are about to be evicted, which may keep them elsewhere.
    ///
    /// Only the policies `log` and `log-clock` pass evicted entries on. Only the first call of this function has an
    /// effect. Returns whether all volumes pass entries on.
    ///
    /// For each entry that a segment loses, the store calls `wants`. It reads the wanted entries in batches: it calls
    /// `begin` before a batch, the sink for each entry read, and `finish` after the last one. Entries that were
    /// replaced, removed, invalidated or expired are not passed on. These functions run on the store's own thread: they
    /// delay writers if they take long. A `finish` that never ends stops all writing, so the only store operations it
    /// may wait for are reads.
    ///
    /// # Cost
    /// One device read for each entry that the receiver wants.
    pub fn set_evictions(&self, receiver: &Arc<EvictionReceiver>) -> bool {
        let mut passes_on = true;
        for engine in self.volumes.all() {
            let volume = engine.volume();
            let _ = volume.evictions.set(Arc::clone(receiver));
            passes_on &= matches!(volume.policy.engine, EngineRow::Log(LogRow::Packed(_)));
        }
        passes_on
    }

    /// Returns a number that changes when the store is created again, emptied or invalidated, or has other volumes.
    ///
    /// A program that keeps copies of entries elsewhere can save this number with them. If the number has changed
    /// since, the store may have removed or replaced any of these entries, so the copies must not be used.
    pub fn generation(&self) -> u64 {
        self.volumes.all().fold(0, |sum, engine| {
            let volume = engine.volume();
            let id = u128::from_le_bytes(volume.superblock().id.0);
            // FNV-1a's multiplier. The order of the volumes makes no difference.
            let of_volume =
                (id as u64 ^ (id >> u64::BITS) as u64 ^ u64::from(volume.epoch())).wrapping_mul(0x100_0000_01b3);
            sum ^ of_volume
        })
    }

    /// Returns a secret key for data about this store that is kept elsewhere, for example to sign copies of entries.
    /// Each `purpose` gets a different key.
    ///
    /// Only somebody who can read the store's volumes can compute it. It changes when the store is created again, or
    /// has other volumes.
    pub fn derived_key(&self, purpose: &str) -> [u8; 32] {
        self.volumes.all().fold([0; 32], |mut sum, engine| {
            let of_volume = KeyHasher::new(engine.volume().superblock().hash_key).derive(purpose.as_bytes());
            // The order of the volumes makes no difference.
            sum.iter_mut().zip(of_volume).for_each(|(sum, octet)| *sum ^= octet);
            sum
        })
    }
}
