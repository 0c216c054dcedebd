//! The index of SetMemLRU: a share of the sets in memory, with LRU eviction.
//!
//! Owns: the resident sets, and their content. Other sets are not read here. Cost per resident set: the set itself, the
//! part of its number that its chain does not imply, three links, and half a chain's head. With 40% resident, 8 ways
//! and 1 TiB, that is 8.6 bits per entry of the volume. Invariant: every resident set is in exactly one chain, and once
//! in the list of use. Source: HashCache, SetMemLRU.

use crate::{
    engine::kit::sets::{
        SetShape, UnpackedSet,
        bits::{BitCursor, PackedBits},
    },
    units::SetNumber,
};

/// Number of sets per hash chain.
const SETS_PER_CHAIN: u64 = 2;

/// The sets that are in memory, in the order of use.
pub(crate) struct ResidentSets {
    bits: PackedBits,
    /// The first slot of each hash chain.
    heads: PackedBits,
    shape: SetShape,
    widths: LinkWidths,
    capacity: u64,
    count: u64,
    most_recent: u64,
    least_recent: u64,
    entries: u64,
}

/// Widths of the fields that link the sets in memory, in bits.
#[derive(Clone, Copy)]
struct LinkWidths {
    chain_count: u64,
    quotient: u32,
    chain_link: u32,
    link: u32,
}

/// The links of a set in memory.
#[derive(Clone, Copy)]
struct ResidentLinks {
    /// Number of the set, divided by the number of chains. The remainder is the number of its chain.
    quotient: u64,
    /// The next slot of the chain. At the end of a chain, the number of the chain plus the number of slots.
    next_in_chain: u64,
    more_recent: u64,
    less_recent: u64,
}

/// Stands for no slot. Slots are numbered from 1.
const NONE: u64 = 0;

impl LinkWidths {
    fn new(set_count: u64, capacity: u64) -> Self {
        let chain_count = (capacity / SETS_PER_CHAIN).max(1);
        Self {
            chain_count,
            quotient: bits_of(set_count.saturating_sub(1) / chain_count),
            chain_link: bits_of(capacity + chain_count),
            link: bits_of(capacity),
        }
    }
}

impl ResidentSets {
    /// Creates memory for up to `capacity` of the volume's `set_count` sets.
    pub(crate) fn new(shape: SetShape, set_count: u64, capacity: u64) -> Self {
        let capacity = capacity.clamp(1, set_count.max(1));
        let widths = LinkWidths::new(set_count, capacity);
        let slot_bits = u64::from(widths.quotient + widths.chain_link + 2 * widths.link + shape.set_bits());
        Self {
            bits: PackedBits::new(capacity * slot_bits),
            heads: PackedBits::new(widths.chain_count * u64::from(widths.link)),
            shape,
            widths,
            capacity,
            count: 0,
            most_recent: NONE,
            least_recent: NONE,
            entries: 0,
        }
    }

    /// Returns the content of a set, and makes it the most recently used one. Returns `None` if the set is not in
    /// memory.
    pub(crate) fn read(&mut self, set: SetNumber) -> Option<UnpackedSet> {
        let slot = self.slot_of(set)?;
        self.unlist(slot);
        self.list(slot);
        assert_eq!(self.most_recent, slot, "what was read was used last");
        self.contents(slot)
    }

    /// Returns the content of a set without counting a use. Returns `None` if the set is not in memory.
    pub(crate) fn peek(&self, set: SetNumber) -> Option<UnpackedSet> {
        self.contents(self.slot_of(set)?)
    }

    /// Stores the content of a set. Brings the set into memory if it is not there.
    pub(crate) fn write(&mut self, set: SetNumber, contents: &UnpackedSet) {
        let slot = self.slot_of(set).unwrap_or_else(|| self.admit(set));
        self.replace(slot, contents);
        debug_assert_eq!(self.slot_of(set), Some(slot), "what was written is resident");
    }

    /// Marks the content of a set as unknown.
    pub(crate) fn forget(&mut self, set: SetNumber) {
        if let Some(slot) = self.slot_of(set) {
            self.replace(slot, &UnpackedSet::unknown(&self.shape));
            debug_assert!(self.contents(slot).is_none(), "nothing is known of what is forgotten");
        }
    }

    /// Returns which fields the sets have.
    pub(crate) fn shape(&self) -> &SetShape {
        &self.shape
    }

