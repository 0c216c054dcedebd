//! A cache's content: the most recently used blocks, by number, up to a total weight.
//!
//! Invariant: the total weight exceeds the limit only if a single item is heavier than it.

use crate::lists::Lists;

/// The blocks that were used most recently, as in a cache.
pub(super) struct Recent {
    queue: Lists<1>,
    weight_max: u64,
}

impl Recent {
    pub(super) fn new(weight_max: u64) -> Self {
        Self { queue: Lists::new(), weight_max }
    }

    /// Uses the block with this number and `weight`. Returns whether it was there with the same weight.
    pub(super) fn uses(&mut self, number: u64, weight: u64) -> bool {
        let found = self.queue.find(number);
        if let Some(id) = found {
            if self.queue.node(id).size_bytes == weight {
                self.queue.move_to_head(0, id);
                return true;
            }
            self.queue.remove(id);
        }
        while self.queue.bytes(0) + weight > self.weight_max {
            let Some(tail) = self.queue.tail(0) else { break };
            self.queue.remove(tail);
        }
        self.queue.insert(0, number, weight);
        found.is_some() && weight <= self.weight_max
    }

    pub(super) fn forget(&mut self, number: u64) {
        if let Some(id) = self.queue.find(number) {
            self.queue.remove(id);
        }
    }
}
