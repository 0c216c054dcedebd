//! Values in memory, in front of a store.
//!
//! Invariants: the values stay within the capacity, and one value takes at most a small share of it. Once a key was
//! removed, no lookup returns a value that was read from the store before the removal.
//!
//! Cost: a lookup is one hash and one short shared lock of one shard. An insert and a removal take one more lock, of a
//! group of keys. A change of one key keeps values of its group that are being read from entering memory, which costs
//! no more than a copy. Each value costs a [`Slot`], [`TABLES_BYTES`] and its key. [`shard`] chooses the value that
//! leaves by its [`worth`]. Shards are alike, so a full memory takes from each in turn.

mod admission;
mod ghosts;
mod index;
mod shard;
mod worth;

use admission::MemoryAdmission;
use foldhash::fast::RandomState;
use larder_device::IgnorePoison;
use shard::{Eviction, HashedKey, Shard, Slot};
use std::{
    fmt,
    hash::BuildHasher,
    sync::{
        Mutex, MutexGuard, RwLock,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
    thread,
};

/// A value that can tell how much memory it takes.
///
/// ```
/// use larder_cache::{MemoryCache, Weigh};
///
/// #[derive(Clone)]
/// struct Rows(Vec<u64>);
///
/// impl Weigh for Rows {
///     fn weight_bytes(&self) -> u64 {
///         (self.0.capacity() * size_of::<u64>()) as u64
///     }
/// }
///
/// let cache = MemoryCache::new(1 << 20);
/// cache.insert(b"query", Rows(vec![0; 1000]), cache.moment());
/// assert!(cache.bytes() >= 8000);
/// ```
pub trait Weigh {
    /// Returns the memory that the value takes, in bytes. Its key and the cache's tables are not included.
    fn weight_bytes(&self) -> u64;
}

/// A cache in memory, limited in bytes, in front of a slower store.
///
/// The store's readers and writers keep it consistent with the store: a reader takes [`moment`](Self::moment), reads
/// the store, and calls [`insert`](Self::insert) with both. A writer calls [`remove`](Self::remove) before and after it
/// changes the store, or [`replace`](Self::replace) after it.
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
    /// The shards, each with a lock. Their number is a power of two, or 0 if the cache was created with capacity 0.
    shards: Box<[RwLock<Shard<V>>]>,
    capacity_bytes: AtomicU64,
    bytes: AtomicU64,
    /// Number of calls that made room. It selects the shard from which the next such call evicts first.
    turn: AtomicUsize,
    admission: MemoryAdmission,
    /// Number of changes so far, each a removal or a replacement.
    change_count: AtomicU64,
    hasher: RandomState,
    /// For each group of keys, the number of its last change.
    ///
    /// Each lock is held for a whole insertion or removal, so that no insertion falls between the two steps of a
    /// removal: counting the change, and removing the value.
    groups: Box<[Mutex<LastChange>]>,
}

/// The number of the last change (a removal or a replacement) in a group of keys.
type LastChange = u64;

/// A moment in the life of a cache: the number of changes so far, see [`MemoryCache::moment`]. [`MemoryCache`] has an
/// example.
///
/// ```
/// use larder_cache::{ChangeMoment, MemoryCache};
/// # #[derive(Clone)]
/// # struct Page;
/// # impl larder_cache::Weigh for Page {
/// #     fn weight_bytes(&self) -> u64 { 100 }
/// # }
///
/// let pages = MemoryCache::new(1 << 20);
/// let before: ChangeMoment = pages.moment();
/// // Meanwhile, another task changes the page in the store.
/// pages.remove(b"/");
/// pages.insert(b"/", Page, before);
/// assert!(!pages.contains(b"/"), "it may be the old page");
/// pages.insert(b"/", Page, pages.moment());
/// assert!(pages.contains(b"/"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeMoment(u64);

impl<V: Weigh> MemoryCache<V> {
    /// Creates a cache with a capacity in bytes. With capacity 0, it never keeps anything.
    pub fn new(capacity_bytes: u64) -> Self {
        let hasher = RandomState::default();
        let shard_count = if capacity_bytes == 0 { 0 } else { shard_count(capacity_bytes) };
        Self {
            shards: (0..shard_count).map(|number| RwLock::new(Shard::new(hasher.hash_one(number)))).collect(),
            capacity_bytes: AtomicU64::new(capacity_bytes),
            bytes: AtomicU64::new(0),
            turn: AtomicUsize::new(0),
            admission: MemoryAdmission::default(),
            change_count: AtomicU64::new(0),
            hasher,
            groups: (0..GROUP_COUNT).map(|_| Mutex::new(0)).collect(),
        }
    }

