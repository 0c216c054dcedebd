//! 2Q as CacheLib's `MM2Q` has it (OSDI 2020), after Johnson and Shasha (VLDB 1994): a hot queue of new objects, a cold
//! queue from which objects are evicted, and a warm queue of the objects that were hit in the cold one.
//!
//! Constants: hot and cold may take 30% of the bytes each, CacheLib's defaults. Its refresh time, which leaves out
//! promotions within 60 s, has no counterpart here: requests have no time. By bytes instead of by objects.

use super::eviction::Eviction;
use crate::lists::Lists;

const HOT: usize = 0;
const WARM: usize = 1;
const COLD: usize = 2;
const HOT_SHARE: f64 = 0.3;
const COLD_SHARE: f64 = 0.3;

/// A cache with 2Q, as in CacheLib.
pub(super) struct TwoQ {
    lists: Lists<3>,
    size_bytes: u64,
    hot_bytes: u64,
    warm_bytes: u64,
}

impl TwoQ {
    pub(super) fn new(size_bytes: u64) -> Self {
        let hot_bytes = (size_bytes as f64 * HOT_SHARE) as u64;
        let warm_bytes = (size_bytes as f64 * (1.0 - HOT_SHARE - COLD_SHARE)) as u64;
        Self { lists: Lists::new(), size_bytes, hot_bytes, warm_bytes }
    }

    fn bytes(&self) -> u64 {
        [HOT, WARM, COLD].into_iter().map(|list| self.lists.bytes(list)).sum()
    }

    /// Moves the oldest objects of the hot and the warm queue to the cold one, until both take no more than their share
    /// of the cache.
    fn rebalance(&mut self) {
        for (list, most_bytes) in [(HOT, self.hot_bytes), (WARM, self.warm_bytes)] {
            while self.lists.bytes(list) > most_bytes {
                let Some(tail) = self.lists.tail(list) else { break };
                self.lists.move_to_head(COLD, tail);
            }
        }
    }
}

impl Eviction for TwoQ {
    fn request(&mut self, key: u64, size_bytes: u64) -> bool {
        if let Some(id) = self.lists.find(key) {
            let list = if self.lists.list_of(id) == HOT { HOT } else { WARM };
            self.lists.move_to_head(list, id);
            self.rebalance();
            return true;
        }
        if size_bytes > self.size_bytes {
            return false;
        }
        while self.bytes() + size_bytes > self.size_bytes {
            let Some(victim) = [COLD, HOT, WARM].into_iter().find_map(|list| self.lists.tail(list)) else { break };
            self.lists.remove(victim);
        }
        self.lists.insert(HOT, key, size_bytes);
        self.rebalance();
        false
    }

    fn approach(&self, keys: &[u64]) {
        self.lists.approach(keys.iter().copied());
    }
}
