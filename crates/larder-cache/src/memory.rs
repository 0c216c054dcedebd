//! Values in memory, in front of the store.
//!
//! Invariants: the values stay within the capacity, and one value takes at most a small share of it. A value read from
//! the store before its key changed is not kept after the change.
//!
//! Cost: a lookup is one hash and one short shared lock. The replacement policy (Clock-PRO with ghosts, from the
//! library) resists scans.

use crate::head::ValueHead;
use bytes::Bytes;
use quick_cache::{OptionsBuilder, Weighter, sync::Cache};
use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The values in memory.
pub(crate) struct MemoryCache {
    cache: Option<Cache<Box<[u8]>, Arc<MemoryValue>, ByteWeights>>,
    len_max: usize,
    hasher: RandomState,
    /// The number of changes, by group of keys.
    versions: Box<[Mutex<u32>]>,
}

/// A value in memory.
pub(crate) struct MemoryValue {
    pub(crate) head: ValueHead,
    pub(crate) bytes: Bytes,
}

/// The number of changes of a key's group at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyVersion(u32);

/// Divisor of the capacity that limits one value.
const VALUE_SHARE: u64 = 32;
/// Typical size of a value, which determines the initial size of the tables.
const USUAL_VALUE_BYTES: u64 = 16 << 10;
const VALUE_COUNT_MIN: usize = 64;
/// Memory for each value in the library's tables, and for its head.
const SLOT_BYTES: u64 = 200;
/// Share of the capacity for values that were requested more than once.
const HOT_SHARE: f64 = 0.97;
/// Number of groups of keys. A change of one key counts as a change of all keys in its group, 1 in 16,384: a value of
/// one of them that is being read is then not kept in memory.
const GROUP_COUNT: usize = 1 << 14;

impl MemoryCache {
    /// Creates a cache of `capacity_bytes`; with 0, it stores nothing.
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        let count = usize::try_from(capacity_bytes / USUAL_VALUE_BYTES).unwrap_or(usize::MAX).max(VALUE_COUNT_MIN);
        let mut options = OptionsBuilder::new();
        options.weight_capacity(capacity_bytes).estimated_items_capacity(count).hot_allocation(HOT_SHARE);
        let options = options.build().ok().filter(|_| capacity_bytes > 0);
        Self {
            cache: options
                .map(|options| Cache::with_options(options, ByteWeights, Default::default(), Default::default())),
            len_max: usize::try_from(capacity_bytes / VALUE_SHARE).unwrap_or(usize::MAX),
            hasher: RandomState::new(),
            versions: (0..GROUP_COUNT).map(|_| Mutex::new(0)).collect(),
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Arc<MemoryValue>> {
        self.cache.as_ref()?.get(key)
    }

    /// Returns whether a value of `len_bytes` is small enough to be kept.
    pub(crate) fn can_keep(&self, len_bytes: u64) -> bool {
        self.cache.is_some() && len_bytes <= self.len_max as u64
    }

    /// Returns the version of a key. Call this before reading or fetching its value.
    pub(crate) fn version(&self, key: &[u8]) -> KeyVersion {
        KeyVersion(*self.group(key))
    }

    /// Keeps a value of the store, unless its key has changed since `version`.
    pub(crate) fn keep(&self, key: &[u8], value: MemoryValue, version: KeyVersion) {
        let group = self.group(key);
        if *group == version.0 {
            self.insert(key, value);
        }
    }

    /// Drops a key whose value in the store is about to change, or has changed.
    pub(crate) fn forget(&self, key: &[u8]) {
        let mut group = self.group(key);
        *group = group.wrapping_add(1);
        if let Some(cache) = &self.cache {
            cache.remove(key);
        }
    }

    /// Keeps the value that has just replaced an older one in the store. Only one write to a key runs at a time, so it
    /// is the latest.
    pub(crate) fn replace(&self, key: &[u8], value: MemoryValue) {
        let mut group = self.group(key);
        *group = group.wrapping_add(1);
        if let Some(cache) = &self.cache {
            cache.remove(key);
        }
        self.insert(key, value);
    }

    pub(crate) fn clear(&self) {
        for group in &self.versions {
            let mut group = group.lock().unwrap_or_else(PoisonError::into_inner);
            *group = group.wrapping_add(1);
        }
        if let Some(cache) = &self.cache {
            cache.clear();
        }
    }

    /// Returns the bytes that the values take, as weighed.
    pub(crate) fn bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::weight)
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> u64 {
        self.cache.as_ref().map_or(0, |cache| cache.len() as u64)
    }

    fn insert(&self, key: &[u8], value: MemoryValue) {
        if let Some(cache) = self.cache.as_ref().filter(|_| self.can_keep(weight(key, &value))) {
            cache.insert(key.into(), Arc::new(value));
        }
    }

    fn group(&self, key: &[u8]) -> MutexGuard<'_, u32> {
        let group = self.hasher.hash_one(key) as usize % GROUP_COUNT;
        self.versions[group].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone)]
struct ByteWeights;

impl Weighter<Box<[u8]>, Arc<MemoryValue>> for ByteWeights {
    fn weight(&self, key: &Box<[u8]>, value: &Arc<MemoryValue>) -> u64 {
        weight(key, value)
    }
}

fn weight(key: &[u8], value: &MemoryValue) -> u64 {
    (key.len() + value.bytes.len() + size_of_val(value.head.tags.as_slice())) as u64 + SLOT_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{head::Lifetime, tags::Generation};
    use std::time::Duration;

    fn value(len: usize) -> MemoryValue {
        MemoryValue {
            head: ValueHead {
                len_bytes: len as u64,
                chunks: None,
                generation: Generation(0),
                lifetime: Lifetime::new(0, None, Duration::ZERO),
                tags: Vec::new(),
            },
            bytes: vec![0; len].into(),
        }
    }

    #[test]
    fn values_stay_within_the_capacity() {
        let memory = MemoryCache::new(1 << 20);
        for number in 0..10_000_u32 {
            memory.replace(&number.to_le_bytes(), value(1000));
        }
        assert!(memory.bytes() <= 1 << 20, "{}", memory.bytes());
        assert!(memory.len() > 500, "{}", memory.len());
    }

    #[test]
    fn value_that_is_too_large_removes_the_older_one() {
        let memory = MemoryCache::new(1 << 20);
        memory.replace(b"a", value(1000));
        memory.replace(b"a", value(1 << 19));
        assert!(memory.get(b"a").is_none());
    }

    #[test]
    fn value_that_was_read_before_a_change_is_not_kept_after_it() {
        let memory = MemoryCache::new(1 << 20);
        let version = memory.version(b"a");
        memory.forget(b"a");
        memory.keep(b"a", value(10), version);
        assert!(memory.get(b"a").is_none());
        memory.keep(b"a", value(10), memory.version(b"a"));
        assert!(memory.get(b"a").is_some());
    }
}
