//! The keys that changed while entries of the store are being read for the second tier.
//!
//! Owns: the number of each change, and of the last change of each key since the oldest look in progress. Invariant: a
//! look that began before a change of a key sees it, and no change of another key. Without a look, nothing is kept.
//! Memory: 16 bytes for each key that changed, of at most [`KEY_COUNT_MAX`] keys; beyond it, looks in progress see
//! everything as changed.

use std::collections::{BTreeMap, HashMap};

/// The keys that changed since the oldest look in progress began. A look is a read of entries from the store for the
/// tier.
#[derive(Default)]
pub(super) struct RecentChanges {
    /// Number of changes of keys so far.
    count: u64,
    /// Number of a change: up to it, every key counts as changed.
    floor: u64,
    last: HashMap<u64, u64>,
    /// The looks in progress (reads of entries from the store), by the number of changes when they began. Several may
    /// have the same number.
    looks: BTreeMap<u64, u32>,
}

impl RecentChanges {
    /// Begins a look, a read of entries from the store. Returns its moment: the number of changes so far.
    pub(super) fn begin_look(&mut self) -> u64 {
        *self.looks.entry(self.count).or_default() += 1;
        self.count
    }

    pub(super) fn end_look(&mut self, moment: u64) {
        let count = self.looks.get_mut(&moment).expect("a look ends only once");
        *count -= 1;
        if *count == 0 {
            self.looks.remove(&moment);
        }
        if self.looks.is_empty() {
            self.last = HashMap::new();
        }
    }

    /// Returns whether a key has not changed since `moment`, at which a look (a read of entries from the store) began.
    /// The look must still be in progress.
    pub(super) fn is_unchanged(&self, hash: u64, moment: u64) -> bool {
        debug_assert!(self.looks.contains_key(&moment), "the look is in progress");
        moment >= self.floor && self.last.get(&hash).is_none_or(|number| *number <= moment)
    }

    /// Records a change of a key.
    pub(super) fn note(&mut self, hash: u64) {
        self.count += 1;
        let Some((&oldest, _)) = self.looks.first_key_value() else { return };
        self.last.insert(hash, self.count);
        if self.last.len() > KEY_COUNT_MAX {
            self.last.retain(|_, number| *number > oldest);
            if self.last.len() > KEY_COUNT_MAX / 2 {
                self.note_all();
            }
        }
    }

    /// Records a change of every key.
    pub(super) fn note_all(&mut self) {
        self.count += 1;
        self.floor = self.count;
        self.last.clear();
    }
}

/// Maximum number of keys whose changes are remembered. Many changes fit, because a look (a read of entries) lasts only
/// about a second.
const KEY_COUNT_MAX: usize = 1 << 18;

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards against refusing evicted entries because other keys have changed.
    #[test]
    fn change_is_seen_by_looks_in_progress_at_its_key_only() {
        let mut changes = RecentChanges::default();
        let before = changes.begin_look();
        (0..100_000).for_each(|hash| changes.note(hash));
        let after = changes.begin_look();
        assert!(changes.is_unchanged(100_000, before) && !changes.is_unchanged(7, before));
        assert!(changes.is_unchanged(7, after));
        changes.end_look(before);
        changes.note_all();
        assert!(!changes.is_unchanged(100_000, after));
        changes.end_look(after);
        assert!(changes.last.is_empty() && changes.looks.is_empty());
        let last = changes.begin_look();
        assert!(changes.is_unchanged(7, last));
    }

    #[test]
    fn too_many_changes_outdate_looks_in_progress_and_stay_bounded() {
        let mut changes = RecentChanges::default();
        let moment = changes.begin_look();
        (0..3 * KEY_COUNT_MAX as u64).for_each(|hash| changes.note(hash));
        assert!(changes.last.len() <= KEY_COUNT_MAX);
        assert!(!changes.is_unchanged(u64::MAX, moment));
        let moment = changes.begin_look();
        assert!(changes.is_unchanged(u64::MAX, moment));
    }
}
