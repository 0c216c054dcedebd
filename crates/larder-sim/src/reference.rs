//! Evictions that Larder's policies are compared with: they decide which objects a cache of limited bytes keeps.
//!
//! Owns: [`Eviction`], and the list of them. One more is a file and a line here (docs/internals/own-eviction.md).
//! Nothing is placed on a disk. LRU, FIFO, SIEVE and S3-FIFO agree exactly with libCacheSim 0.3.5, with its constants;
//! its GDSF breaks ties differently, and misses 0.6% less of web objects. Cost: one hash table lookup and a few links
//! per request, about 50 bytes of memory per object and list.

mod arc;
mod belady;
mod eviction;
mod gdsf;
mod lhd;
mod queues;
mod s3_fifo;
mod tiny_lfu;
mod two_q;

use belady::Belady;
pub use belady::NextUses;
pub use eviction::Eviction;

/// Function that creates a cache of this number of bytes.
type MakeEviction = fn(u64) -> Box<dyn Eviction>;

/// All algorithms, each with its name. Belady's is not among them, because it needs to know future requests.
const EVICTIONS: [(&str, MakeEviction); 9] = [
    ("lru", |bytes| Box::new(queues::LruOrder::new(bytes))),
    ("fifo", |bytes| Box::new(queues::Fifo::new(bytes))),
    ("sieve", |bytes| Box::new(queues::Sieve::new(bytes))),
    ("s3-fifo", |bytes| Box::new(s3_fifo::S3Fifo::new(bytes))),
    ("arc", |bytes| Box::new(arc::Arc::new(bytes))),
    ("2q", |bytes| Box::new(two_q::TwoQ::new(bytes))),
    ("w-tinylfu", |bytes| Box::new(tiny_lfu::TinyLfu::new(bytes))),
    ("gdsf", |bytes| Box::new(gdsf::Gdsf::new(bytes))),
    ("lhd", |bytes| Box::new(lhd::Lhd::new(bytes))),
];

/// Returns the names of all algorithms but Belady's.
pub fn eviction_names() -> impl Iterator<Item = &'static str> + Clone {
    EVICTIONS.iter().map(|(name, _)| *name)
}

/// Returns a cache of `size_bytes` with the algorithm of this name; `None` if it is unknown.
pub fn eviction(name: &str, size_bytes: u64) -> Option<Box<dyn Eviction>> {
    EVICTIONS.iter().find(|(known, _)| *known == name).map(|(_, make)| make(size_bytes))
}

/// Returns a cache with Belady's algorithm, which is optimal for objects of one size. `next_uses` is the future that it
/// needs to know.
pub fn belady(size_bytes: u64, next_uses: NextUses) -> Box<dyn Eviction> {
    Box::new(Belady::new(size_bytes, next_uses))
}

#[cfg(test)]
mod tests;
