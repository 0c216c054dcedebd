//! ARC (Megiddo and Modha, FAST 2003), by bytes. Objects requested once and objects requested again share the cache. A
//! request for an object that one part has recently evicted moves the border in favor of that part.

use super::eviction::Eviction;
use crate::lists::Lists;

/// Numbers of the four lists: objects requested once, objects requested again, and the keys that each of these two
/// lists has evicted.
const ONCE: usize = 0;
const AGAIN: usize = 1;
const ONCE_GHOSTS: usize = 2;
const AGAIN_GHOSTS: usize = 3;

/// A cache with ARC.
pub(super) struct Arc {
    lists: Lists<4>,
    size_bytes: u64,
    /// Target for the bytes of objects requested once.
    once_bytes: u64,
}

impl Arc {
    pub(super) fn new(size_bytes: u64) -> Self {
        Self { lists: Lists::new(), size_bytes, once_bytes: 0 }
    }

    /// Changes the target (`once_bytes`) in favor of the list that has evicted the requested object.
    fn adapt(&mut self, ghosts: usize, size_bytes: u64) {
        let bytes = |list| self.lists.bytes(list).max(1) as f64;
        let other = if ghosts == ONCE_GHOSTS { AGAIN_GHOSTS } else { ONCE_GHOSTS };
        let step = (size_bytes as f64 * (bytes(other) / bytes(ghosts)).max(1.0)) as u64;
        self.once_bytes = match ghosts {
            ONCE_GHOSTS => (self.once_bytes + step).min(self.size_bytes),
            _ => self.once_bytes.saturating_sub(step),
        };
    }

    fn make_room(&mut self, size_bytes: u64, is_again_ghost: bool) {
        while self.lists.bytes(ONCE) + self.lists.bytes(AGAIN) + size_bytes > self.size_bytes {
            let once = self.lists.bytes(ONCE);
            let is_over = once > self.once_bytes || (is_again_ghost && once == self.once_bytes);
            let (from, to) = if once > 0 && (is_over || self.lists.bytes(AGAIN) == 0) {
                (ONCE, ONCE_GHOSTS)
            } else {
                (AGAIN, AGAIN_GHOSTS)
            };
            let Some(tail) = self.lists.tail(from) else { return };
            self.lists.move_to_head(to, tail);
        }
    }

    /// Drops the oldest keys of evicted objects. The objects requested once and the keys evicted from their list may
    /// together represent as many bytes as the cache has. All lists together may represent twice as many.
    fn forget_ghosts(&mut self) {
        while self.lists.bytes(ONCE) + self.lists.bytes(ONCE_GHOSTS) > self.size_bytes {
            let Some(tail) = self.lists.tail(ONCE_GHOSTS) else { break };
            self.lists.remove(tail);
        }
        while (0..4).map(|list| self.lists.bytes(list)).sum::<u64>() > 2 * self.size_bytes {
            let Some(tail) = self.lists.tail(AGAIN_GHOSTS) else { break };
            self.lists.remove(tail);
        }
    }
}

impl Eviction for Arc {
    fn request(&mut self, key: u64, size_bytes: u64) -> bool {
        let found = self.lists.find(key);
        let list = found.map(|id| self.lists.list_of(id));
        if let (Some(id), Some(ONCE | AGAIN)) = (found, list) {
            self.lists.move_to_head(AGAIN, id);
            return true;
        }
        if size_bytes > self.size_bytes {
            return false;
        }
        if let (Some(id), Some(ghosts)) = (found, list) {
            self.adapt(ghosts, size_bytes);
            self.lists.remove(id);
            self.make_room(size_bytes, ghosts == AGAIN_GHOSTS);
            self.lists.insert(AGAIN, key, size_bytes);
            return false;
        }
        self.make_room(size_bytes, false);
        self.lists.insert(ONCE, key, size_bytes);
        self.forget_ghosts();
        false
    }

    fn approach(&self, keys: &[u64]) {
        self.lists.approach(keys.iter().copied());
    }
}
