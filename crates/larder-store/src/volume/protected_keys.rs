//! Keys whose entries are about to be read: reclaim keeps them while there is room.
//!
//! Owns: the number of guards on each key. The engine keeps the entries when it reclaims. Invariant: a key is counted
//! as long as one of its [`ReclaimGuard`]s exists. Cost: about 32 bytes per protected key, and a lock. At most a
//! quarter of the volume can be protected, so that reclaim always finds something.

use super::Volume;
use crate::sync::IgnorePoison;
use crate::{
    format::record::BODY_BYTES_MAX,
    hash::KeyHash,
    sync::{Mutex, MutexGuard},
};
use std::{
    collections::{HashMap, hash_map},
    sync::Arc,
};

/// Maximum number of keys that are protected on a volume at a time. Enough for the chunks of 32 GiB of bodies; they
/// take 1 MiB of memory.
const PROTECTED_MAX: u64 = 1 << 15;
/// Protected entries may take at most 1/`VOLUME_DIVISOR` of a volume. Each counts as an entry of the maximum length.
const VOLUME_DIVISOR: u64 = 4;

/// The protected keys of a volume, each with its number of guards.
pub(crate) struct ProtectedKeys {
    counts: Mutex<HashMap<KeyHash, u32>>,
    keys_max: usize,
}

/// Protects an entry from being reclaimed until this is dropped ([`crate::Store::protect`]). It protects
/// nothing in policies that cannot protect entries, or if too many entries were protected when it was created.
///
/// ```
/// # futures_executor::block_on(async {
/// use larder_store::{Hints, ReclaimGuard, Store, StoreOptions};
///
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("example.larder");
/// let store = Store::open(StoreOptions::new(path, 16 << 20))?;
/// let mut guard: Option<ReclaimGuard> = None;
/// // Four times the store's size.
/// for number in 0..256 {
///     let key = format!("chunk {number}");
///     let mut writer = store.insert(key.as_bytes(), "the head".into(), Hints::default())?;
///     writer.write(vec![0; 256 << 10].into())?;
///     writer.commit().await?;
///     if number == 64 {
///         guard = Some(store.protect(key.as_bytes()));
///     }
/// }
/// assert!(store.get(b"chunk 64").await?.is_some());
/// drop(guard);
/// # store.close().await
/// # }).expect("a store in a directory of its own");
/// ```
#[must_use = "the entry is protected as long as this exists"]
pub struct ReclaimGuard {
    /// The volume and the key; `None` if too many keys were protected already.
    place: Option<(Arc<Volume>, KeyHash)>,
}

impl_debug!(ReclaimGuard {});

impl ProtectedKeys {
    /// Creates an empty list for a volume of `size_bytes`.
    pub(crate) fn new(size_bytes: u64) -> Self {
        let keys_max = (size_bytes / VOLUME_DIVISOR / BODY_BYTES_MAX).min(PROTECTED_MAX) as usize;
        Self { counts: Mutex::new(HashMap::new()), keys_max }
    }

    /// Returns whether the entry with this hash is protected.
    pub(crate) fn contains(&self, key_hash: KeyHash) -> bool {
        self.lock().contains_key(&key_hash)
    }

    /// Returns whether nothing is protected.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Adds a guard to a key. Returns `false` if too many other keys are protected.
    fn take(&self, key_hash: KeyHash) -> bool {
        let mut counts = self.lock();
        let is_full = counts.len() >= self.keys_max;
        match counts.entry(key_hash) {
            hash_map::Entry::Vacant(_) if is_full => return false,
            entry => *entry.or_insert(0) += 1,
        }
        assert!(counts.len() <= self.keys_max);
        true
    }

    fn release(&self, key_hash: KeyHash) {
        let mut counts = self.lock();
        if let hash_map::Entry::Occupied(mut entry) = counts.entry(key_hash) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<KeyHash, u32>> {
        self.counts.lock().ignore_poison()
    }
}

impl ReclaimGuard {
    pub(crate) fn new(volume: &Arc<Volume>, key_hash: KeyHash) -> Self {
        Self { place: volume.protected_keys.take(key_hash).then(|| (Arc::clone(volume), key_hash)) }
    }
}

impl Drop for ReclaimGuard {
    fn drop(&mut self) {
        if let Some((volume, key_hash)) = &self.place {
            volume.protected_keys.release(*key_hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::KeyHash;

    #[test]
    fn a_key_is_held_until_it_was_released_as_often_as_taken() {
        let holds = ProtectedKeys::new(1 << 30);
        assert!(holds.take(KeyHash(7)) && holds.take(KeyHash(7)));
        holds.release(KeyHash(7));
        assert!(holds.contains(KeyHash(7)));
        holds.release(KeyHash(7));
        assert!(!holds.contains(KeyHash(7)));
    }

    #[test]
    fn the_number_of_keys_held_is_bounded() {
        let holds = ProtectedKeys::new(1 << 30);
        assert!((0..256).all(|n| holds.take(KeyHash(n))));
        assert!(!holds.take(KeyHash(1 << 40)), "a quarter of a GiB is held already");
        assert!(holds.take(KeyHash(3)), "one that is held already can be held again");
    }
}