    /// Returns the memory that the sets and their hash chains take, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.bits.memory_bytes() + self.heads.memory_bytes()
    }

    /// Returns the number of entries in the sets in memory.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Checks three things: every set is in its chain, it is in the order of use once, and the number of entries is
    /// right.
    pub(super) fn check(&self) {
        assert!(self.count <= self.capacity);
        let mut slot = self.most_recent;
        let mut more_recent = NONE;
        let mut count = 0;
        let mut entries = 0;
        while slot != NONE {
            let links = self.links(slot);
            assert_eq!(links.more_recent, more_recent, "the list of use is linked both ways");
            let contents = UnpackedSet::unpack(&self.shape, &self.bits, self.payload_at(slot));
            contents.known().iter().for_each(UnpackedSet::check);
            entries += contents.entries();
            count += 1;
            assert!(count <= self.count, "the list of use has an end");
            (more_recent, slot) = (slot, links.less_recent);
        }
        assert_eq!((more_recent, count), (self.least_recent, self.count), "every resident set is in the list of use");
        assert_eq!(entries, self.entries, "entries are counted");
        let slot = |link: u64| Some(link).filter(|&link| self.is_slot(link));
        let chained = |chain| {
            std::iter::successors(slot(self.head(chain)), move |&at| slot(self.links(at).next_in_chain)).count() as u64
        };
        let in_chains: u64 = (0..self.widths.chain_count).map(chained).sum();
        assert_eq!(in_chains, self.count, "every resident set is in one chain");
    }

    /// Returns the number of ways of all sets that can be in memory.
    pub(super) fn way_count(&self) -> u64 {
        self.capacity * u64::from(self.shape.ways)
    }

    fn replace(&mut self, slot: u64, contents: &UnpackedSet) {
        let at = self.payload_at(slot);
        let before = UnpackedSet::unpack(&self.shape, &self.bits, at).entries();
        assert!(before <= self.entries, "the entries of a resident set are counted");
        self.entries = self.entries - before + contents.entries();
        contents.pack(&self.shape, &mut self.bits, at);
    }

    fn contents(&self, slot: u64) -> Option<UnpackedSet> {
        UnpackedSet::unpack(&self.shape, &self.bits, self.payload_at(slot)).known()
    }

    /// Returns the slot for a set that comes into memory: an unused one, or that of the least recently used set.
    fn admit(&mut self, set: SetNumber) -> u64 {
        let slot = if self.count < self.capacity {
            self.count += 1;
            self.count
        } else {
            let slot = self.least_recent;
            self.unchain(slot);
            self.unlist(slot);
            slot
        };
        assert!((1..=self.capacity).contains(&slot), "a set that becomes resident has a slot");
        let chain = set.0 % self.widths.chain_count;
        let quotient = set.0 / self.widths.chain_count;
        let links = ResidentLinks { quotient, next_in_chain: self.head(chain), more_recent: NONE, less_recent: NONE };
        self.write_links(slot, links);
        self.write_head(chain, slot);
        self.list(slot);
        slot
    }

    fn slot_of(&self, set: SetNumber) -> Option<u64> {
        let chain = set.0 % self.widths.chain_count;
        let quotient = set.0 / self.widths.chain_count;
        let mut slot = self.head(chain);
        while self.is_slot(slot) {
            let links = self.links(slot);
            if links.quotient == quotient {
                return Some(slot);
            }
            slot = links.next_in_chain;
        }
        None
    }

    fn unchain(&mut self, slot: u64) {
        let next = self.links(slot).next_in_chain;
        // A chain ends with its own number.
        let mut end = next;
        while self.is_slot(end) {
            end = self.links(end).next_in_chain;
        }
        let chain = end - self.capacity - 1;
        assert!(chain < self.widths.chain_count, "a chain ends with its own number");
        let mut before = self.head(chain);
        if before == slot {
            return self.write_head(chain, if self.is_slot(next) { next } else { NONE });
        }
        while self.links(before).next_in_chain != slot {
            before = self.links(before).next_in_chain;
        }
        self.write_links(before, ResidentLinks { next_in_chain: next, ..self.links(before) });
    }

    /// Removes a slot from the order of use.
    fn unlist(&mut self, slot: u64) {
        let ResidentLinks { more_recent, less_recent, .. } = self.links(slot);
        assert!(more_recent != slot && less_recent != slot, "a slot is in the list of use once");
        match more_recent {
            NONE => self.most_recent = less_recent,
            other => self.write_links(other, ResidentLinks { less_recent, ..self.links(other) }),
        }
        match less_recent {
            NONE => self.least_recent = more_recent,
            other => self.write_links(other, ResidentLinks { more_recent, ..self.links(other) }),
        }
    }

    /// Makes a slot the most recently used one.
    fn list(&mut self, slot: u64) {
        let before = self.most_recent;
        assert_ne!(before, slot, "a slot is in the list of use once");
        self.write_links(slot, ResidentLinks { more_recent: NONE, less_recent: before, ..self.links(slot) });
        match before {
            NONE => self.least_recent = slot,
            other => self.write_links(other, ResidentLinks { more_recent: slot, ..self.links(other) }),
        }
        self.most_recent = slot;
    }

    fn links(&self, slot: u64) -> ResidentLinks {
        let mut cursor = BitCursor::at(self.slot_at(slot));
        ResidentLinks {
            quotient: cursor.read(&self.bits, self.widths.quotient),
            next_in_chain: cursor.read(&self.bits, self.widths.chain_link),
            more_recent: cursor.read(&self.bits, self.widths.link),
            less_recent: cursor.read(&self.bits, self.widths.link),
        }
    }

    fn write_links(&mut self, slot: u64, links: ResidentLinks) {
        assert!(links.more_recent.max(links.less_recent) <= self.capacity && links.more_recent != slot);
        let mut cursor = BitCursor::at(self.slot_at(slot));
        cursor.write(&mut self.bits, self.widths.quotient, links.quotient);
        cursor.write(&mut self.bits, self.widths.chain_link, links.next_in_chain);
        cursor.write(&mut self.bits, self.widths.link, links.more_recent);
        cursor.write(&mut self.bits, self.widths.link, links.less_recent);
    }

    /// Returns the first slot of a chain. If the chain is empty, returns the number that marks its end.
    fn head(&self, chain: u64) -> u64 {
        match self.heads.read(chain * u64::from(self.widths.link), self.widths.link) {
            NONE => self.capacity + 1 + chain,
            slot => slot,
        }
    }

    fn write_head(&mut self, chain: u64, slot: u64) {
        self.heads.write(chain * u64::from(self.widths.link), self.widths.link, slot);
    }

    fn is_slot(&self, link: u64) -> bool {
        link <= self.capacity
    }

    fn link_widths(&self) -> u64 {
        u64::from(self.widths.quotient + self.widths.chain_link + 2 * self.widths.link)
    }

    fn slot_at(&self, slot: u64) -> u64 {
        (slot - 1) * (self.link_widths() + u64::from(self.shape.set_bits()))
    }

    fn payload_at(&self, slot: u64) -> u64 {
        self.slot_at(slot) + self.link_widths()
    }
}

