//! Belady's MIN: evicts the object whose next request is farthest away. It needs the future, in [`NextUses`].
//!
//! It is the optimum if all objects have one size; otherwise a good bound to compare with.

use super::eviction::Eviction;
use crate::lists::{Lists, NodeId};
use std::collections::{BTreeSet, HashMap};

const NEVER: u64 = u64::MAX;

/// For each request of a trace, the number of the next request for the same object.
pub struct NextUses(Vec<u64>);

impl NextUses {
    /// Finds the next request for the object of each request. `keys` has the key of each request of the whole trace.
    /// Takes 8 bytes of memory per request.
    pub fn of(keys: &[u64]) -> Self {
        let mut last_seen = HashMap::new();
        let mut next = vec![NEVER; keys.len()];
        for (position, key) in keys.iter().enumerate().rev() {
            if let Some(later) = last_seen.insert(*key, position as u64) {
                next[position] = later;
            }
        }
        Self(next)
    }
}

/// A cache with Belady's MIN.
pub(super) struct Belady {
    objects: Lists<1>,
    order: BTreeSet<(u64, NodeId)>,
    uses: Vec<u64>,
    next_uses: NextUses,
    position: usize,
    size_bytes: u64,
}

impl Belady {
    pub(super) fn new(size_bytes: u64, next_uses: NextUses) -> Self {
        Self { objects: Lists::new(), order: BTreeSet::new(), uses: Vec::new(), next_uses, position: 0, size_bytes }
    }

    fn note(&mut self, id: NodeId, next: u64) {
        self.order.insert((next, id));
        if self.uses.len() <= id as usize {
            self.uses.resize(id as usize + 1, NEVER);
        }
        self.uses[id as usize] = next;
    }
}

impl Eviction for Belady {
    fn request(&mut self, key: u64, size_bytes: u64) -> bool {
        let next = self.next_uses.0.get(self.position).copied().unwrap_or(NEVER);
        self.position += 1;
        if let Some(id) = self.objects.find(key) {
            self.order.remove(&(self.uses[id as usize], id));
            self.note(id, next);
            return true;
        }
        if size_bytes > self.size_bytes {
            return false;
        }
        while self.objects.bytes(0) + size_bytes > self.size_bytes {
            let Some((_, last)) = self.order.pop_last() else { return false };
            self.objects.remove(last);
        }
        let id = self.objects.insert(0, key, size_bytes);
        self.note(id, next);
        false
    }

    fn approach(&self, keys: &[u64]) {
        self.objects.approach(keys.iter().copied());
    }
}
