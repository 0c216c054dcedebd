//! The memory tier: whole responses, ready to send, in front of the store.
//!
//! Owns: what is in memory. Invariants: what it takes stays within its capacity, and one entry never takes
//! more than a small share of it; what was read from the store before it was replaced or removed there
//! does not stay in memory after that. Cost: a lookup is a hash and a short shared lock of one shard.
//! The replacement policy (Clock-PRO with ghosts, from the library) resists scans.

use std::sync::Arc;

use bytes::Bytes;
use quick_cache::{OptionsBuilder, Weighter, sync::Cache};

use crate::cache::{
    entry::{Entry, Marker},
    epochs::{Epoch, Epochs},
};

/// The memory tier.
pub(crate) struct HotTier {
    cache: Option<Cache<Box<[u8]>, Hot, Weights>>,
    weight_max: u64,
    /// Counts what is replaced or removed.
    changes: Epochs,
}

/// What can lie in memory under a key.
#[derive(Clone)]
pub(crate) enum Hot {
    Response(Arc<Entry>),
    Marker(Arc<Marker>),
    Chunk(Bytes),
}

impl HotTier {
    /// A tier of `bytes`; 0 keeps nothing.
    pub(crate) fn new(bytes: u64) -> Self {
        let entries = usize::try_from(bytes / USUAL_ENTRY_BYTES).unwrap_or(usize::MAX).max(ENTRY_COUNT_MIN);
        let options = OptionsBuilder::new().weight_capacity(bytes).estimated_items_capacity(entries).build();
        let cache = options.ok().filter(|_| bytes > 0);
        let cache = cache.map(|options| Cache::with_options(options, Weights, Default::default(), Default::default()));
        Self { cache, weight_max: bytes / ENTRY_SHARE, changes: Epochs::default() }
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<Hot> {
        self.cache.as_ref()?.get(key)
    }

    /// Whether something of `len` bytes can be kept at all.
    pub(crate) fn admits(&self, len: usize) -> bool {
        self.cache.is_some() && len as u64 <= self.weight_max
    }

    /// To be taken before the store is read for what may then be inserted.
    pub(crate) fn epoch(&self, key: &[u8]) -> Epoch {
        self.changes.of(key)
    }

    /// Keeps what was read from the store since `epoch`, if it is not too large and nothing has changed.
    pub(crate) fn insert(&self, key: &[u8], hot: Hot, epoch: Epoch) {
        let Some(cache) = &self.cache else { return };
        if weight(key, &hot) > self.weight_max || self.changes.of(key) != epoch {
            return;
        }
        cache.insert(key.into(), hot);
        if self.changes.of(key) != epoch {
            cache.remove(key);
        }
    }

    /// Puts `hot` in the place of whatever there was.
    pub(crate) fn replace(&self, key: &[u8], hot: Hot) {
        self.remove(key);
        self.insert(key, hot, self.epoch(key));
    }

    /// Forgets `key`, because the store's entry was replaced or removed.
    pub(crate) fn remove(&self, key: &[u8]) {
        self.changes.advance(key);
        if let Some(cache) = &self.cache {
            cache.remove(key);
        }
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> u64 {
        self.cache.as_ref().map_or(0, |cache| cache.len() as u64)
    }

    /// Bytes they take, as weighed.
    pub(crate) fn bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::weight)
    }
}

/// Weighs by bytes of memory.
#[derive(Clone)]
struct Weights;

impl Weighter<Box<[u8]>, Hot> for Weights {
    fn weight(&self, key: &Box<[u8]>, hot: &Hot) -> u64 {
        weight(key, hot)
    }
}

fn weight(key: &[u8], hot: &Hot) -> u64 {
    let content = match hot {
        Hot::Response(entry) => entry.weight(),
        Hot::Marker(_) => MARKER_BYTES,
        Hot::Chunk(bytes) => bytes.len() as u64,
    };
    content + key.len() as u64 + SLOT_BYTES
}

/// One entry takes at most this part of the tier.
const ENTRY_SHARE: u64 = 32;
/// For the tier's first table; it grows as needed.
const USUAL_ENTRY_BYTES: u64 = 16 << 10;
const ENTRY_COUNT_MIN: usize = 64;
/// What the library's tables take per entry.
const SLOT_BYTES: u64 = 96;
const MARKER_BYTES: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tier_stays_within_its_bytes() {
        let tier = HotTier::new(1 << 20);
        for number in 0..10_000_u32 {
            tier.replace(&number.to_le_bytes(), Hot::Chunk(Bytes::from(vec![0; 1000])));
        }
        assert!(tier.bytes() <= 1 << 20, "{}", tier.bytes());
        assert!(tier.len() > 500, "{}", tier.len());
    }

    #[test]
    fn entry_larger_than_its_share_replaces_nothing_but_its_older_self() {
        let tier = HotTier::new(1 << 20);
        tier.replace(b"a", Hot::Chunk(Bytes::from(vec![0; 1000])));
        tier.replace(b"a", Hot::Chunk(Bytes::from(vec![0; 1 << 19])));
        assert!(tier.find(b"a").is_none());
    }

    #[test]
    fn what_was_read_before_a_removal_is_not_kept_after_it() {
        let tier = HotTier::new(1 << 20);
        let epoch = tier.epoch(b"a");
        tier.remove(b"a");
        tier.insert(b"a", Hot::Chunk(Bytes::from_static(b"old")), epoch);
        assert!(tier.find(b"a").is_none());
    }

    #[test]
    fn tier_of_no_bytes_keeps_nothing() {
        let tier = HotTier::new(0);
        tier.replace(b"a", Hot::Chunk(Bytes::from_static(b"x")));
        assert!(tier.find(b"a").is_none());
        assert_eq!((tier.len(), tier.bytes()), (0, 0));
    }
}
