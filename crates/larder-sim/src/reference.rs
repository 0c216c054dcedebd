//! Published eviction algorithms to compare Larder's policies with: they decide which objects a cache of limited bytes
//! keeps.
//!
//! Owns: [`Reference`], one enum over all of them. Nothing is placed on a disk. LRU, FIFO, SIEVE and S3-FIFO agree
//! exactly with libCacheSim 0.3.5, with its constants; its GDSF breaks ties differently, and misses 0.6% less of web
//! objects. Cost: one hash table lookup and a few links per request, about 50 bytes of memory per object and list.

mod arc;
mod belady;
mod gdsf;
mod lhd;
mod queues;
mod s3_fifo;
mod tiny_lfu;

use crate::lists::APPROACHED_MAX;
use arc::Arc;
use belady::Belady;
pub use belady::NextUses;
use gdsf::Gdsf;
use lhd::Lhd;
use queues::{Fifo, Lru, Sieve};
use s3_fifo::S3Fifo;
use tiny_lfu::TinyLfu;

/// A cache of limited bytes with one of the published evictions.
pub enum Reference {
    /// Least recently used.
    Lru(Lru),
    /// First in, first out.
    Fifo(Fifo),
    /// SIEVE (NSDI 2024).
    Sieve(Sieve),
    /// S3-FIFO (SOSP 2023).
    S3Fifo(S3Fifo),
    /// ARC (FAST 2003).
    Arc(Arc),
    /// W-TinyLFU (ACM TOS 2017).
    TinyLfu(TinyLfu),
    /// Greedy dual size with frequency.
    Gdsf(Gdsf),
    /// LHD (NSDI 2018).
    Lhd(Lhd),
    /// The offline optimum for objects of one size, Belady's MIN.
    Belady(Belady),
}

impl Reference {
    /// The names that [`Self::named`] accepts. Belady's is not among them, because it needs to know the future.
    pub const NAMES: [&'static str; 8] = ["lru", "fifo", "sieve", "s3-fifo", "arc", "w-tinylfu", "gdsf", "lhd"];

    /// Returns the eviction with this name and `size_bytes` of cache.
    pub fn named(name: &str, size_bytes: u64) -> Option<Self> {
        Some(match name {
            "lru" => Self::Lru(Lru::new(size_bytes)),
            "fifo" => Self::Fifo(Fifo::new(size_bytes)),
            "sieve" => Self::Sieve(Sieve::new(size_bytes)),
            "s3-fifo" => Self::S3Fifo(S3Fifo::new(size_bytes)),
            "arc" => Self::Arc(Arc::new(size_bytes)),
            "w-tinylfu" => Self::TinyLfu(TinyLfu::new(size_bytes)),
            "gdsf" => Self::Gdsf(Gdsf::new(size_bytes)),
            "lhd" => Self::Lhd(Lhd::new(size_bytes)),
            _ => return None,
        })
    }

    /// Creates Belady's eviction from the next use of each request's object.
    pub fn belady(size_bytes: u64, next_uses: NextUses) -> Self {
        Self::Belady(Belady::new(size_bytes, next_uses))
    }

    /// Requests several objects in sequence, and returns the number of hits. Twice as fast as single requests if the
    /// cache exceeds the processor's caches.
    pub fn request_all(&mut self, requests: &[(u64, u64)]) -> u64 {
        let mut hits = 0;
        for batch in requests.chunks(APPROACHED_MAX) {
            self.approach(batch.iter().map(|&(key, _)| key));
            hits += batch.iter().filter(|&&(key, size_bytes)| self.request(key, size_bytes)).count() as u64;
        }
        hits
    }

    /// Requests an object, which is stored after a miss. Returns whether it was a hit.
    pub fn request(&mut self, key: u64, size_bytes: u64) -> bool {
        match self {
            Self::Lru(cache) => cache.request(key, size_bytes),
            Self::Fifo(cache) => cache.request(key, size_bytes),
            Self::Sieve(cache) => cache.request(key, size_bytes),
            Self::S3Fifo(cache) => cache.request(key, size_bytes),
            Self::Arc(cache) => cache.request(key, size_bytes),
            Self::TinyLfu(cache) => cache.request(key, size_bytes),
            Self::Gdsf(cache) => cache.request(key, size_bytes),
            Self::Lhd(cache) => cache.request(key, size_bytes),
            Self::Belady(cache) => cache.request(key, size_bytes),
        }
    }

    fn approach(&self, keys: impl Iterator<Item = u64>) {
        match self {
            Self::Lru(cache) => cache.queue.approach(keys),
            Self::Fifo(cache) => cache.queue.approach(keys),
            Self::Sieve(cache) => cache.queue.approach(keys),
            Self::S3Fifo(cache) => cache.queues.approach(keys),
            Self::Arc(cache) => cache.lists.approach(keys),
            Self::TinyLfu(cache) => cache.lists.approach(keys),
            Self::Gdsf(cache) => cache.objects.approach(keys),
            Self::Lhd(cache) => cache.objects.approach(keys),
            Self::Belady(cache) => cache.objects.approach(keys),
        }
    }
}

#[cfg(test)]
mod tests;
