//! Evictions that Larder's policies are compared with: they decide which objects a cache of limited bytes keeps.
//!
//! Owns: [`Eviction`], and the list of them. One more is a file and a line here (docs/how-to/own-eviction.md). Nothing
//! is placed on a disk. LRU, FIFO, SIEVE and S3-FIFO agree exactly with libCacheSim 0.3.5, with its constants; its GDSF
//! breaks ties differently, and misses 0.6% less of web objects. Cost: one hash table lookup and a few links per request,
//! about 50 bytes of memory per object and list.

mod arc;
mod belady;
mod gdsf;
mod lhd;
mod queues;
mod s3_fifo;
mod tiny_lfu;
mod two_q;

use crate::lists::APPROACHED_MAX;
use belady::Belady;
pub use belady::NextUses;

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

/// Creates a cache of so many bytes.
type MakeEviction = fn(u64) -> Box<dyn Eviction>;

/// All evictions, each with its name. Belady's is not among them, because it needs to know the future.
const EVICTIONS: [(&str, MakeEviction); 9] = [
    ("lru", |bytes| Box::new(queues::Lru::new(bytes))),
    ("fifo", |bytes| Box::new(queues::Fifo::new(bytes))),
    ("sieve", |bytes| Box::new(queues::Sieve::new(bytes))),
    ("s3-fifo", |bytes| Box::new(s3_fifo::S3Fifo::new(bytes))),
    ("arc", |bytes| Box::new(arc::Arc::new(bytes))),
    ("2q", |bytes| Box::new(two_q::TwoQ::new(bytes))),
    ("w-tinylfu", |bytes| Box::new(tiny_lfu::TinyLfu::new(bytes))),
    ("gdsf", |bytes| Box::new(gdsf::Gdsf::new(bytes))),
    ("lhd", |bytes| Box::new(lhd::Lhd::new(bytes))),
];

/// Returns the names of all evictions, except Belady's.
pub fn eviction_names() -> impl Iterator<Item = &'static str> + Clone {
    EVICTIONS.iter().map(|(name, _)| *name)
}

/// Returns the eviction with this name and `size_bytes` of cache.
pub fn eviction(name: &str, size_bytes: u64) -> Option<Box<dyn Eviction>> {
    EVICTIONS.iter().find(|(known, _)| *known == name).map(|(_, make)| make(size_bytes))
}

/// Returns Belady's eviction, the offline optimum for objects of one size, from the next use of each request's object.
pub fn belady(size_bytes: u64, next_uses: NextUses) -> Box<dyn Eviction> {
    Box::new(Belady::new(size_bytes, next_uses))
}

#[cfg(test)]
mod tests;