    /// Changes the capacity, and evicts values until the cache is within it. Returns `false`, and does nothing, if the
    /// cache was created with capacity 0 and the new one is not 0.
    pub fn set_capacity_bytes(&self, capacity_bytes: u64) -> bool {
        if self.shards.is_empty() {
            return capacity_bytes == 0;
        }
        let before = self.capacity_bytes.swap(capacity_bytes, Relaxed);
        if capacity_bytes < before {
            self.make_room(0, f32::INFINITY);
            self.shards.iter().for_each(|shard| shard.write().ignore_poison().shrink());
        }
        true
    }

    /// Returns the value of `key`, and counts a request for it. `None` if it is not in memory.
    pub fn get(&self, key: &[u8]) -> Option<V>
    where
        V: Clone,
    {
        self.get_with(key, V::clone)
    }

    /// Returns what `read` takes from the value of `key`, and counts a request for it. `None` if it is not in memory.
    ///
    /// A lock is held while `read` runs.
    pub fn get_with<T>(&self, key: &[u8], read: impl FnOnce(&V) -> T) -> Option<T> {
        let key = self.hashed(key);
        self.shard(key)?.read().ignore_poison().get(key).map(read)
    }

    /// Works like [`MemoryCache::get_with`], but does not count as a request for the value.
    pub fn peek_with<T>(&self, key: &[u8], read: impl FnOnce(&V) -> T) -> Option<T> {
        let key = self.hashed(key);
        self.shard(key)?.read().ignore_poison().peek(key).map(read)
    }

    /// Returns whether `key` has a value. Unlike [`MemoryCache::get`], this does not count as a request for it.
    pub fn contains(&self, key: &[u8]) -> bool {
        let key = self.hashed(key);
        self.shard(key).is_some_and(|shard| shard.read().ignore_poison().contains(key))
    }

    /// Returns whether a value that takes `len_bytes` of memory is small enough to be kept.
    pub fn can_keep(&self, len_bytes: u64) -> bool {
        let len_bytes_max = (self.capacity_bytes() / VALUE_SHARE).min(u64::from(u32::MAX));
        !self.shards.is_empty() && len_bytes <= len_bytes_max
    }

    /// Returns whether a value of `len_bytes` should be kept that was requested and is not in memory, but in the store.
    /// It must be small enough, and there must be room, or further requests must be likely.
    ///
    /// Call this once for each request, before the value is copied to memory.
    pub fn admits(&self, key: &[u8], len_bytes: u64) -> bool {
        let key = self.hashed(key);
        let key_len = key.key.len();
        let is_fitting = self.can_keep(Self::entry_bytes(key_len, len_bytes));
        let Some(shard) = self.shard(key).filter(|_| is_fitting) else { return false };
        // If a gap that is too small for the value counted as room, the value would displace others. The gap would be
        // there again, so all values would be admitted.
        let weight_max = Self::entry_bytes(key_len, len_bytes + len_bytes / ROUNDING_SHARE + ADDED_BYTES_MAX);
        if self.bytes() + weight_max <= self.capacity_bytes() {
            return true;
        }
        let returned_after = shard.write().ignore_poison().note_miss(key);
        self.admission.admits(key.hash, returned_after)
    }

    /// Returns the current moment: how many changes of keys there were.
    ///
    /// Call this before you read the store, or before you determine which of the values read are current.
    pub fn moment(&self) -> ChangeMoment {
        ChangeMoment(self.change_count.load(Acquire))
    }

    /// Returns whether `key` has not been removed or replaced since the moment `since`.
    ///
    /// May return `false` for an unchanged key, because keys share change numbers in groups. That is rare.
    pub fn is_unchanged(&self, key: &[u8], since: ChangeMoment) -> bool {
        *self.lock(self.hashed(key)) <= since.0
    }

    /// Keeps a value that was read from the store after the moment `since`. Drops it if it is too large, or if its key
    /// has changed since then.
    ///
    /// May drop the value of an unchanged key, because keys share change numbers in groups. That is rare.
    pub fn insert(&self, key: &[u8], value: V, since: ChangeMoment) {
        let key = self.hashed(key);
        let last_change = self.lock(key);
        if *last_change <= since.0 {
            self.keep(key, value);
        }
    }

