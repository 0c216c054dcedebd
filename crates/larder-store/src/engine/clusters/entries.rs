//! The entry table of `ucfs`: 20 bytes per entry, and an open hash table of 4-byte heads that point to the entries.
//!
//! An entry has 64 bits of the key's hash, its cluster, its position and length in sectors, and a link to the next
//! entry of the same cluster. So all entries of an evicted cluster can be removed without a read. Clusters are unknown
//! here; the caller keeps the first entry of each. Invariant: every entry is found by its key, once. Cost: 20 bytes per
//! entry, and 4 bytes per head at 80% fill. Source: UCFS (IEEE TC 2002), as described in its abstract.

use crate::hash::KeyHash;
use std::num::NonZeroU32;

/// The place of an entry: its cluster, and its position and length there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryPlace {
    pub(crate) cluster: u32,
    /// Position of the record in its cluster, in sectors.
    pub(crate) offset_sectors: u16,
    pub(crate) sectors: u16,
}

impl EntryPlace {
    /// Returns whether an entry can have this length. A length that was read from a damaged volume may be too large.
    pub(crate) fn has_length(self) -> bool {
        self.sectors < SECTORS_BOUND
    }
}

/// The number of an entry in the table. The number is valid as long as the entry is in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryId(NonZeroU32);

/// The table of all entries of a volume.
pub(crate) struct EntryTable {
    entries: Vec<ClusterEntry>,
    /// Hash table of entry numbers. 0 marks an empty position.
    heads: Vec<u32>,
    free: Option<EntryId>,
    len: usize,
    capacity: usize,
}

#[derive(Clone, Copy)]
struct ClusterEntry {
    /// Hash of the key, in two halves, so that an entry needs no padding.
    key: [u32; 2],
    cluster: u32,
    offset_sectors: u16,
    /// Length of the record in sectors.
    sectors: u16,
    /// The next entry of the same cluster. For an unused entry, the next unused entry.
    link: Option<EntryId>,
}

const _: () = assert!(size_of::<ClusterEntry>() == 20);

impl EntryTable {
    /// Creates an empty table for at most `entries` entries.
    pub(crate) fn new(entries: u64) -> Self {
        let capacity = entries.clamp(1, u64::from(u32::MAX / 2)) as usize;
        let heads = vec![0; (capacity as u64 * 100).div_ceil(FILL_PERCENT) as usize];
        Self { entries: Vec::new(), heads, free: None, len: 0, capacity }
    }

    /// Adds an entry as the first one of its cluster's list. `first` is the entry that was first before. Returns the
    /// number of the new entry. The key must not be in the table, and the table must not be full.
    pub(crate) fn insert(&mut self, key: KeyHash, place: EntryPlace, first: Option<EntryId>) -> EntryId {
        assert!(!self.is_full() && place.has_length());
        let at = self.head_of(key);
        assert_eq!(self.heads[at], 0, "a key is in the table once");
        let EntryPlace { cluster, offset_sectors, sectors } = place;
        let entry = ClusterEntry { key: halves(key), cluster, offset_sectors, sectors, link: first };
        let id = match self.free {
            Some(id) => {
                self.free = self.entry(id).link;
                self.entries[id.index()] = entry;
                id
            }
            None => {
                self.entries.push(entry);
                EntryId::of(self.entries.len() as u32).expect("numbers begin with 1")
            }
        };
        self.heads[at] = id.0.get();
        self.len += 1;
        id
    }

    pub(crate) fn find(&self, key: KeyHash) -> Option<EntryPlace> {
        let id = EntryId::of(self.heads[self.head_of(key)])?;
        Some(self.entry(id).place())
    }

    /// Removes `key` from the table and from the list of its cluster. `first` is the first entry of that list. Returns
    /// the list's new first entry.
    pub(crate) fn remove(&mut self, key: KeyHash, first: Option<EntryId>) -> Option<EntryId> {
        let at = self.head_of(key);
        let id = EntryId::of(self.heads[at]).expect("only what was found is removed");
        assert!(self.entry(id).key() == key && self.len > 0, "the head of a key leads to its entry, which is counted");
        let next = self.entry(id).link;
        let beginning = if first == Some(id) {
            next
        } else {
            let mut before = first.expect("an entry is in its cluster's chain");
            while self.entry(before).link != Some(id) {
                before = self.entry(before).link.expect("an entry is in its cluster's chain");
            }
            self.entries[before.index()].link = next;
            first
        };
        self.unlink(at, id);
        beginning
    }

    /// Removes all entries of a cluster's list. Returns how many entries were removed.
    pub(crate) fn remove_all(&mut self, first: Option<EntryId>) -> u64 {
        let mut next = first;
        let mut count = 0;
        while let Some(id) = next {
            next = self.entry(id).link;
            let at = self.head_of(self.entry(id).key());
            assert_eq!(self.heads[at], id.0.get(), "what is chained is found by its key");
            self.unlink(at, id);
            count += 1;
        }
        count
    }

