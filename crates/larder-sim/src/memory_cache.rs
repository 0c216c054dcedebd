//! The memory cache of the proxy and of `larder-cache`, to compare its evictions with the published ones.
//!
//! Owns: nothing of its own; it is the shipping cache with values that only have a length. Their weights include the
//! cache's own tables, which the published evictions do not count.

use larder_cache::{MemoryCache, Weigh};

/// The shipping memory cache, for requests of a simulation.
pub(crate) struct MemoryCacheSimulation {
    cache: MemoryCache<ValueOfLength>,
}

/// A value without its bytes.
#[derive(Clone, Copy, Debug)]
struct ValueOfLength(u64);

impl Weigh for ValueOfLength {
    fn weight_bytes(&self) -> u64 {
        self.0
    }
}

impl MemoryCacheSimulation {
    /// Creates a cache of `size_bytes`.
    pub(crate) fn new(size_bytes: u64) -> Self {
        Self { cache: MemoryCache::new(size_bytes) }
    }

    /// Requests an object, which is kept after a miss if the cache admits it. Returns whether it was a hit.
    pub(crate) fn request(&self, key: u64, size_bytes: u64) -> bool {
        let key = key.to_le_bytes();
        let is_hit = self.cache.get(&key).is_some();
        if !is_hit && self.cache.admits(&key, size_bytes) {
            self.cache.insert(&key, ValueOfLength(size_bytes), self.cache.moment());
        }
        is_hit
    }
}
