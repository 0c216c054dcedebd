//! The interface of an eviction: objects are requested by key and size.

use crate::lists::APPROACHED_MAX;

/// A cache of limited size with an eviction algorithm.
///
/// ```
/// let mut lru = larder_sim::eviction("lru", 1000).unwrap();
/// assert!(!lru.request(1, 600));
/// assert!(lru.request(1, 600));
/// lru.request(2, 600); // evicts object 1
/// assert!(!lru.request(1, 600));
/// ```
pub trait Eviction {
    /// Requests an object, and stores it after a miss. Returns whether it was a hit.
    fn request(&mut self, key: u64, size_bytes: u64) -> bool;

    /// Prefetches the memory that requests for these keys will access. It only saves time.
    fn approach(&self, _keys: &[u64]) {}

    /// Requests several objects, one after the other. Returns the number of hits. If the cache does not fit in the
    /// processor's caches, this is twice as fast as single requests.
    fn request_all(&mut self, requests: &[(u64, u64)]) -> u64 {
        let mut hits = 0;
        let mut keys = [0; APPROACHED_MAX];
        for batch in requests.chunks(APPROACHED_MAX) {
            keys.iter_mut().zip(batch).for_each(|(to, (key, _))| *to = *key);
            self.approach(&keys[..batch.len()]);
            hits += batch.iter().filter(|&&(key, size_bytes)| self.request(key, size_bytes)).count() as u64;
        }
        hits
    }
}
