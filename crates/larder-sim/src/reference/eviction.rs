//! The interface of an eviction: objects are requested by key and size.

use crate::lists::APPROACHED_MAX;

/// A cache of limited bytes.
pub trait Eviction {
    /// Requests an object, which is stored after a miss. Returns whether it was a hit.
    fn request(&mut self, key: u64, size_bytes: u64) -> bool;

    /// Prefetches the memory that requests for these keys will touch. It only saves time.
    fn approach(&self, _keys: &[u64]) {}

    /// Requests several objects in sequence, and returns the number of hits. Twice as fast as single requests if the
    /// cache exceeds the processor's caches.
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