    /// Keeps a value that nobody has requested, and that was read from the store after the moment `since`.
    ///
    /// In a full cache, it displaces values that were requested once, some time ago, but not those that were requested
    /// more often.
    pub fn insert_unrequested(&self, key: &[u8], value: V, since: ChangeMoment) {
        let key = self.hashed(key);
        let last_change = self.lock(key);
        let weight = Self::entry_bytes(key.key.len(), value.weight_bytes());
        let Some(shard) = self.shard(key).filter(|_| self.can_keep(weight) && *last_change <= since.0) else { return };
        let worth = {
            let shard = shard.read().ignore_poison();
            if shard.contains(key) {
                return;
            }
            shard.unrequested_worth(weight as u32)
        };
        if self.make_room(weight, worth) {
            self.bytes.fetch_add(weight, Relaxed);
            shard.write().ignore_poison().insert_unrequested(key, value, weight as u32);
        }
    }

    /// Keeps a value that has just replaced an older one in the store. Writes to the same key must run one after the
    /// other.
    pub fn replace(&self, key: &[u8], value: V) {
        let key = self.hashed(key);
        let mut last_change = self.lock(key);
        *last_change = self.next_change();
        if !self.keep(key, value) {
            self.take(key);
        }
    }

    /// Removes the value of a key. Called before the key's value in the store changes, and again after that.
    pub fn remove(&self, key: &[u8]) {
        let key = self.hashed(key);
        let mut last_change = self.lock(key);
        *last_change = self.next_change();
        self.take(key);
    }

    /// Removes all values.
    pub fn clear(&self) {
        self.retain(|_| false);
    }

    /// Removes the values for which `is_wanted` is false. Values that were read from the store before this call can
    /// then no longer be inserted.
    pub(crate) fn retain(&self, is_wanted: impl Fn(&V) -> bool) {
        let _alone = self.change_all();
        for shard in &self.shards {
            let removed = shard.write().ignore_poison().retain(&is_wanted);
            self.bytes.fetch_sub(removed.iter().map(|slot| u64::from(slot.weight)).sum(), Relaxed);
        }
    }

    /// Returns the capacity in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes.load(Relaxed)
    }

    /// Returns how many bytes of the capacity a value takes that weighs `value_bytes`: these, and the memory for a key
    /// of `key_len` bytes and for the value's share of the cache's tables.
    pub fn entry_bytes(key_len: usize, value_bytes: u64) -> u64 {
        value_bytes + (size_of::<Slot<V>>() + TABLES_BYTES) as u64 + allocated_bytes(key_len)
    }

    /// Returns how many bytes the values take, with their keys and the cache's tables.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Returns the number of values.
    pub fn len(&self) -> u64 {
        self.shards.iter().map(|shard| shard.read().ignore_poison().len() as u64).sum()
    }

    /// Returns whether the cache has no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Inserts or replaces a value. Returns `false`, and does nothing, if it is too large.
    fn keep(&self, key: HashedKey<'_>, value: V) -> bool {
        let weight = Self::entry_bytes(key.key.len(), value.weight_bytes());
        let Some(shard) = self.shard(key).filter(|_| self.can_keep(weight)) else { return false };
        self.make_room(weight, f32::INFINITY);
        self.bytes.fetch_add(weight, Relaxed);
        let before = shard.write().ignore_poison().insert(key, value, weight as u32);
        if let Some((_, weight)) = before {
            self.bytes.fetch_sub(u64::from(weight), Relaxed);
        }
        true
    }

    fn take(&self, key: HashedKey<'_>) {
        let Some(shard) = self.shard(key) else { return };
        let taken = shard.write().ignore_poison().remove(key);
        if let Some(slot) = taken {
            self.bytes.fetch_sub(u64::from(slot.weight), Relaxed);
        }
    }

    /// Evicts values until a new one of this weight has room. Returns `false` if it gives up, because too often all
    /// values that it examined were worth more than `worth_max`.
    fn make_room(&self, weight: u64, worth_max: f32) -> bool {
        let first = self.turn.fetch_add(1, Relaxed);
        let mut empty_count = 0;
        let mut dearer_count = 0;
        for number in first.. {
            // A full round of empty shards in a row: nothing is left to evict.
            if self.bytes() + weight <= self.capacity_bytes() || empty_count == self.shards.len() {
                break;
            }
            let shard = &self.shards[number & (self.shards.len() - 1)];
            match shard.write().ignore_poison().evict(worth_max, |key| self.hasher.hash_one(key)) {
                Eviction::Evicted(slot) => {
                    self.bytes.fetch_sub(u64::from(slot.weight), Relaxed);
                    empty_count = 0;
                }
                Eviction::Dearer if dearer_count == DEARER_COUNT_MAX => return false,
                Eviction::Dearer => dearer_count += 1,
                Eviction::Empty => empty_count += 1,
            }
        }
        true
    }

    /// Marks all keys as changed. While the returned locks are held, nothing is inserted or removed.
    fn change_all(&self) -> Vec<MutexGuard<'_, LastChange>> {
        let mut groups: Vec<_> = self.groups.iter().map(|group| group.lock().ignore_poison()).collect();
        let number = self.next_change();
        groups.iter_mut().for_each(|last_change| **last_change = number);
        groups
    }

    /// Returns the number of a new change. The caller must hold the lock of the key's group, so that the numbers in a
    /// group only grow.
    fn next_change(&self) -> u64 {
        self.change_count.fetch_add(1, AcqRel) + 1
    }

    fn lock(&self, key: HashedKey<'_>) -> MutexGuard<'_, LastChange> {
        self.groups[key.hash as usize % GROUP_COUNT].lock().ignore_poison()
    }

    fn hashed<'a>(&self, key: &'a [u8]) -> HashedKey<'a> {
        HashedKey { key, hash: self.hasher.hash_one(key) }
    }

    fn shard(&self, key: HashedKey<'_>) -> Option<&RwLock<Shard<V>>> {
        self.shards.get((key.hash >> SHARD_SHIFT) as usize & self.shards.len().wrapping_sub(1))
    }
}