/// Returns the number of bits that numbers up to `most` need.
fn bits_of(most: u64) -> u32 {
    u64::BITS - most.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::kit::sets::SetPlace;
    use proptest::prelude::*;

    const SHAPE: SetShape =
        SetShape { ways: 8, tag_bits: 8, generation_bits: 0, position_bits: 0, length_bits: 0, positions: 0 };

    fn set_with(tag: u16) -> UnpackedSet {
        let mut set = UnpackedSet::empty(&SHAPE);
        set.put(3, tag, 0, SetPlace::default());
        set
    }

    proptest! {
        /// Checks against a simple list that the same sets are in memory, with the same content, after any operations.
        #[test]
        fn the_least_recently_used_set_gives_way(operations in prop::collection::vec((0..40_u64, 1..200_u16, 0..3_u8), 1..300)) {
            let mut resident = ResidentSets::new(SHAPE, 40, 9);
            let mut model: Vec<(SetNumber, Option<UnpackedSet>)> = Vec::new();
            for (set, tag, operation) in operations {
                let set = SetNumber(set);
                let known = model.iter().position(|&(other, _)| other == set);
                match operation {
                    0 => {
                        let contents = set_with(tag);
                        resident.write(set, &contents);
                        match known {
                            Some(at) => model[at].1 = Some(contents),
                            None => model.insert(0, (set, Some(contents))),
                        }
                        model.truncate(9);
                    }
                    1 => {
                        let expected = known.and_then(|at| {
                            let used = model.remove(at);
                            model.insert(0, used);
                            used.1
                        });
                        prop_assert_eq!(resident.read(set), expected);
                    }
                    _ => {
                        resident.forget(set);
                        known.into_iter().for_each(|at| model[at].1 = None);
                    }
                }
                for set in (0..40).map(SetNumber) {
                    let expected = model.iter().find(|&&(other, _)| other == set).and_then(|known| known.1);
                    prop_assert_eq!(resident.peek(set), expected);
                }
                let entries = model.iter().filter(|known| known.1.is_some()).count() as u64;
                prop_assert_eq!(resident.entries(), entries);
            }
        }
    }

    #[test]
    fn forty_percent_of_a_terabyte_take_less_than_nine_bits_an_entry() {
        // Computed like in the constructor, without allocating the memory.
        let set_count = 1_u64 << 24;
        let ways = 8.0;
        let capacity = set_count * 40 / 100;
        let widths = LinkWidths::new(set_count, capacity);
        let slot_bits = u64::from(widths.quotient + widths.chain_link + 2 * widths.link + SHAPE.set_bits());
        let bits = capacity * slot_bits + widths.chain_count * u64::from(widths.link);
        let per_entry = bits as f64 / (set_count as f64 * ways);
        assert!(per_entry < 8.8, "{per_entry}");
    }
}
