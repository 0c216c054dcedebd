//! The memory cache: whole responses, ready to send, in front of the store.
//!
//! Invariants: its content stays within its capacity, and one entry never takes more than a small share. If a response
//! is replaced or removed in the store while it is being read, it does not stay in memory.
//!
//! Cost: a lookup is one hash and one short shared lock of one shard. The replacement policy (Clock-PRO with ghosts,
//! from the library) resists scans.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use quick_cache::{OptionsBuilder, Weighter, sync::Cache};

use crate::cache::{
    entry::{CachedEntry, ResourceMarker},
    epochs::{ChangeEpochs, EpochMoment},
};

/// The memory cache.
pub(crate) struct HotTier {
    cache: Option<Cache<Box<[u8]>, HotItem, ByteWeights>>,
    weight_max: AtomicU64,
    /// The replacements and removals so far.
    changes: ChangeEpochs,
}

/// An item in the memory cache.
#[derive(Clone)]
pub(crate) enum HotItem {
    Response(Arc<CachedEntry>),
    Marker(Arc<ResourceMarker>),
    Chunk(Bytes),
}

/// The rule that decides which entries are admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionRule {
    /// Entries that were requested, and are likely to be requested again.
    AskedFor,
    /// Also many neighbours that were not requested; see [`HotTier::offer`].
    ManyUnasked,
}

impl AdmissionRule {
    /// Returns the share of the capacity that is reserved for entries requested more than once.
    ///
    /// Neighbours need room until they are requested, which is one page view later. Without neighbours, room for new
    /// entries costs hits (Zipf 0.9, a memory cache of a twentieth of the objects: 62.4% with 3% of room, 61.7% with
    /// 10%, 60.7% with 20%).
    fn hot_share(self) -> f64 {
        match self {
            Self::AskedFor => 0.97,
            Self::ManyUnasked => 0.8,
        }
    }
}

impl HotTier {
    /// Creates a memory cache of `bytes` bytes. With 0 it keeps nothing.
    pub(crate) fn new(bytes: u64, newcomers: AdmissionRule) -> Self {
        let entries = usize::try_from(bytes / USUAL_ENTRY_BYTES).unwrap_or(usize::MAX).max(ENTRY_COUNT_MIN);
        let mut options = OptionsBuilder::new();
        options.weight_capacity(bytes).estimated_items_capacity(entries).hot_allocation(newcomers.hot_share());
        let options = options.build();
        let cache = options.ok().filter(|_| bytes > 0);
        let cache =
            cache.map(|options| Cache::with_options(options, ByteWeights, Default::default(), Default::default()));
        Self { cache, weight_max: AtomicU64::new(bytes / ENTRY_SHARE), changes: ChangeEpochs::default() }
    }

    /// Changes the capacity and evicts entries above it. Returns `false` if that is impossible: a memory cache created
    /// with capacity 0 never keeps anything.
    pub(crate) fn set_capacity(&self, bytes: u64) -> bool {
        let Some(cache) = &self.cache else { return bytes == 0 };
        self.weight_max.store(bytes / ENTRY_SHARE, Relaxed);
        cache.set_capacity(bytes);
        true
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<HotItem> {
        self.cache.as_ref()?.get(key)
    }

    /// Returns whether an item of `len` bytes can be kept at all.
    pub(crate) fn admits(&self, len: usize) -> bool {
        self.cache.is_some() && len as u64 <= self.weight_max.load(Relaxed)
    }

    /// Keeps an item that was read from the store since `moment`, if it is not too large and its key has not changed
    /// since.
    pub(crate) fn insert(&self, key: &[u8], hot: HotItem, moment: EpochMoment) {
        let Some(cache) = &self.cache else { return };
        if weight(key, &hot) > self.weight_max.load(Relaxed) || !self.changes.is_unchanged(key, moment) {
            return;
        }
        cache.insert(key.into(), hot);
        if !self.changes.is_unchanged(key, moment) {
            cache.remove(key);
        }
    }

    /// Returns the current moment, for a later insert or offer.
    ///
    /// Take it before reading the store for an insert, and before determining which of the entries read are current for
    /// an offer.
    pub(crate) fn moment(&self) -> EpochMoment {
        self.changes.now()
    }

    /// Returns whether a body of `len` bytes could be kept.
    pub(crate) fn can_keep(&self, len: u64) -> bool {
        self.cache.is_some() && len <= self.weight_max.load(Relaxed)
    }

    /// Returns whether an entry of `len` bytes would be new here and could be kept.
    pub(crate) fn wants(&self, key: &[u8], len: u64) -> bool {
        len <= self.weight_max.load(Relaxed) && self.cache.as_ref().is_some_and(|cache| !cache.contains_key(key))
    }

    /// Keeps an item that was read since `moment` but not requested.
    ///
    /// It is inserted at the cold end, so in a full cache it displaces the oldest item without a second request. Items
    /// requested more than once are in the library's hot ring and stay. The new item enters that ring with its second
    /// hit, like any other.
    pub(crate) fn offer(&self, key: &[u8], hot: HotItem, moment: EpochMoment) {
        if !self.changes.is_unchanged(key, moment) {
            return;
        }
        if let Some(cache) = self.cache.as_ref().filter(|cache| !cache.contains_key(key)) {
            // A ghost from an earlier stay would make the item hot at once, although it was not requested.
            cache.remove(key);
            self.insert(key, hot, moment);
        }
    }

    /// Replaces the present item with `hot`.
    pub(crate) fn replace(&self, key: &[u8], hot: HotItem) {
        self.remove(key);
        self.insert(key, hot, self.moment());
    }

    /// Removes `key`, because the store's entry was replaced or removed.
    pub(crate) fn remove(&self, key: &[u8]) {
        self.changes.advance(key);
        if let Some(cache) = &self.cache {
            cache.remove(key);
        }
    }

    /// Removes everything.
    pub(crate) fn clear(&self) {
        self.changes.advance_all();
        if let Some(cache) = &self.cache {
            cache.clear();
        }
    }

    /// Returns the capacity in bytes.
    pub(crate) fn capacity(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::capacity)
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> u64 {
        self.cache.as_ref().map_or(0, |cache| cache.len() as u64)
    }

    /// Returns the weight of all entries in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::weight)
    }
}

