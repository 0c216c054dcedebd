//! The map: every entry of a policy that indexes all its entries, with their order of use.
//!
//! An open hash table of 32-bit numbers points to an array of 28-byte nodes. The nodes also form a list from the least
//! to the most recently used entry. Owns: the entries, with place (36 bits interpreted by the layout), length, number
//! of the write that stored it, approximate expiry, and the LRU order. Keys are not compared: two keys with the same
//! 64-bit hash displace each other, and the reader of the record compares the key. Invariant: one node per hash; every
//! node is in the table and in the list.
//!
//! Cost: 28 bytes per entry and 4 bytes for each of 1.5 table places: 34 bytes, 272 bits, allocated as needed and never
//! freed. A lookup examines 2 nodes for a hit and 5 for a miss (linear probing at two thirds). Idea: the in-memory
//! tables of Markatos et al. (USITS'99) and Squid, packed.

mod check;
mod lifetime;

use crate::hash::KeyHash;

use lifetime::EntryLifetime;

/// Maximum number of entries in a map. The numbers of nodes have 32 bits, and one value means none.
pub(crate) const ENTRY_COUNT_MAX: u64 = (1 << 31) - 1;
/// Number of bits of a place.
pub(crate) const PLACE_BITS: u32 = 36;
const SECTOR_COUNT_BITS: u32 = 12;
const NONE: u32 = u32::MAX;

/// The place of an entry, in a unit that depends on the layout: a sector, a slot in the file for its length, or a
/// directory. Less than 2^36.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MapPlace(pub(crate) u64);

/// The data that the map has of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapEntry {
    pub(crate) place: MapPlace,
    /// Length of the record in sectors; less than 4096.
    pub(crate) sectors: u32,
    /// Number of the write that stored the entry.
    pub(crate) sequence: u32,
    /// Unix time in seconds after which the entry is expired; 0 means never. The map rounds it up.
    pub(crate) expires_at: u32,
}

/// The map of all entries of a volume.
pub(crate) struct EntryMap {
    nodes: Vec<MapNode>,
    /// Hash table. Each place has the number of a node plus one, or 0 if it is free. So a new table has zeros only, and
    /// its memory need not be written.
    table: Vec<u32>,
    entries_max: u32,
    entry_count: u32,
    /// The first unused node. Unused nodes are a list, linked by `newer`.
    unused: u32,
    oldest: u32,
    newest: u32,
    /// Base time of the lifetimes, as Unix time in seconds.
    base_s: u32,
}

/// A node: an entry with its hash and its place in the order of use. Fields of eight bytes are split in two, so that
/// nodes need no padding.
#[derive(Clone, Copy)]
struct MapNode {
    key_hash: [u32; 2],
    /// Three fields in one word: 36 bits of place, 12 bits of sectors, and 16 bits of lifetime.
    packed: [u32; 2],
    sequence: u32,
    older: u32,
    newer: u32,
}

const NODE_BYTES: u64 = 28;
const _: () = assert!(size_of::<MapNode>() as u64 == NODE_BYTES);

impl EntryMap {
    /// Creates a map for at most `entries_max` entries. Expiry times near `now_s` are kept more precisely than later
    /// times.
    pub(crate) fn new(entries_max: u64, now_s: u32) -> Self {
        let entries_max = entries_max.clamp(1, ENTRY_COUNT_MAX);
        Self {
            nodes: Vec::with_capacity(entries_max as usize),
            table: vec![0; table_len(entries_max) as usize],
            entries_max: entries_max as u32,
            entry_count: 0,
            unused: NONE,
            oldest: NONE,
            newest: NONE,
            base_s: now_s,
        }
    }

    /// Adds `entry` as the entry of `key_hash`, and makes it the most recently used one. Returns the entry that it
    /// replaces.
    ///
    /// # Panics
    /// If the map is full and has no entry of `key_hash`. The caller must evict first.
    pub(crate) fn insert(&mut self, key_hash: KeyHash, entry: MapEntry) -> Option<MapEntry> {
        let replaced = self.remove(key_hash);
        assert!(!self.is_full(), "a full map takes nothing new");
        let node = MapNode::new(key_hash, &entry, self.base_s);
        let id = if self.unused == NONE {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        } else {
            let id = self.unused;
            self.unused = self.nodes[id as usize].newer;
            self.nodes[id as usize] = node;
            id
        };
        let mut at = self.home(key_hash);
        while self.table[at] != 0 {
            at = self.next_place(at);
        }
        self.table[at] = id + 1;
        self.entry_count += 1;
        self.link_newest(id);
        replaced
    }

