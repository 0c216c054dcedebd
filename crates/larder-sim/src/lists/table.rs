//! Numbers found by key: a hash table of 8 bytes a slot that does not store the keys.
//!
//! Linear probing (Knuth, The Art of Computer Programming, volume 3, 6.4, algorithms L and R). A slot has the number
//! and 32 bits of the key's hash, which determine its home slot. Invariant: at most two of three slots are taken, and
//! there is no empty slot between a number's home and its slot. Cost: mostly one cache line a search; growing reads no
//! keys.

pub(super) struct NumberTable {
    /// The slots of a hash table, whose number is a power of two. Upper half of a slot: the tag. Lower half: the number
    /// plus 1. Empty slot: 0.
    slots: Vec<u64>,
    len: usize,
}

const SLOTS_AT_FIRST: usize = 16;

impl NumberTable {
    pub(super) fn new() -> Self {
        Self { slots: vec![0; SLOTS_AT_FIRST], len: 0 }
    }

    /// Adds `number` for a key that has none.
    pub(super) fn insert(&mut self, key: u64, number: u32) {
        assert!(number < u32::MAX, "the last number means none");
        if (self.len + 1) * 3 > self.slots.len() * 2 {
            let larger = vec![0; self.slots.len() * 2];
            let before = std::mem::replace(&mut self.slots, larger);
            before.into_iter().filter(|slot| *slot != 0).for_each(|slot| self.put(slot));
        }
        self.put(u64::from(tag(key)) << 32 | u64::from(number + 1));
        self.len += 1;
    }

    /// Removes `number`, which the key must have.
    pub(super) fn remove(&mut self, key: u64, number: u32) {
        let tag = tag(key);
        let mask = self.slots.len() - 1;
        let sought = u64::from(tag) << 32 | u64::from(number + 1);
        let mut gap = self.home(tag);
        while self.slots[gap] != sought {
            assert!(self.slots[gap] != 0, "only what is there is removed");
            gap = (gap + 1) & mask;
        }
        self.len -= 1;
        let mut next = gap;
        loop {
            next = (next + 1) & mask;
            let slot = self.slots[next];
            if slot == 0 {
                self.slots[gap] = 0;
                return;
            }
            // Otherwise, entries after the gap could not be found from their home.
            let home = self.home((slot >> 32) as u32);
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(gap) & mask {
                self.slots[gap] = slot;
                gap = next;
            }
        }
    }

    /// Returns the number of a key. `is_it` checks whether a number belongs to the key, because other keys can have the
    /// same tag.
    pub(super) fn find(&self, key: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let tag = tag(key);
        let mask = self.slots.len() - 1;
        let mut at = self.home(tag);
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return None;
            }
            let number = slot as u32 - 1;
            if (slot >> 32) as u32 == tag && is_it(number) {
                return Some(number);
            }
            at = (at + 1) & mask;
        }
    }

    /// Returns the number in the first slot that is searched for a key. In most cases, this is the number of the key.
    pub(super) fn first(&self, key: u64) -> Option<u32> {
        (self.slots[self.home(tag(key))] as u32).checked_sub(1)
    }

    fn put(&mut self, slot: u64) {
        let mut at = self.home((slot >> 32) as u32);
        while self.slots[at] != 0 {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = slot;
    }

    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.slots.len() as u64) >> 32) as usize
    }
}

/// Returns the tag of a key. Mixes the bits, because the keys of many traces are small numbers.
fn tag(key: u64) -> u32 {
    ((key ^ (key >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Guards against objects that a simulated cache loses.
        #[test]
        fn the_table_does_what_a_map_does(
            steps in prop::collection::vec((any::<bool>(), 0_u64..80), 1..600),
            spread in prop_oneof![Just(1_u64), Just(1 << 32), Just(0x0001_0000_0001_0000)],
        ) {
            let mut table = NumberTable::new();
            let mut map = HashMap::new();
            let mut keys = Vec::new();
            for (is_removal, key) in steps {
                let key = key.wrapping_mul(spread);
                let found = table.find(key, |number| keys[number as usize] == key);
                prop_assert_eq!(found, map.get(&key).copied());
                match found {
                    Some(number) if is_removal => {
                        table.remove(key, number);
                        map.remove(&key);
                    }
                    None => {
                        table.insert(key, keys.len() as u32);
                        map.insert(key, keys.len() as u32);
                        keys.push(key);
                    }
                    Some(_) => {}
                }
            }
            for (key, number) in &map {
                prop_assert_eq!(table.find(*key, |number| keys[number as usize] == *key), Some(*number));
            }
        }
    }
}
