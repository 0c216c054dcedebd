//! Values in memory, in front of a store.
//!
//! Invariants: the values stay within the capacity, and one value takes at most a small share of it. Once a key was
//! removed, no lookup returns a value that was read from the store before the removal.
//!
//! Cost: a lookup is one hash and one short shared lock of one shard. An insert and a removal take one more lock, of a
//! group of keys. A change of one key keeps values of its group that are being read from entering memory, which costs
//! no more than a copy. The replacement policy (Clock-PRO with ghosts, from the library) resists scans.

mod admission;

use admission::{MemoryAdmission, MemoryUse};
use larder_device::IgnorePoison;
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter, sync::Cache};
use std::{
    fmt,
    hash::BuildHasher,
    marker::PhantomData,
    sync::{
        Mutex, MutexGuard,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
};

/// A value that knows how much memory it takes. [`MemoryCache`] has an example.
pub trait Weigh {
    /// Returns the memory of the value in bytes, without that of its key and of the cache's tables.
    fn weight_bytes(&self) -> u64;
}

/// A cache in memory, limited in bytes, in front of a slower store.
///
/// The store's readers and writers keep it true: a reader takes [`moment`](Self::moment), reads the store, and calls
/// [`insert`](Self::insert) with both. A writer calls [`remove`](Self::remove) before and after it changes the store,
/// or [`replace`](Self::replace) after it.
///
/// ```
/// use larder_cache::{MemoryCache, Weigh};
///
/// #[derive(Clone)]
/// struct Page(std::sync::Arc<str>);
///
/// impl Weigh for Page {
///     fn weight_bytes(&self) -> u64 {
///         self.0.len() as u64
///     }
/// }
///
/// let pages = MemoryCache::new(1 << 20);
/// let moment = pages.moment();
/// pages.insert(b"/", Page("welcome".into()), moment);
/// assert!(pages.get(b"/").is_some());
///
/// pages.remove(b"/");
/// pages.insert(b"/", Page("welcome".into()), moment);
/// assert!(pages.get(b"/").is_none(), "it was read before the removal");
/// ```
pub struct MemoryCache<V> {
    cache: Option<Cache<Box<[u8]>, V, ByteWeights<V>>>,
    weight_bytes_max: AtomicU64,
    admission: MemoryAdmission,
    /// Number of removals and replacements so far.
    change_count: AtomicU64,
    hasher: DefaultHashBuilder,
    /// The number of the last change in each group of keys. Locked while a value is inserted or removed, so that no
    /// value is inserted between the change of its key and the removal.
    groups: Box<[Mutex<LastChange>]>,
}

/// The number of the last change of a group of keys.
type LastChange = u64;

/// The number of changes in a cache when a read of the store began, see [`MemoryCache::moment`]. [`MemoryCache`] has an
/// example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeMoment(u64);

impl<V: Weigh + Clone> MemoryCache<V> {
    /// Creates a cache of `capacity_bytes`. With 0, it never keeps anything.
    pub fn new(capacity_bytes: u64) -> Self {
        Self::with_hot_share(capacity_bytes, HOT_SHARE)
    }

    /// Creates a cache with more room for values that nobody has requested, which
    /// [`insert_unrequested`](Self::insert_unrequested) keeps.
    pub fn with_room_for_unrequested(capacity_bytes: u64) -> Self {
        Self::with_hot_share(capacity_bytes, HOT_SHARE_BESIDE_UNREQUESTED)
    }

    fn with_hot_share(capacity_bytes: u64, hot_share: f64) -> Self {
        let count = usize::try_from(capacity_bytes / USUAL_VALUE_BYTES).unwrap_or(usize::MAX).max(VALUE_COUNT_MIN);
        let mut options = OptionsBuilder::new();
        options.weight_capacity(capacity_bytes).estimated_items_capacity(count).hot_allocation(hot_share);
        let options = options.build().ok().filter(|_| capacity_bytes > 0);
        let weights = ByteWeights(PhantomData);
        Self {
            cache: options.map(|options| Cache::with_options(options, weights, Default::default(), Default::default())),
            weight_bytes_max: AtomicU64::new(capacity_bytes / VALUE_SHARE),
            admission: MemoryAdmission::new(capacity_bytes),
            change_count: AtomicU64::new(0),
            hasher: DefaultHashBuilder::default(),
            groups: (0..GROUP_COUNT).map(|_| Mutex::new(0)).collect(),
        }
    }

    /// Changes the capacity and evicts values above it. Returns `false` if that is impossible: a cache created with
    /// capacity 0 never keeps anything.
    pub fn set_capacity_bytes(&self, capacity_bytes: u64) -> bool {
        let Some(cache) = &self.cache else { return capacity_bytes == 0 };
        self.weight_bytes_max.store(capacity_bytes / VALUE_SHARE, Relaxed);
        cache.set_capacity(capacity_bytes);
        true
    }

    /// Returns the value of `key`.
    pub fn get(&self, key: &[u8]) -> Option<V> {
        self.cache.as_ref()?.get(key)
    }

    /// Returns whether `key` has a value. Unlike [`MemoryCache::get`], this does not count as a request for it.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.contains_key(key))
    }

    /// Returns whether a value of `len_bytes` is small enough to be kept.
    pub fn can_keep(&self, len_bytes: u64) -> bool {
        self.cache.is_some() && len_bytes <= self.weight_bytes_max.load(Relaxed)
    }

    /// Returns whether a requested value of `len_bytes` that the store has should be kept: it is small enough, and
    /// there is room, or more requests are likely. Ask once for each request, before the value is copied for memory.
    pub fn admits(&self, key: &[u8], len_bytes: u64) -> bool {
        let Some(cache) = self.cache.as_ref().filter(|_| self.can_keep(len_bytes)) else { return false };
        let memory = || MemoryUse {
            value_count: cache.len() as u64,
            has_room: cache.weight() < cache.capacity() / FULL_SHARE * (FULL_SHARE - 1),
        };
        self.admission.admits(self.hasher.hash_one(key), memory)
    }

    /// Returns the current moment.
    ///
    /// Take it before you read the store, or before you determine which of the values read are current.
    pub fn moment(&self) -> ChangeMoment {
        ChangeMoment(self.change_count.load(Acquire))
    }

    /// Returns whether `key` has not changed since `since`.
    ///
    /// Rarely returns false although the key has not changed, because another key with the same hash has.
    pub fn is_unchanged(&self, key: &[u8], since: ChangeMoment) -> bool {
        *self.lock(key) <= since.0
    }

    /// Keeps a value that was read from the store since `since`, if it is small enough and its key has not changed.
    ///
    /// Rarely drops a value although its key has not changed, because another key with the same hash has.
    pub fn insert(&self, key: &[u8], value: V, since: ChangeMoment) {
        let last_change = self.lock(key);
        if *last_change <= since.0 {
            self.keep(key, value);
        }
    }

    /// Keeps a value that was read from the store since `since` although nobody has requested it.
    ///
    /// In a full cache, it displaces the oldest value without a second request. Values that were requested more than
    /// once stay. The new value joins them with its second request, like any other.
    pub fn insert_unrequested(&self, key: &[u8], value: V, since: ChangeMoment) {
        let last_change = self.lock(key);
        if let Some(cache) = self.cache.as_ref().filter(|cache| !cache.contains_key(key))
            && *last_change <= since.0
        {
            // A ghost from an earlier stay would make the value hot at once, although it was not requested.
            cache.remove(key);
            self.keep(key, value);
        }
    }

    /// Keeps the value that has just replaced an older one in the store. Only one write to a key may run at a time.
    pub fn replace(&self, key: &[u8], value: V) {
        let mut last_change = self.lock(key);
        self.change(key, &mut last_change);
        self.keep(key, value);
    }

    /// Removes a key whose value in the store is about to change, or has changed.
    pub fn remove(&self, key: &[u8]) {
        let mut last_change = self.lock(key);
        self.change(key, &mut last_change);
    }

    /// Removes everything.
    pub fn clear(&self) {
        let _alone = self.change_all();
        if let Some(cache) = &self.cache {
            cache.clear();
        }
    }

    /// Removes the values that are not wanted. A value that was read from the store before this call is not inserted
    /// after it.
    pub(crate) fn retain(&self, is_wanted: impl Fn(&V) -> bool) {
        let _alone = self.change_all();
        if let Some(cache) = &self.cache {
            cache.retain(|_, value| is_wanted(value));
        }
    }

    /// Returns the capacity in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::capacity)
    }

    /// Returns the bytes that the values take, as weighed.
    pub fn bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::weight)
    }

    /// Returns the number of values.
    pub fn len(&self) -> u64 {
        self.cache.as_ref().map_or(0, |cache| cache.len() as u64)
    }

    /// Returns whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn keep(&self, key: &[u8], value: V) {
        if let Some(cache) = self.cache.as_ref().filter(|_| self.can_keep(weight_bytes(key, &value))) {
            cache.insert(key.into(), value);
        }
    }

    fn change(&self, key: &[u8], last_change: &mut LastChange) {
        *last_change = self.next_change();
        if let Some(cache) = &self.cache {
            cache.remove(key);
        }
    }

    /// Marks all keys as changed. Nothing is inserted or removed until the result is dropped.
    fn change_all(&self) -> Vec<MutexGuard<'_, LastChange>> {
        let mut groups: Vec<_> = self.groups.iter().map(|group| group.lock().ignore_poison()).collect();
        let number = self.next_change();
        groups.iter_mut().for_each(|last_change| **last_change = number);
        groups
    }

    /// Returns the number of a new change. A group's numbers only grow, because it is locked.
    fn next_change(&self) -> u64 {
        self.change_count.fetch_add(1, AcqRel) + 1
    }

    fn lock(&self, key: &[u8]) -> MutexGuard<'_, LastChange> {
        self.groups[self.hasher.hash_one(key) as usize % GROUP_COUNT].lock().ignore_poison()
    }
}