impl<V: Weigh> fmt::Debug for MemoryCache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryCache")
            .field("capacity_bytes", &self.capacity_bytes())
            .field("bytes", &self.bytes())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// Returns the number of shards: as many as the processors need to rarely wait for each other, but not more than the
/// capacity allows.
fn shard_count(capacity_bytes: u64) -> usize {
    let wanted = thread::available_parallelism().map_or(1, usize::from) * SHARDS_PER_PROCESSOR;
    let most = usize::try_from(capacity_bytes / SHARD_BYTES_MIN).unwrap_or(usize::MAX);
    wanted.min(most).next_power_of_two().min(SHARD_COUNT_MAX)
}

/// Returns how many bytes the allocator (jemalloc 5.3.1) takes for `len` bytes. Up to 16 KiB, it has four sizes from
/// one power of two to the next. Longer allocations are whole pages.
pub(crate) fn allocated_bytes(len: usize) -> u64 {
    let step = (len.next_power_of_two() / 8).clamp(ALLOCATION_STEP_BYTES, PAGE_BYTES);
    len.next_multiple_of(step) as u64
}

/// Ratio of the capacity to the size of the largest value that is kept.
const VALUE_SHARE: u64 = 32;
/// Of a value whose length callers know, the share (1/n) by which the allocator rounds it up at most.
const ROUNDING_SHARE: u64 = 4;
/// Assumed maximum of the bytes that a value takes in addition, such as a packed head of a response.
const ADDED_BYTES_MAX: u64 = 256;
/// Memory in bytes that the tables take for each value in addition to its slot: 5 to 11 for the index, and 8 to 16 for
/// ghosts (remembered counts of keys).
const TABLES_BYTES: usize = 20;
/// Number of times that all examined values may be worth more than a new value. One time more, and the new value is
/// refused.
const DEARER_COUNT_MAX: usize = 3;
/// Smallest step of the allocator's sizes, in bytes. The largest is a page.
const ALLOCATION_STEP_BYTES: usize = 16;
const PAGE_BYTES: usize = 4096;
/// Number of groups of keys. It is larger than the number of keys that usually change while a value is read, so that
/// the group of the value's key is rarely among theirs. The groups take 64 KiB of memory.
const GROUP_COUNT: usize = 4096;
const SHARDS_PER_PROCESSOR: usize = 4;
/// Minimum size of a shard in bytes. A smaller shard would have too few values to choose from.
const SHARD_BYTES_MIN: u64 = 1 << 20;
const SHARD_COUNT_MAX: usize = 256;
/// Position of the hash bits that choose the shard.
const SHARD_SHIFT: u32 = 56;

#[cfg(test)]
mod tests;
#[cfg(all(test, feature = "http"))]
pub(crate) use tests::jemalloc_bytes;
