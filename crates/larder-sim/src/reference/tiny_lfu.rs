//! W-TinyLFU (Einziger, Friedman, Manes, ACM TOS 2017): a window of the newest objects in front of a segmented LRU. An
//! object moves from the window to the main part only if it was requested more often than the one it would displace.
//!
//! Constants: the window has 1% of the bytes; four fifths of the remainder are for objects that were hit in the main
//! part. Requests are counted exactly, up to 15, and halved every ten requests per object of the cache; a sketch gives
//! no better results.

use super::eviction::Eviction;
use crate::lists::Lists;
use std::collections::HashMap;

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;
const WINDOW_SHARE: f64 = 0.01;
const PROTECTED_SHARE: f64 = 0.8;
const COUNT_MAX: u8 = 15;
const REQUESTS_PER_OBJECT: u64 = 10;

/// A cache with W-TinyLFU.
pub(super) struct TinyLfu {
    lists: Lists<3>,
    window_bytes: u64,
    main_bytes: u64,
    protected_bytes: u64,
    counts: HashMap<u64, u8>,
    counted: u64,
    objects: u64,
}

impl TinyLfu {
    pub(super) fn new(size_bytes: u64) -> Self {
        let window_bytes = ((size_bytes as f64 * WINDOW_SHARE) as u64).max(1);
        let main_bytes = size_bytes.saturating_sub(window_bytes);
        let protected_bytes = (main_bytes as f64 * PROTECTED_SHARE) as u64;
        let lists = Lists::new();
        let counts = HashMap::new();
        Self { lists, window_bytes, main_bytes, protected_bytes, counts, counted: 0, objects: 0 }
    }

    /// Evicts objects of the main part for a new one, as long as the new one was requested more often than they were.
    /// Returns whether there is now space for the new object.
    fn is_admitted(&mut self, key: u64, size_bytes: u64) -> bool {
        while self.lists.bytes(PROBATION) + self.lists.bytes(PROTECTED) + size_bytes > self.main_bytes {
            let Some(victim) = self.lists.tail(PROBATION).or(self.lists.tail(PROTECTED)) else { return false };
            if self.count_of(key) <= self.count_of(self.lists.node(victim).key) {
                return false;
            }
            self.lists.remove(victim);
            self.objects -= 1;
        }
        true
    }

    fn count_of(&self, key: u64) -> u8 {
        self.counts.get(&key).copied().unwrap_or(0)
    }

    fn count(&mut self, key: u64) {
        let count = self.counts.entry(key).or_insert(0);
        *count = (*count + 1).min(COUNT_MAX);
        self.counted += 1;
        if self.counted >= REQUESTS_PER_OBJECT * self.objects.max(100) {
            self.counted /= 2;
            self.counts.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
        }
    }
}

impl Eviction for TinyLfu {
    fn request(&mut self, key: u64, size_bytes: u64) -> bool {
        self.count(key);
        if let Some(id) = self.lists.find(key) {
            match self.lists.list_of(id) {
                WINDOW => self.lists.move_to_head(WINDOW, id),
                _ => self.lists.move_to_head(PROTECTED, id),
            }
            while self.lists.bytes(PROTECTED) > self.protected_bytes {
                let Some(tail) = self.lists.tail(PROTECTED) else { break };
                self.lists.move_to_head(PROBATION, tail);
            }
            return true;
        }
        if size_bytes > self.main_bytes {
            return false;
        }
        self.lists.insert(WINDOW, key, size_bytes);
        self.objects += 1;
        while self.lists.bytes(WINDOW) > self.window_bytes {
            let Some(candidate) = self.lists.tail(WINDOW) else { break };
            let node = *self.lists.node(candidate);
            if self.is_admitted(node.key, node.size_bytes) {
                self.lists.move_to_head(PROBATION, candidate);
            } else {
                self.lists.remove(candidate);
                self.objects -= 1;
            }
        }
        false
    }

    fn approach(&self, keys: &[u64]) {
        self.lists.approach(keys.iter().copied());
    }
}