    /// Removes the entry of `key_hash`, and returns it.
    pub(crate) fn remove(&mut self, key_hash: KeyHash) -> Option<MapEntry> {
        let at = self.position(key_hash)?;
        let id = self.table[at] - 1;
        assert!(self.entry_count > 0, "what is removed was counted");
        let entry = self.nodes[id as usize].entry(self.base_s);
        self.unlink(id);
        self.close_gap(at);
        self.nodes[id as usize].newer = self.unused;
        self.unused = id;
        self.entry_count -= 1;
        Some(entry)
    }

    /// Removes the entry of `key_hash` if the write with the number `sequence` stored it. Returns the entry.
    pub(crate) fn remove_write(&mut self, key_hash: KeyHash, sequence: u32) -> Option<MapEntry> {
        self.find(key_hash).filter(|entry| entry.sequence == sequence)?;
        let removed = self.remove(key_hash);
        assert!(removed.is_some_and(|entry| entry.sequence == sequence), "what was found is removed");
        removed
    }

    /// Makes the entry of `key_hash` the most recently used one.
    pub(crate) fn touch(&mut self, key_hash: KeyHash) {
        let Some(at) = self.position(key_hash) else { return };
        let id = self.table[at] - 1;
        if id != self.newest {
            self.unlink(id);
            self.link_newest(id);
        }
        assert_eq!(self.newest, id, "what was touched was used last");
    }

    /// Sets the place of the entry that the write with the number `sequence` stored. Returns `false` if there is no
    /// such entry.
    pub(crate) fn set_place(&mut self, key_hash: KeyHash, sequence: u32, place: MapPlace) -> bool {
        let Some(at) = self.position(key_hash) else { return false };
        let node = &mut self.nodes[self.table[at] as usize - 1];
        if node.sequence != sequence {
            return false;
        }
        debug_assert_eq!(node.key_hash(), key_hash, "the table leads to the key's own node");
        node.set_place(place);
        true
    }

    /// Returns the entry of `key_hash`; `None` if there is none.
    pub(crate) fn find(&self, key_hash: KeyHash) -> Option<MapEntry> {
        let at = self.position(key_hash)?;
        Some(self.nodes[self.table[at] as usize - 1].entry(self.base_s))
    }

    /// Returns the least recently used entry, with its hash.
    pub(crate) fn oldest(&self) -> Option<(KeyHash, MapEntry)> {
        self.oldest_first().next()
    }

