//! Evictions with one queue: LRU, FIFO and SIEVE.

use super::eviction::Eviction;
use crate::lists::{Lists, NodeId};

/// A cache that evicts the least recently used object (LRU).
pub(super) struct LruOrder {
    queue: Lists<1>,
    size_bytes: u64,
}

impl LruOrder {
    pub(super) fn new(size_bytes: u64) -> Self {
        Self { queue: Lists::new(), size_bytes }
    }
}

impl Eviction for LruOrder {
    fn request(&mut self, key: u64, size_bytes: u64) -> bool {
        if let Some(id) = self.queue.find(key) {
            self.queue.move_to_head(0, id);
            return true;
        }
        admit(&mut self.queue, key, size_bytes, self.size_bytes);
        false
    }

    fn approach(&self, keys: &[u64]) {
        self.queue.approach(keys.iter().copied());
    }
}

/// A cache that evicts the object that was stored first (FIFO). Hits change nothing.
pub(super) struct Fifo {
    queue: Lists<1>,
    size_bytes: u64,
}

impl Fifo {
    pub(super) fn new(size_bytes: u64) -> Self {
        Self { queue: Lists::new(), size_bytes }
    }
}

impl Eviction for Fifo {
    fn request(&mut self, key: u64, size_bytes: u64) -> bool {
        if self.queue.find(key).is_some() {
            return true;
        }
        admit(&mut self.queue, key, size_bytes, self.size_bytes);
        false
    }

    fn approach(&self, keys: &[u64]) {
        self.queue.approach(keys.iter().copied());
    }
}

/// A cache with SIEVE: a queue, and a hand that spares objects that were hit since it last passed them.
pub(super) struct Sieve {
    queue: Lists<1>,
    hand: Option<NodeId>,
    size_bytes: u64,
}

impl Sieve {
    pub(super) fn new(size_bytes: u64) -> Self {
        Self { queue: Lists::new(), hand: None, size_bytes }
    }

    fn evict(&mut self) {
        let Some(mut at) = self.hand.or(self.queue.tail(0)) else { return };
        while self.queue.node(at).count > 0 {
            self.queue.node_mut(at).count = 0;
            let Some(next) = self.queue.newer(at).or(self.queue.tail(0)) else { return };
            at = next;
        }
        self.hand = self.queue.newer(at);
        self.queue.remove(at);
    }
}

impl Eviction for Sieve {
    fn request(&mut self, key: u64, size_bytes: u64) -> bool {
        if let Some(id) = self.queue.find(key) {
            self.queue.node_mut(id).count = 1;
            return true;
        }
        if size_bytes <= self.size_bytes {
            while self.queue.bytes(0) + size_bytes > self.size_bytes {
                self.evict();
            }
            self.queue.insert(0, key, size_bytes);
        }
        false
    }

    fn approach(&self, keys: &[u64]) {
        self.queue.approach(keys.iter().copied());
    }
}

/// Stores an object at the head of the queue, and evicts others from the tail. Does not store an object that is larger
/// than the cache.
fn admit(queue: &mut Lists<1>, key: u64, size_bytes: u64, cache_bytes: u64) {
    if size_bytes > cache_bytes {
        return;
    }
    while queue.bytes(0) + size_bytes > cache_bytes {
        let Some(tail) = queue.tail(0) else { return };
        queue.remove(tail);
    }
    queue.insert(0, key, size_bytes);
}
