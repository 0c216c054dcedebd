//! Counts the hits that a memory cache serves, and decides which of them the store learns of.
//!
//! A store that never learned of them would evict the entries that are requested most. One that learned of each would
//! look every key up twice. Decides nothing else: the memory cache calls [`Store::touch`](crate::Store::touch).

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Hits in the memory cache from one report to the store to the next. The first hit is reported too.
const HITS_PER_REPORT: u32 = 32;

/// The number of hits of an entry since a memory cache took it in.
///
/// ```
/// use larder_store::MemoryHits;
///
/// let hits = MemoryHits::default();
/// let told = (0..100).filter(|_| hits.count()).count();
/// // The store is told of hits 1, 33, 65 and 97.
/// assert_eq!((hits.get(), told), (100, 4));
/// ```
#[derive(Debug, Default)]
pub struct MemoryHits(AtomicU32);

impl MemoryHits {
    /// Counts a hit. Returns whether to call [`Store::touch`](crate::Store::touch): at the first hit, and at each 32nd
    /// after it.
    ///
    /// The first hit is reported, because an entry that came with the read of a group has no hit in the store yet, and
    /// most entries leave the memory cache before their second hit.
    pub fn count(&self) -> bool {
        self.0.fetch_add(1, Relaxed).is_multiple_of(HITS_PER_REPORT)
    }

    /// Returns the number of hits counted.
    #[must_use]
    pub fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_hit_and_each_32nd_after_it_are_reported() {
        let hits = MemoryHits::default();
        let reported: Vec<u32> = (1..=100).filter(|_| hits.count()).collect();
        assert_eq!((reported, hits.get()), (vec![1, 33, 65, 97], 100));
    }
}