    /// Returns all entries with their hashes, from the least to the most recently used.
    pub(crate) fn oldest_first(&self) -> impl Iterator<Item = (KeyHash, MapEntry)> + '_ {
        let mut id = self.oldest;
        std::iter::from_fn(move || {
            let node = self.nodes.get(id as usize)?;
            id = node.newer;
            Some((node.key_hash(), node.entry(self.base_s)))
        })
    }

    /// Returns up to `count_max` entries in the order of use, and the node after them. Begins with node `cursor`; if
    /// `cursor` is `None`, with the least recently used entry.
    pub(crate) fn part_in_order(
        &self,
        cursor: Option<u32>,
        count_max: usize,
    ) -> (Vec<(KeyHash, MapEntry)>, Option<u32>) {
        let mut id = cursor.unwrap_or(self.oldest);
        let mut part = Vec::new();
        while let Some(node) = self.nodes.get(id as usize) {
            if part.len() == count_max {
                return (part, Some(id));
            }
            part.push((node.key_hash(), node.entry(self.base_s)));
            id = node.newer;
        }
        (part, None)
    }

    /// Returns up to `count_max` entries in the order of their nodes from `cursor` on, and the node after them. A scan
    /// in such steps visits every entry that stays in the map, even if other entries are added or removed.
    pub(crate) fn part(&self, cursor: u32, count_max: usize) -> (Vec<(KeyHash, MapEntry)>, Option<u32>) {
        let mut part = Vec::new();
        for (id, node) in self.nodes.iter().enumerate().skip(cursor as usize) {
            if part.len() == count_max {
                return (part, Some(id as u32));
            }
            // Unused nodes still contain their old entries.
            let key_hash = node.key_hash();
            if self.position(key_hash).is_some_and(|at| self.table[at] as usize == id + 1) {
                part.push((key_hash, node.entry(self.base_s)));
            }
        }
        (part, None)
    }

    /// Makes the order of use follow the order of the writes: the entry that was written first becomes the least
    /// recently used. Ages are counted back from `next`, the number of the next write, because numbers wrap around.
    pub(crate) fn order_by_age(&mut self, next: u32) {
        let mut ids = Vec::with_capacity(self.entry_count as usize);
        let mut id = self.oldest;
        while let Some(node) = self.nodes.get(id as usize) {
            ids.push(id);
            id = node.newer;
        }
        assert_eq!(ids.len(), self.entry_count as usize, "every entry is in the order of use");
        ids.sort_by_key(|&id| std::cmp::Reverse(next.wrapping_sub(self.nodes[id as usize].sequence)));
        (self.oldest, self.newest) = (NONE, NONE);
        ids.into_iter().for_each(|id| self.link_newest(id));
    }

    /// Returns all entries with their hashes, from the most to the least recently used.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = (KeyHash, MapEntry)> + '_ {
        let mut id = self.newest;
        std::iter::from_fn(move || {
            let node = self.nodes.get(id as usize)?;
            id = node.older;
            Some((node.key_hash(), node.entry(self.base_s)))
        })
    }

    pub(crate) fn is_full(&self) -> bool {
        self.entry_count == self.entries_max
    }

    pub(crate) fn entry_count(&self) -> u64 {
        u64::from(self.entry_count)
    }

    pub(crate) fn entries_max(&self) -> u64 {
        u64::from(self.entries_max)
    }

    /// Returns the memory that the map takes when it is full, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        memory_bytes(u64::from(self.entries_max))
    }

    fn home(&self, key_hash: KeyHash) -> usize {
        ((u128::from(key_hash.0) * self.table.len() as u128) >> 64) as usize
    }

    fn next_place(&self, at: usize) -> usize {
        if at + 1 == self.table.len() { 0 } else { at + 1 }
    }

    /// Returns the position of `key_hash`'s node in the hash table.
    fn position(&self, key_hash: KeyHash) -> Option<usize> {
        let mut at = self.home(key_hash);
        loop {
            let id = self.table[at].checked_sub(1)?;
            if self.nodes[id as usize].key_hash() == key_hash {
                return Some(at);
            }
            at = self.next_place(at);
        }
    }

    /// Empties the position `gap` of the hash table. Moves entries from behind the gap into it, so that searches still
    /// find them.
    fn close_gap(&mut self, mut gap: usize) {
        let len = self.table.len();
        assert!((self.entry_count as usize) < len, "the table has an empty place, where probing ends");
        let mut at = gap;
        loop {
            at = self.next_place(at);
            let Some(id) = self.table[at].checked_sub(1) else { break };
            let home = self.home(self.nodes[id as usize].key_hash());
            // It may move back unless its home is behind the gap.
            if (at + len - home) % len >= (at + len - gap) % len {
                self.table[gap] = id + 1;
                gap = at;
            }
        }
        self.table[gap] = 0;
    }

    fn link_newest(&mut self, id: u32) {
        let older = self.newest;
        assert_ne!(older, id, "an entry is in the order of use once");
        let node = &mut self.nodes[id as usize];
        (node.older, node.newer) = (older, NONE);
        match self.nodes.get_mut(older as usize) {
            Some(older) => older.newer = id,
            None => self.oldest = id,
        }
        self.newest = id;
    }

    fn unlink(&mut self, id: u32) {
        let MapNode { older, newer, .. } = self.nodes[id as usize];
        assert!(older != id && newer != id, "an entry is in the order of use once");
        match self.nodes.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
        match self.nodes.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
    }
}

/// Returns the memory that a map of `entries_max` entries takes when it is full, in bytes.
pub(crate) fn memory_bytes(entries_max: u64) -> u64 {
    entries_max * NODE_BYTES + table_len(entries_max) * 4
}

fn table_len(entries_max: u64) -> u64 {
    entries_max * 3 / 2 + 1
}

impl MapNode {
    fn new(key_hash: KeyHash, entry: &MapEntry, base_s: u32) -> Self {
        assert!(entry.sectors < 1 << SECTOR_COUNT_BITS);
        let lifetime = EntryLifetime::until(entry.expires_at, base_s);
        let mut node =
            Self { key_hash: halves(key_hash.0), packed: [0; 2], sequence: entry.sequence, older: NONE, newer: NONE };
        node.packed =
            halves(u64::from(entry.sectors) << PLACE_BITS | u64::from(lifetime.0) << (PLACE_BITS + SECTOR_COUNT_BITS));
        node.set_place(entry.place);
        node
    }

    fn set_place(&mut self, place: MapPlace) {
        assert!(place.0 < 1 << PLACE_BITS);
        self.packed = halves(whole(self.packed) >> PLACE_BITS << PLACE_BITS | place.0);
    }

    fn entry(&self, base_s: u32) -> MapEntry {
        let packed = whole(self.packed);
        MapEntry {
            place: MapPlace(packed & ((1 << PLACE_BITS) - 1)),
            sectors: (packed >> PLACE_BITS) as u32 & ((1 << SECTOR_COUNT_BITS) - 1),
            sequence: self.sequence,
            expires_at: EntryLifetime((packed >> (PLACE_BITS + SECTOR_COUNT_BITS)) as u16).end(base_s),
        }
    }

    fn key_hash(&self) -> KeyHash {
        KeyHash(whole(self.key_hash))
    }
}

fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

fn whole([low, high]: [u32; 2]) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[cfg(test)]
mod tests;
