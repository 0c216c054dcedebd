//! The slots that may belong to a key: mostly none or one.
//!
//! A single slot needs no allocation. Slots are in the order of the last sort.

use super::IndexSlot;
use crate::units::Sector;

/// The slots of one address, which may belong to a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotMatches {
    first: Option<IndexSlot>,
    more: Vec<IndexSlot>,
}

impl SlotMatches {
    /// Sorts the slots by `number`, the highest first.
    pub(crate) fn sort_descending<N: Ord>(&mut self, number: impl Fn(&IndexSlot) -> N) {
        let Some(first) = self.first.take() else { return };
        if self.more.is_empty() {
            self.first = Some(first);
            return;
        }
        self.more.push(first);
        self.more.sort_by_key(number);
        self.first = self.more.pop();
        assert!(self.first.is_some() && !self.more.is_empty(), "of several all are kept");
        self.more.reverse();
    }

    /// Returns the slot if there is exactly one; otherwise returns `None`.
    pub(crate) fn only(&self) -> Option<IndexSlot> {
        self.first.filter(|_| self.more.is_empty())
    }

    /// Returns the slot whose record is at `position`; `None` if there is none.
    pub(crate) fn at(&self, position: Sector) -> Option<IndexSlot> {
        self.iter().find(|slot| slot.position == position)
    }

    /// Returns whether there is no slot.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Returns the slots in the order of the last sort.
    pub(crate) fn iter(&self) -> impl Iterator<Item = IndexSlot> + '_ {
        self.first.into_iter().chain(self.more.iter().copied())
    }
}

impl From<Option<IndexSlot>> for SlotMatches {
    fn from(first: Option<IndexSlot>) -> Self {
        Self { first, more: Vec::new() }
    }
}

impl FromIterator<IndexSlot> for SlotMatches {
    fn from_iter<T: IntoIterator<Item = IndexSlot>>(slots: T) -> Self {
        let mut slots = slots.into_iter();
        Self { first: slots.next(), more: slots.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::log::index::SizeClass;

    fn slot(position: u64) -> IndexSlot {
        IndexSlot { position: Sector(position), size: SizeClass::holding(1), hits: 0, short_lived: false }
    }

    #[test]
    fn matches_come_in_the_order_they_are_sorted_in() {
        for positions in [vec![], vec![3], vec![2, 9], vec![4, 1, 7, 5]] {
            let mut matches: SlotMatches = positions.iter().map(|&position| slot(position)).collect();
            matches.sort_descending(|slot| slot.position.0);
            let mut expected = positions.clone();
            expected.sort_unstable_by(|one, other| other.cmp(one));
            assert_eq!(matches.iter().map(|slot| slot.position.0).collect::<Vec<_>>(), expected);
            assert_eq!(matches.only().is_some(), positions.len() == 1);
            assert!(positions.iter().all(|&position| matches.at(Sector(position)).is_some()));
        }
    }
}
