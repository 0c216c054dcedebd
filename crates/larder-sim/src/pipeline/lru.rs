//! A least-recently-used list of documents, limited by bytes, which reports what it evicts.

use crate::lists::Lists;

pub(crate) struct Lru {
    queue: Lists<1>,
    size_bytes: u64,
}

impl Lru {
    pub(crate) fn new(size_bytes: u64) -> Self {
        Self { queue: Lists::new(), size_bytes }
    }

    /// Makes a document the most recently used one. Returns whether it was present.
    pub(crate) fn touch(&mut self, number: u64) -> bool {
        let found = self.queue.find(number);
        found.into_iter().for_each(|id| self.queue.move_to_head(0, id));
        found.is_some()
    }

    /// Inserts an absent document. Calls `evicted` with the number of each document that is evicted for it.
    pub(crate) fn insert(&mut self, number: u64, size_bytes: u64, mut evicted: impl FnMut(u64)) {
        while self.queue.bytes(0) + size_bytes > self.size_bytes {
            let Some(tail) = self.queue.tail(0) else { return };
            evicted(self.queue.remove(tail).key);
        }
        self.queue.insert(0, number, size_bytes);
    }

    /// Removes a document. Returns whether it was present.
    pub(crate) fn remove(&mut self, number: u64) -> bool {
        let found = self.queue.find(number);
        if let Some(id) = found {
            self.queue.remove(id);
        }
        found.is_some()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.queue.bytes(0)
    }
}
