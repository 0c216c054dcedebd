//! The index of the entries in the front of `tiny`: 64 bits each, sorted by hash.
//!
//! A slot has 32 bits of the key's hash, the record's position in the front, and its state. The table is a sorted open
//! hash table: a slot is at its home position or behind it, without a gap, and all slots are in the order of their
//! hashes. So entries of one set are adjacent. Records with the same 32 bits all stay (they may be two keys, or two
//! versions of one), the newer behind the older. Invariant: `home(i) <= i` for every slot, with no empty slot between.
//! Cost: 8 bytes per slot; a lookup passes a few slots. Idea: Kangaroo's KLog index, which finds the entries of a set.

/// The state of a record in the front, the log before the sets, as the index has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrontState {
    Unused,
    Hit,
    /// The record is a tombstone: its key was removed.
    Removed,
}

/// A slot of the index: a record in the front, the log before the sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrontSlot {
    /// The high 32 bits of the key's hash.
    pub(crate) prefix: u32,
    /// Position of the record in the front, the log before the sets, in granules from its start.
    pub(crate) granule: u32,
    pub(crate) state: FrontState,
}

/// The index of the records in the front, the log before the sets.
pub(crate) struct FrontIndex {
    slots: Vec<u64>,
    /// Number of slots that can be the home of a key. The slots behind them take entries that were displaced from their
    /// homes.
    home_count: u64,
    len: usize,
}

/// The error if the index is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexFull;

impl FrontIndex {
    /// Number of different positions that a slot can express.
    pub(crate) const GRANULE_COUNT_MAX: u64 = 1 << GRANULE_BITS;

    /// Creates an index for up to `entries` entries.
    pub(crate) fn new(entries: u64) -> Self {
        let home_count = (entries * 100 / FILL_PERCENT).max(OVERHANG);
        Self { slots: vec![0; (home_count + OVERHANG) as usize], home_count, len: 0 }
    }

    /// Adds a slot. It comes behind the older slots with the same prefix.
    pub(crate) fn insert(&mut self, slot: FrontSlot) -> Result<(), IndexFull> {
        if self.is_full() {
            return Err(IndexFull);
        }
        self.insert_in_reserve(slot)
    }

    /// Adds a slot although [`Self::is_full`] is true. Uses slots that otherwise stay free, so that searches are short.
    pub(crate) fn insert_in_reserve(&mut self, slot: FrontSlot) -> Result<(), IndexFull> {
        let mut at = self.home(slot.prefix);
        while self.slots[at] != 0 && prefix_of(self.slots[at]) <= slot.prefix {
            at += 1;
            if at == self.slots.len() {
                return Err(IndexFull);
            }
        }
        let end = (at..self.slots.len()).find(|&index| self.slots[index] == 0).ok_or(IndexFull)?;
        let before = at.checked_sub(1).map_or(0, |before| self.slots[before]);
        assert!(prefix_of(before) <= slot.prefix, "slots stay in the order of their hashes");
        self.slots.copy_within(at..end, at + 1);
        self.slots[at] = pack(slot);
        self.len += 1;
        assert!(self.len <= self.slots.len(), "each slot is in the table");
        Ok(())
    }

    /// Removes the slot with this prefix and position. Returns whether there was such a slot.
    pub(crate) fn remove(&mut self, prefix: u32, granule: u32) -> bool {
        let Some(at) = self.position(prefix, granule) else { return false };
        let mut end = at + 1;
        while end < self.slots.len() && self.slots[end] != 0 && self.home(prefix_of(self.slots[end])) < end {
            end += 1;
        }
        assert!(self.len > 0, "what is removed was counted");
        self.slots.copy_within(at + 1..end, at);
        self.slots[end - 1] = 0;
        self.len -= 1;
        true
    }

    /// Sets the state of the slot with this prefix and position.
    pub(crate) fn set_state(&mut self, prefix: u32, granule: u32, state: FrontState) {
        if let Some(at) = self.position(prefix, granule) {
            self.slots[at] = pack(FrontSlot { prefix, granule, state });
            debug_assert_eq!(self.position(prefix, granule), Some(at), "a slot stays where it is found");
        }
    }

    /// Returns the slots with prefixes from `first` to `last`, in ascending order. Slots with the same prefix are
    /// ordered by age, the oldest first.
    pub(crate) fn range(&self, first: u32, last: u32) -> impl Iterator<Item = FrontSlot> {
        let from = self.home(first);
        let last_home = self.home(last);
        self.slots[from..]
            .iter()
            .enumerate()
            .take_while(move |&(at, &slot)| if slot == 0 { from + at <= last_home } else { prefix_of(slot) <= last })
            .filter(move |&(_, &slot)| slot != 0 && prefix_of(slot) >= first)
            .map(|(_, &slot)| unpack(slot))
    }

    /// Returns the slot with this prefix and position; `None` if there is none.
    pub(crate) fn find(&self, prefix: u32, granule: u32) -> Option<FrontSlot> {
        self.position(prefix, granule).map(|at| unpack(self.slots[at]))
    }

    /// Returns whether no further entry should be added, because searches would become long.
    pub(crate) fn is_full(&self) -> bool {
        self.len as u64 * 100 >= self.home_count * FILL_PERCENT
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.slots.len() as u64 * 8
    }

