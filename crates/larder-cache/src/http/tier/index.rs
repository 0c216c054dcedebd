//! Where the second tier's entries are, and which keys are being changed or restored.
//!
//! Owns: the index in memory, and the lines for the journal in the order of the changes. `journal` writes them.
//! Invariant: a key that was replaced or removed since its entry was read from the store is never added. So the tier
//! has no entry that is older than the last version or removal in the store. Memory: about 50 bytes per entry.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{journal::JournalLine, recent_changes::RecentChanges};

/// The name of a pack, a file with many entries. The salt is random, so no two packs have the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PackName {
    pub(super) number: u32,
    pub(super) salt: u64,
}

/// The place of an entry's record in the short form of the index: the number of its pack, and a range within the pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackPlace {
    pub(super) pack: u32,
    pub(super) offset: u32,
    pub(super) len: u32,
}

/// The place of an entry's record: the whole name of its pack, and a range within the pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordPlace {
    pub(super) pack: PackName,
    pub(super) offset: u32,
    pub(super) len: u32,
}

/// An entry in a pack that is being filled or stored, so that the index does not lead to it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackedEntry {
    pub(super) hash: u64,
    pub(super) offset: u32,
    pub(super) len: u32,
}

/// A pack (a file with many entries) that is stored in the tier.
#[derive(Clone, Debug)]
struct StoredPack {
    salt: u64,
    bytes: u64,
    /// Hashes of the keys whose entries came with this pack. Some of the entries may have been forgotten since.
    hashes: Vec<u64>,
}

/// The place of an entry in a pack that is not stored yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WaitingPlace {
    pack: u32,
    offset: u32,
}

/// The index of the second tier: finds the record of an entry by the hash of its key.
pub(super) struct TierIndex {
    places: HashMap<u64, PackPlace>,
    packs: BTreeMap<u32, StoredPack>,
    bytes: u64,
    next_pack: u32,
    /// Lines that must still be written to the journal.
    lines: Vec<JournalLine>,
    /// Entries in packs that are not stored yet, by the hash of their key.
    waiting: HashMap<u64, WaitingPlace>,
    /// Keys that are being changed in the store, by their hash, each with the number of its changes in progress.
    changing: HashMap<u64, u32>,
    /// Hashes of the keys whose entries are being put back into the store.
    restoring: HashSet<u64>,
    /// Number of operations in progress that make all entries invalid.
    clearing_count: u32,
    /// The keys that changed recently. An entry that was read from the store before its key's change is refused.
    changes: RecentChanges,
}

impl TierIndex {
    pub(super) fn new() -> Self {
        Self {
            places: HashMap::new(),
            packs: BTreeMap::new(),
            bytes: 0,
            next_pack: 1,
            lines: Vec::new(),
            waiting: HashMap::new(),
            changing: HashMap::new(),
            restoring: HashSet::new(),
            clearing_count: 0,
            changes: RecentChanges::default(),
        }
    }

    /// Applies a line of the journal. Skips impossible packs, and entries that lie outside of their pack.
    pub(super) fn apply(&mut self, line: &JournalLine) {
        match *line {
            JournalLine::Pack { name, bytes } => {
                if name.number <= PACK_NUMBER_MAX && u32::try_from(bytes).is_ok() {
                    self.insert_pack(name, bytes);
                }
            }
            JournalLine::Entry { hash, place } => {
                let end = u64::from(place.offset) + u64::from(place.len);
                if let Some(pack) = self.packs.get_mut(&place.pack).filter(|pack| end <= pack.bytes) {
                    pack.hashes.push(hash);
                    self.places.insert(hash, place);
                }
            }
            JournalLine::Forgotten { hash } => drop(self.places.remove(&hash)),
            JournalLine::PackRemoved { pack } => self.drop_pack(pack),
        }
    }

    /// Returns the lines of a new journal that describes the whole index.
    pub(super) fn snapshot(&self) -> Vec<JournalLine> {
        let packs = self.packs.iter().map(|(&number, stored)| {
            let name = PackName { number, salt: stored.salt };
            JournalLine::Pack { name, bytes: stored.bytes }
        });
        packs.chain(self.places.iter().map(|(&hash, &place)| JournalLine::Entry { hash, place })).collect()
    }