    /// Returns the entries of a cluster's list.
    pub(crate) fn chain(&self, first: Option<EntryId>) -> impl Iterator<Item = (KeyHash, EntryPlace)> {
        std::iter::successors(first, |&id| self.entry(id).link).map(|id| self.entry(id).line())
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len >= self.capacity
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the memory that the table takes when it is full, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.capacity * size_of::<ClusterEntry>() + self.heads.len() * size_of::<u32>()) as u64
    }

    /// Checks three things: every position of the hash table has an entry, each entry is found by its key, and the
    /// number of entries is right.
    pub(super) fn check(&self) {
        let mut count = 0;
        for (at, id) in self.heads.iter().enumerate().filter_map(|(at, &head)| Some((at, EntryId::of(head)?))) {
            assert_eq!(self.head_of(self.entry(id).key()), at, "an entry is found by its key");
            count += 1;
        }
        assert_eq!(count, self.len, "entries are counted");
        let mut free = 0;
        let mut next = self.free;
        while let Some(id) = next {
            (next, free) = (self.entry(id).link, free + 1);
            assert!(free <= self.entries.len(), "the free list has an end");
        }
        assert_eq!(free + self.len, self.entries.len(), "an entry is in use or free");
        assert!(self.len <= self.capacity);
    }

    /// Returns the position of a key in the hash table, or the position at which it would be added.
    fn head_of(&self, key: KeyHash) -> usize {
        let mut at = self.home(key);
        while let Some(id) = EntryId::of(self.heads[at]) {
            if self.entry(id).key() == key {
                break;
            }
            at = (at + 1) % self.heads.len();
        }
        at
    }

    /// Removes the entry at position `at` from the hash table. Moves other entries to close the gap, so that a search
    /// still finds them.
    fn unlink(&mut self, at: usize, id: EntryId) {
        assert!(self.len > 0, "what is removed was counted");
        self.entries[id.index()].link = self.free;
        self.free = Some(id);
        self.len -= 1;
        let count = self.heads.len();
        let mut gap = at;
        self.heads[gap] = 0;
        let mut next = (gap + 1) % count;
        while let Some(other) = EntryId::of(self.heads[next]) {
            let home = self.home(self.entry(other).key());
            // Seen from its home, this head is behind the gap. It must move into the gap, or it would not be found.
            if (next + count - home) % count >= (next + count - gap) % count {
                self.heads.swap(gap, next);
                gap = next;
            }
            next = (next + 1) % count;
        }
    }

    fn home(&self, key: KeyHash) -> usize {
        ((u128::from(key.0) * self.heads.len() as u128) >> u64::BITS) as usize
    }

    fn entry(&self, id: EntryId) -> &ClusterEntry {
        &self.entries[id.index()]
    }
}

impl ClusterEntry {
    fn key(&self) -> KeyHash {
        KeyHash(u64::from(self.key[1]) << u32::BITS | u64::from(self.key[0]))
    }

    fn place(&self) -> EntryPlace {
        EntryPlace { cluster: self.cluster, offset_sectors: self.offset_sectors, sectors: self.sectors }
    }

    fn line(&self) -> (KeyHash, EntryPlace) {
        (self.key(), self.place())
    }
}

impl EntryId {
    fn of(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

const FILL_PERCENT: u64 = 80;
/// Exclusive upper bound on the length of an entry, in sectors.
const SECTORS_BOUND: u16 = 1 << 15;

fn halves(key: KeyHash) -> [u32; 2] {
    [key.0 as u32, key.prefix()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const CLUSTERS: u32 = 4;

    proptest! {
        /// Guards against a table that loses an entry, or that keeps one after its cluster was evicted.
        #[test]
        fn the_table_does_what_a_map_does(
            steps in prop::collection::vec((0..10_u8, 0..60_u64, 0..CLUSTERS), 1..400),
            spread in prop_oneof![Just(1_u64), Just(1 << 56), Just(0x9E37_79B9_7F4A_7C15)],
        ) {
            let mut table = EntryTable::new(50);
            let mut firsts = [None; CLUSTERS as usize];
            let mut model: HashMap<KeyHash, EntryPlace> = HashMap::new();
            for (step, key, cluster) in steps {
                let key = KeyHash(key.wrapping_mul(spread));
                let own = |place: EntryPlace| place.cluster as usize;
                match (step, table.find(key)) {
                    (0, _) => {
                        let gone = table.remove_all(firsts[cluster as usize].take());
                        let before = model.len();
                        model.retain(|_, place| place.cluster != cluster);
                        prop_assert_eq!(gone as usize, before - model.len());
                    }
                    (1..=3, Some(place)) => {
                        firsts[own(place)] = table.remove(key, firsts[own(place)]);
                        model.remove(&key);
                    }
                    (_, None) if step > 3 && !table.is_full() => {
                        let place = EntryPlace { cluster, offset_sectors: u16::from(step), sectors: 3 };
                        firsts[cluster as usize] = Some(table.insert(key, place, firsts[cluster as usize]));
                        model.insert(key, place);
                    }
                    _ => {}
                }
                prop_assert_eq!(table.len(), model.len());
                for (key, place) in &model {
                    prop_assert_eq!(table.find(*key), Some(*place));
                }
            }
            let chained: HashMap<_, _> = firsts.iter().flat_map(|&first| table.chain(first)).collect();
            prop_assert_eq!(chained, model);
        }
    }

    #[test]
    fn an_entry_takes_25_bytes() {
        let table = EntryTable::new(1_000_000);
        assert_eq!(table.memory_bytes(), 25_000_000);
    }
}