/// Weighs entries by their memory in bytes.
#[derive(Clone)]
struct ByteWeights;

impl Weighter<Box<[u8]>, HotItem> for ByteWeights {
    fn weight(&self, key: &Box<[u8]>, hot: &HotItem) -> u64 {
        weight(key, hot)
    }
}

fn weight(key: &[u8], hot: &HotItem) -> u64 {
    let content = match hot {
        HotItem::Response(entry) => entry.weight(),
        HotItem::Marker(_) => MARKER_BYTES,
        HotItem::Chunk(bytes) => bytes.len() as u64,
    };
    content + key.len() as u64 + SLOT_BYTES
}

/// The largest entry is the capacity divided by this.
const ENTRY_SHARE: u64 = 32;
/// Assumed entry size, from which the initial table size is computed. The table grows as needed.
const USUAL_ENTRY_BYTES: u64 = 16 << 10;
const ENTRY_COUNT_MIN: usize = 64;
/// Memory per entry in the library's tables.
const SLOT_BYTES: u64 = 96;
const MARKER_BYTES: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tier_stays_within_its_bytes() {
        let tier = HotTier::new(1 << 20, AdmissionRule::AskedFor);
        for number in 0..10_000_u32 {
            tier.replace(&number.to_le_bytes(), HotItem::Chunk(Bytes::from(vec![0; 1000])));
        }
        assert!(tier.bytes() <= 1 << 20, "{}", tier.bytes());
        assert!(tier.len() > 500, "{}", tier.len());
    }

    #[test]
    fn entry_larger_than_its_share_replaces_nothing_but_its_older_self() {
        let tier = HotTier::new(1 << 20, AdmissionRule::AskedFor);
        tier.replace(b"a", HotItem::Chunk(Bytes::from(vec![0; 1000])));
        tier.replace(b"a", HotItem::Chunk(Bytes::from(vec![0; 1 << 19])));
        assert!(tier.find(b"a").is_none());
    }

    #[test]
    fn what_was_read_before_a_removal_is_not_kept_after_it() {
        let tier = HotTier::new(1 << 20, AdmissionRule::AskedFor);
        let moment = tier.moment();
        tier.remove(b"a");
        tier.insert(b"a", HotItem::Chunk(Bytes::from_static(b"old")), moment);
        assert!(tier.find(b"a").is_none());
    }

    #[test]
    fn tier_of_no_bytes_keeps_nothing() {
        let tier = HotTier::new(0, AdmissionRule::AskedFor);
        tier.replace(b"a", HotItem::Chunk(Bytes::from_static(b"x")));
        assert!(tier.find(b"a").is_none());
        assert_eq!((tier.len(), tier.bytes()), (0, 0));
    }

    #[test]
    fn neighbours_push_out_nothing_that_was_asked_for_twice() {
        let tier = HotTier::new(1 << 20, AdmissionRule::ManyUnasked);
        let chunk = || HotItem::Chunk(Bytes::from(vec![0; 1000]));
        for _ in 0..3 {
            for number in 0..500_u32 {
                if tier.find(&number.to_le_bytes()).is_none() {
                    tier.insert(&number.to_le_bytes(), chunk(), tier.moment());
                }
            }
        }
        for number in 10_000..20_000_u32 {
            tier.offer(&number.to_le_bytes(), chunk(), tier.moment());
        }
        assert!(tier.find(&19_999_u32.to_le_bytes()).is_some(), "the newest neighbour is there");
        // The batches are small enough that evicted items still have ghosts when they are requested again.
        for first in (20_000..70_000_u32).step_by(16) {
            for number in (first..first + 16).cycle().take(48) {
                tier.offer(&number.to_le_bytes(), chunk(), tier.moment());
            }
        }
        let kept = (0..500_u32).filter(|number| tier.find(&number.to_le_bytes()).is_some()).count();
        assert_eq!(kept, 500);
    }

    #[test]
    fn what_is_in_memory_is_not_replaced_by_an_offer() {
        let tier = HotTier::new(1 << 20, AdmissionRule::AskedFor);
        let moment = tier.moment();
        tier.replace(b"a", HotItem::Chunk(Bytes::from_static(b"new")));
        tier.offer(b"a", HotItem::Chunk(Bytes::from_static(b"old")), moment);
        tier.offer(b"a", HotItem::Chunk(Bytes::from_static(b"old")), tier.moment());
        assert!(matches!(tier.find(b"a"), Some(HotItem::Chunk(bytes)) if bytes == "new"[..]));
    }
}