    pub(super) fn take_lines(&mut self) -> Vec<JournalLine> {
        std::mem::take(&mut self.lines)
    }

    /// Returns where the record of a key's entry is. `None` if the tier has no entry of the key.
    pub(super) fn find(&self, hash: u64) -> Option<RecordPlace> {
        let PackPlace { pack: number, offset, len } = *self.places.get(&hash)?;
        let salt = self.packs.get(&number)?.salt;
        Some(RecordPlace { pack: PackName { number, salt }, offset, len })
    }

    /// Returns whether a key's entry is stored in the tier, or waits for that in a pack.
    pub(super) fn knows(&self, hash: u64) -> bool {
        self.places.contains_key(&hash) || self.waiting.contains_key(&hash)
    }

    pub(super) fn entry_count(&self) -> usize {
        self.places.len()
    }

    /// Returns the number of entries in packs that are not stored yet.
    pub(super) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn pack_count(&self) -> usize {
        self.packs.len()
    }

    /// Returns the names of all stored packs.
    pub(super) fn packs(&self) -> Vec<PackName> {
        self.packs.iter().map(|(&number, stored)| PackName { number, salt: stored.salt }).collect()
    }

    /// Begins a look: a read of entries from the store for the tier. Returns the moment at which it began, as a number
    /// of changes.
    ///
    /// Entries that are read before [`TierIndex::end_look`] are added with this moment. Those whose key has changed
    /// since then are refused.
    pub(super) fn begin_look(&mut self) -> u64 {
        self.changes.begin_look()
    }

    pub(super) fn end_look(&mut self, moment: u64) {
        self.changes.end_look(moment);
    }

    /// Returns the number that the next pack will get. No pack had it before.
    pub(super) fn next_pack(&self) -> u32 {
        self.next_pack
    }

    /// Begins a pack, and returns its number.
    pub(super) fn begin_pack(&mut self) -> u32 {
        let pack = self.next_pack;
        self.next_pack = pack.checked_add(1).expect("two billion packs of 16 MiB are never stored");
        pack
    }

    /// Returns whether an entry may be added that was read from the store by the look which began at `moment`. Its key
    /// must not have changed since then, and the tier must not have the entry yet.
    pub(super) fn accepts(&self, hash: u64, moment: u64) -> bool {
        let is_late = !self.changes.is_unchanged(hash, moment) || self.changing.contains_key(&hash);
        !is_late && self.clearing_count == 0 && !self.knows(hash)
    }

    /// Records that an entry is in a pack that is not stored yet. It was read by the look that began at `moment`.
    /// Returns `false` if the entry may not be added.
    pub(super) fn await_pack(&mut self, hash: u64, (pack, offset): (u32, u32), moment: u64) -> bool {
        let accepted = self.accepts(hash, moment);
        if accepted {
            self.waiting.insert(hash, WaitingPlace { pack, offset });
        }
        accepted
    }

    /// Begins a change of a key: forgets its entry, and accepts no other until the change ends. Returns whether the
    /// journal must record that.
    pub(super) fn begin_change(&mut self, hash: u64) -> bool {
        *self.changing.entry(hash).or_insert(0) += 1;
        self.changes.note(hash);
        self.forget(hash)
    }

    pub(super) fn end_change(&mut self, hash: u64) {
        self.changes.note(hash);
        let count = self.changing.get_mut(&hash).expect("a change ends only once");
        *count -= 1;
        if *count == 0 {
            self.changing.remove(&hash);
        }
    }

    /// Begins to put an entry back into the store. Returns `false` if the entry is no longer at `place`, or is already
    /// being put back.
    pub(super) fn begin_restoring(&mut self, hash: u64, place: RecordPlace) -> bool {
        self.find(hash) == Some(place) && self.restoring.insert(hash)
    }

    pub(super) fn end_restoring(&mut self, hash: u64) {
        assert!(self.restoring.remove(&hash), "an entry is put back only once at a time");
    }

    /// Returns whether the entry with this hash is being put back into the store. With `None`, returns whether any
    /// entry is.
    pub(super) fn is_restoring(&self, hash: Option<u64>) -> bool {
        hash.map_or(!self.restoring.is_empty(), |hash| self.restoring.contains(&hash))
    }