    /// Checks the number and the order of slots, and that there is no gap between a slot and its home.
    pub(super) fn check(&self) {
        let mut count = 0;
        let mut gap_end = 0;
        let mut before = 0;
        for (at, &slot) in self.slots.iter().enumerate() {
            if slot == 0 {
                gap_end = at + 1;
                continue;
            }
            let prefix = prefix_of(slot);
            assert!(prefix >= before, "slots are sorted");
            let home = self.home(prefix);
            assert!(
                (gap_end..=at).contains(&home),
                "slot {at} of home {home} is found behind a gap that ends at {gap_end}"
            );
            (before, count) = (prefix, count + 1);
        }
        assert_eq!(count, self.len, "slots are counted");
    }

    /// Returns the number of slots, whether used or not.
    pub(super) fn slot_count(&self) -> u64 {
        self.slots.len() as u64
    }

    fn position(&self, prefix: u32, granule: u32) -> Option<usize> {
        let from = self.home(prefix);
        (from..self.slots.len())
            .take_while(|&at| self.slots[at] != 0 && prefix_of(self.slots[at]) <= prefix)
            .find(|&at| prefix_of(self.slots[at]) == prefix && unpack(self.slots[at]).granule == granule)
    }

    fn home(&self, prefix: u32) -> usize {
        ((u64::from(prefix) * self.home_count) >> u32::BITS) as usize
    }
}

const GRANULE_BITS: u32 = 30;
const FILL_PERCENT: u64 = 80;
/// Number of slots behind the last home.
const OVERHANG: u64 = 64;
const STATE_UNUSED: u64 = 1;
const STATE_HIT: u64 = 2;
const STATE_REMOVED: u64 = 3;

fn prefix_of(slot: u64) -> u32 {
    (slot >> u32::BITS) as u32
}

/// Packs a slot into a word. No state is packed as 0, so the word is never 0.
fn pack(slot: FrontSlot) -> u64 {
    assert!(u64::from(slot.granule) < FrontIndex::GRANULE_COUNT_MAX);
    let state = match slot.state {
        FrontState::Unused => STATE_UNUSED,
        FrontState::Hit => STATE_HIT,
        FrontState::Removed => STATE_REMOVED,
    };
    u64::from(slot.prefix) << u32::BITS | state << GRANULE_BITS | u64::from(slot.granule)
}

fn unpack(slot: u64) -> FrontSlot {
    let state = match slot >> GRANULE_BITS & 3 {
        STATE_REMOVED => FrontState::Removed,
        STATE_HIT => FrontState::Hit,
        _ => FrontState::Unused,
    };
    FrontSlot { prefix: prefix_of(slot), granule: (slot & ((1 << GRANULE_BITS) - 1)) as u32, state }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slot(prefix: u32, granule: u32) -> FrontSlot {
        FrontSlot { prefix, granule, state: FrontState::Unused }
    }

    proptest! {
        /// Guards against an entry that the index loses or finds under another hash.
        #[test]
        fn the_table_does_what_a_sorted_list_does(
            steps in prop::collection::vec((any::<bool>(), 0..40_u32, 0..6_u32), 1..400),
            spread in prop_oneof![Just(1_u32), Just(1 << 20), Just(100_000_000)],
        ) {
            let mut index = FrontIndex::new(100);
            let mut model: Vec<FrontSlot> = Vec::new();
            for (insert, key, granule) in steps {
                let new = slot(key.wrapping_mul(spread), granule);
                if insert && !model.contains(&new) {
                    if index.insert(new).is_ok() {
                        let at = model.partition_point(|known| known.prefix <= new.prefix);
                        model.insert(at, new);
                    } else {
                        prop_assert!(model.len() >= 60, "{}", model.len());
                    }
                } else {
                    let known = model.iter().position(|known| *known == new);
                    prop_assert_eq!(index.remove(new.prefix, new.granule), known.is_some());
                    if let Some(at) = known {
                        model.remove(at);
                    }
                }
                prop_assert_eq!(index.len(), model.len());
            }
            prop_assert_eq!(&index.range(0, u32::MAX).collect::<Vec<_>>(), &model);
            for known in &model {
                prop_assert_eq!(index.find(known.prefix, known.granule), Some(*known));
                let same: Vec<_> = model.iter().filter(|other| other.prefix == known.prefix).copied().collect();
                prop_assert_eq!(index.range(known.prefix, known.prefix).collect::<Vec<_>>(), same);
            }
        }
    }

    #[test]
    fn states_stay_with_their_entry() {
        let mut index = FrontIndex::new(100);
        index.insert(slot(7, 1)).unwrap();
        index.insert(slot(7, 2)).unwrap();
        index.set_state(7, 1, FrontState::Hit);
        index.set_state(7, 2, FrontState::Removed);
        let states: Vec<_> = index.range(7, 7).map(|slot| slot.state).collect();
        assert_eq!(states, [FrontState::Hit, FrontState::Removed]);
    }

    #[test]
    fn a_slot_takes_eight_bytes() {
        let index = FrontIndex::new(1_000_000);
        assert!(index.memory_bytes() * 8 <= 1_000_000 * 81);
    }
}
