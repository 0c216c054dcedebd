//! Sets whose bytes on the volume must not be trusted, because a write to them failed.
//!
//! Owns: one bit per set, and which suspect set is examined next. I/O and the content of sets are elsewhere. Invariant:
//! a suspect set stays suspect until it is reported as written. Cost: no memory while no set is suspect, otherwise one
//! bit per set.

use crate::units::SetNumber;

/// The sets of a volume whose bytes must not be trusted.
pub(crate) struct SuspectSets {
    set_count: u64,
    /// One bit per set; 1 means that the set's bytes must not be trusted. Empty while there is no such set.
    words: Vec<u64>,
    count: u64,
    /// Number of the set at which the next search begins.
    cursor: u64,
}

impl SuspectSets {
    /// Creates an empty list for a volume of `set_count` sets.
    pub(crate) fn new(set_count: u64) -> Self {
        Self { set_count, words: Vec::new(), count: 0, cursor: 0 }
    }

    /// Marks `set` as suspect, so that its bytes are not trusted, because a write to it failed.
    pub(crate) fn insert(&mut self, set: SetNumber) {
        assert!(set.0 < self.set_count);
        if self.words.is_empty() {
            self.words = vec![0; self.set_count.div_ceil(SETS_PER_WORD) as usize];
        }
        let word = &mut self.words[(set.0 / SETS_PER_WORD) as usize];
        self.count += u64::from(*word & bit(set) == 0);
        *word |= bit(set);
    }

    /// Marks `set` as trusted again, because it was written and now agrees with the index.
    pub(crate) fn remove(&mut self, set: SetNumber) {
        if !self.contains(set) {
            return;
        }
        assert!(self.count > 0, "a suspect set was counted");
        self.words[(set.0 / SETS_PER_WORD) as usize] &= !bit(set);
        self.count -= 1;
        if self.count == 0 {
            self.words = Vec::new();
        }
    }

    pub(crate) fn contains(&self, set: SetNumber) -> bool {
        self.words.get((set.0 / SETS_PER_WORD) as usize).is_some_and(|word| word & bit(set) != 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns a suspect set, one whose bytes must not be trusted; `None` if there is none. Successive calls go through
    /// all suspect sets in turn.
    pub(crate) fn next(&mut self) -> Option<SetNumber> {
        let set = self.first_from(self.cursor).or_else(|| self.first_from(0))?;
        assert!(set < self.set_count && self.count > 0, "set {set} of {} is suspect", self.set_count);
        self.cursor = set + 1;
        Some(SetNumber(set))
    }

    /// Returns the memory that the list takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.words.len() as u64 * size_of::<u64>() as u64
    }

    /// Returns the first suspect set whose number is at least `from`.
    fn first_from(&self, from: u64) -> Option<u64> {
        let first_word = (from / SETS_PER_WORD) as usize;
        let words = self.words.iter().enumerate().skip(first_word);
        words.into_iter().find_map(|(at, &word)| {
            let not_before = if at == first_word { u64::MAX << (from % SETS_PER_WORD) } else { u64::MAX };
            let left = word & not_before;
            (left != 0).then(|| at as u64 * SETS_PER_WORD + u64::from(left.trailing_zeros()))
        })
    }
}

const SETS_PER_WORD: u64 = u64::BITS as u64;

fn bit(set: SetNumber) -> u64 {
    1 << (set.0 % SETS_PER_WORD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspect_sets_come_up_in_turn_until_they_are_written() {
        let mut suspects = SuspectSets::new(1000);
        assert_eq!((suspects.next(), suspects.memory_bytes()), (None, 0));
        [999, 3, 64, 3].into_iter().for_each(|set| suspects.insert(SetNumber(set)));
        assert_eq!(suspects.count, 3);
        let turns: Vec<_> = (0..5).map(|_| suspects.next().unwrap().0).collect();
        assert_eq!(turns, [3, 64, 999, 3, 64]);
        suspects.remove(SetNumber(64));
        suspects.remove(SetNumber(65));
        assert!(suspects.contains(SetNumber(3)) && !suspects.contains(SetNumber(64)) && !suspects.is_empty());
        [3, 999].into_iter().for_each(|set| suspects.remove(SetNumber(set)));
        assert!(suspects.is_empty() && suspects.next().is_none());
        assert_eq!(suspects.memory_bytes(), 0, "no memory without suspects");
    }
}