    /// Forgets the entry of a key. Returns whether the entry was in a stored pack.
    pub(super) fn forget(&mut self, hash: u64) -> bool {
        self.waiting.remove(&hash);
        let is_known = self.places.remove(&hash).is_some();
        if is_known {
            self.lines.push(JournalLine::Forgotten { hash });
        }
        is_known
    }

    /// Adds a pack that was stored. Skips entries whose keys have changed meanwhile.
    ///
    /// Returns `false`, and adds nothing, if all entries are outdated: the pack is then useless.
    pub(super) fn add_pack(&mut self, name: PackName, bytes: u64, entries: &[PackedEntry]) -> bool {
        let is_current = |entry: &&PackedEntry| {
            let place = WaitingPlace { pack: name.number, offset: entry.offset };
            self.waiting.get(&entry.hash) == Some(&place)
        };
        let current: Vec<PackedEntry> = entries.iter().filter(is_current).copied().collect();
        if current.is_empty() {
            return false;
        }
        let title = JournalLine::Pack { name, bytes };
        let lines = current.iter().map(|&PackedEntry { hash, offset, len }| JournalLine::Entry {
            hash,
            place: PackPlace { pack: name.number, offset, len },
        });
        for line in std::iter::once(title).chain(lines) {
            self.apply(&line);
            self.lines.push(line);
        }
        current.iter().for_each(|entry| _ = self.waiting.remove(&entry.hash));
        true
    }

    /// Forgets the entries of a pack that could not be stored.
    pub(super) fn give_up(&mut self, pack: u32) {
        self.waiting.retain(|_, place| place.pack != pack);
    }

    /// Removes the oldest packs until the tier has at most `bytes_max` bytes. Returns the names of the removed packs.
    pub(super) fn shrink_to(&mut self, bytes_max: u64) -> Vec<PackName> {
        let mut removed = Vec::new();
        while (self.bytes > bytes_max || self.places.len() > ENTRY_COUNT_MAX)
            && let Some((&number, stored)) = self.packs.first_key_value()
        {
            removed.push(PackName { number, salt: stored.salt });
            self.remove_pack(number);
        }
        removed
    }

    /// Removes a pack and all its entries from the index.
    pub(super) fn remove_pack(&mut self, pack: u32) {
        self.drop_pack(pack);
        self.lines.push(JournalLine::PackRemoved { pack });
    }

    /// Forgets all packs and entries, also those in packs that are not stored yet. Returns the names of the packs.
    pub(super) fn clear(&mut self) -> Vec<PackName> {
        let packs = self.packs();
        packs.iter().for_each(|name| self.remove_pack(name.number));
        assert!(self.places.is_empty() && self.bytes == 0, "every entry belongs to a pack");
        self.waiting.clear();
        self.changes.note_all();
        packs
    }

    /// Forgets all packs and entries, and accepts no others until [`TierIndex::end_clearing`]. Returns the names of the
    /// packs.
    pub(super) fn begin_clearing(&mut self) -> Vec<PackName> {
        self.clearing_count += 1;
        self.clear()
    }

    pub(super) fn end_clearing(&mut self) {
        assert!(self.clearing_count > 0, "an operation that empties the tier ends only once");
        self.clearing_count -= 1;
        self.changes.note_all();
    }

    fn insert_pack(&mut self, name: PackName, bytes: u64) {
        // A journal with the same pack twice is damaged: the later one counts.
        self.drop_pack(name.number);
        self.bytes += bytes;
        self.next_pack = self.next_pack.max(name.number + 1);
        self.packs.insert(name.number, StoredPack { salt: name.salt, bytes, hashes: Vec::new() });
    }

    fn drop_pack(&mut self, pack: u32) {
        let Some(stored) = self.packs.remove(&pack) else { return };
        self.bytes -= stored.bytes;
        for hash in stored.hashes {
            if self.places.get(&hash).is_some_and(|place| place.pack == pack) {
                self.places.remove(&hash);
            }
        }
    }
}

/// Maximum number of entries, with which the index takes about 3 GB. Above it, the oldest packs are removed.
const ENTRY_COUNT_MAX: usize = 64 << 20;
/// Maximum number of a pack. A journal with a higher number is damaged.
const PACK_NUMBER_MAX: u32 = u32::MAX / 2;

#[cfg(test)]
mod tests;