impl<V: Weigh + Clone> fmt::Debug for MemoryCache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryCache")
            .field("capacity_bytes", &self.capacity_bytes())
            .field("bytes", &self.bytes())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// Weighs values by their memory in bytes.
struct ByteWeights<V>(PhantomData<fn(V)>);

impl<V> Clone for ByteWeights<V> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

impl<V: Weigh> Weighter<Box<[u8]>, V> for ByteWeights<V> {
    fn weight(&self, key: &Box<[u8]>, value: &V) -> u64 {
        weight_bytes(key, value)
    }
}

fn weight_bytes(key: &[u8], value: &impl Weigh) -> u64 {
    value.weight_bytes() + key.len() as u64 + SLOT_BYTES
}

/// Share of the capacity for values requested more than once. Room for new values costs hits (Zipf 0.9, a memory cache
/// of a twentieth of the objects: 62.4% with 3% of room, 61.7% with 10%, 60.7% with 20%).
const HOT_SHARE: f64 = 0.97;
/// Share of the capacity for values requested more than once, in a cache that keeps many values before anybody requests
/// them. Those need room until their first request, which comes one page view later.
const HOT_SHARE_BESIDE_UNREQUESTED: f64 = 0.8;
/// The largest value is the capacity divided by this.
const VALUE_SHARE: u64 = 32;
/// A cache with less than this share (1/n) of its capacity free counts as full.
const FULL_SHARE: u64 = 8;
/// Assumed size of a value, from which the initial size of the tables is computed. They grow as needed.
const USUAL_VALUE_BYTES: u64 = 16 << 10;
const VALUE_COUNT_MIN: usize = 64;
/// Memory for each value in the library's tables.
const SLOT_BYTES: u64 = 96;
/// Number of groups of keys: larger than the number of changes during a usual read, so that few of them concern the
/// group of the key that is read. Takes 64 KiB of memory.
const GROUP_COUNT: usize = 4096;

#[cfg(test)]
mod tests;
