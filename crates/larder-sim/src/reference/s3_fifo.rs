//! S3-FIFO (Yang et al., SOSP 2023): a small queue in front of the main one, and a ghost queue of evicted keys.
//!
//! Constants: the small queue has 10% of the bytes, the ghost queue 90%. An object with two hits in the small queue
//! moves to the main one, where its counter starts at 0 and goes up to 3. An object longer than the small queue is not
//! stored.

use super::eviction::Eviction;
use crate::lists::Lists;

const SMALL: usize = 0;
const MAIN: usize = 1;
const SMALL_SHARE: f64 = 0.1;
const GHOST_SHARE: f64 = 0.9;
const PROMOTION_HITS: u32 = 2;
const COUNT_MAX: u32 = 3;

/// A cache with S3-FIFO.
pub(super) struct S3Fifo {
    queues: Lists<2>,
    ghosts: Lists<1>,
    size_bytes: u64,
    small_bytes: u64,
    ghost_bytes: u64,
    has_evicted: bool,
}

impl S3Fifo {
    pub(super) fn new(size_bytes: u64) -> Self {
        Self {
            queues: Lists::new(),
            ghosts: Lists::new(),
            size_bytes,
            small_bytes: (size_bytes as f64 * SMALL_SHARE) as u64,
            ghost_bytes: (size_bytes as f64 * GHOST_SHARE) as u64,
            has_evicted: false,
        }
    }

    fn evict(&mut self) {
        self.has_evicted = true;
        let main_bytes = self.size_bytes - self.small_bytes;
        if self.queues.bytes(MAIN) > main_bytes || self.queues.bytes(SMALL) == 0 {
            self.evict_from_main();
        } else {
            self.evict_from_small();
        }
    }

    fn evict_from_small(&mut self) {
        while let Some(tail) = self.queues.tail(SMALL) {
            if self.queues.node(tail).count >= PROMOTION_HITS {
                self.queues.node_mut(tail).count = 0;
                self.queues.move_to_head(MAIN, tail);
                continue;
            }
            let gone = self.queues.remove(tail);
            self.remember(gone.key, gone.size_bytes);
            return;
        }
    }

    fn evict_from_main(&mut self) {
        while let Some(tail) = self.queues.tail(MAIN) {
            let count = self.queues.node(tail).count;
            if count == 0 {
                self.queues.remove(tail);
                return;
            }
            self.queues.node_mut(tail).count = count.min(COUNT_MAX) - 1;
            self.queues.move_to_head(MAIN, tail);
        }
    }

    /// Adds the key of an evicted object to the ghost queue.
    fn remember(&mut self, key: u64, size_bytes: u64) {
        if size_bytes > self.ghost_bytes || self.ghosts.find(key).is_some() {
            return;
        }
        while self.ghosts.bytes(0) + size_bytes > self.ghost_bytes {
            let Some(tail) = self.ghosts.tail(0) else { return };
            self.ghosts.remove(tail);
        }
        self.ghosts.insert(0, key, size_bytes);
    }
}

impl Eviction for S3Fifo {
    fn request(&mut self, key: u64, size_bytes: u64) -> bool {
        if let Some(id) = self.queues.find(key) {
            self.queues.node_mut(id).count += 1;
            return true;
        }
        let ghost = self.ghosts.find(key);
        if let Some(id) = ghost {
            self.ghosts.remove(id);
        }
        if size_bytes > self.small_bytes {
            return false;
        }
        while self.queues.bytes(SMALL) + self.queues.bytes(MAIN) + size_bytes > self.size_bytes {
            self.evict();
        }
        if size_bytes == self.small_bytes && ghost.is_none() {
            return false;
        }
        // Until the first eviction there is room, and objects that do not fit into the small queue go to the main one.
        let is_filling = !self.has_evicted && self.queues.bytes(SMALL) >= self.small_bytes;
        let queue = if ghost.is_some() || is_filling { MAIN } else { SMALL };
        self.queues.insert(queue, key, size_bytes);
        false
    }

    fn approach(&self, keys: &[u64]) {
        self.queues.approach(keys.iter().copied());
    }
}
