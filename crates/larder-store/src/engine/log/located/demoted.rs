//! Positions that do not fit in memory and wait to be written to the position file.
//!
//! Owns: the waiting positions, in the order of their sets, and the exclusive right to write them. I/O is elsewhere.
//! Invariant: a position is removed only when it is written or replaced, or when its entry is gone. So if an entry's
//! position is neither in its set nor here, it is in the file. Limit: twice [`DemotedPlaces::new`]'s room, plus
//! positions loaded at start and those of records that are not yet on the device.

use crate::sync::IgnorePoison;
use crate::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    units::{Sector, SetNumber},
};
use std::collections::BTreeMap;

/// Bytes of memory that a waiting position takes, including the overhead of the tree.
const WAITING_BYTES: u64 = 40;
/// Maximum number of positions in a batch.
const BATCH: usize = 1024;

/// A position in sectors, and the way in which the set has the position's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WayPosition {
    pub(crate) way: usize,
    pub(crate) position: u64,
}

pub(crate) struct DemotedPlaces {
    waiting: Mutex<WaitingPlace>,
    room: usize,
    is_writing: AtomicBool,
    /// Number of times that the position file was written.
    version: AtomicU64,
}

#[derive(Default)]
struct WaitingPlace {
    /// The waiting positions, in the order of their sets and ways.
    places: BTreeMap<(SetNumber, usize), u64>,
    /// Set and way at which the last batch ended and the next batch begins.
    hand: (SetNumber, usize),
    /// Number of waiting positions whose records could still move when a batch was last taken.
    unsettled_count: usize,
    is_loading: bool,
}

/// Positions that are being written to the position file. No other task writes positions while this exists.
pub(crate) struct DemotedBatch<'a> {
    demoted: &'a DemotedPlaces,
    /// The positions, in the order of their sets.
    pub(crate) places: Vec<(SetNumber, WayPosition)>,
}

impl Drop for DemotedBatch<'_> {
    fn drop(&mut self) {
        self.demoted.is_writing.store(false, Ordering::Release);
    }
}

impl DemotedPlaces {
    /// Creates an empty list. Once `room` positions wait, a write is due.
    pub(crate) fn new(room: usize) -> Self {
        let waiting = Mutex::new(WaitingPlace::default());
        Self { waiting, room, is_writing: AtomicBool::new(false), version: AtomicU64::new(0) }
    }

    /// Adds a position of an entry in `set`. Returns `false` if the list is full.
    pub(super) fn put(&self, set: SetNumber, place: WayPosition) -> bool {
        let mut waiting = self.lock();
        if waiting.places.len() >= self.room * 2 + waiting.unsettled_count && !waiting.is_loading {
            return false;
        }
        waiting.places.insert((set, place.way), place.position);
        true
    }

    pub(super) fn get(&self, set: SetNumber, way: usize) -> Option<u64> {
        self.lock().places.get(&(set, way)).copied()
    }

    /// Replaces the waiting position `from` of a way by `to`. Returns `false` if `from` is not waiting.
    pub(super) fn relocate(&self, set: SetNumber, way: usize, from: u64, to: u64) -> bool {
        let mut waiting = self.lock();
        let position = waiting.places.get_mut(&(set, way)).filter(|position| **position == from);
        position.map(|position| *position = to).is_some()
    }

    pub(super) fn remove(&self, set: SetNumber, way: usize) {
        self.lock().places.remove(&(set, way));
    }

    pub(super) fn set_loading(&self, is_loading: bool) {
        self.lock().is_loading = is_loading;
    }

    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(super) fn is_writing(&self) -> bool {
        self.is_writing.load(Ordering::Acquire)
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.room as u64 * 2 * WAITING_BYTES
    }

    /// Returns whether so many positions wait that a write is worth its cost.
    pub(super) fn is_due(&self) -> bool {
        self.lock().places.len() >= self.room
    }

    /// Returns whether so many positions wait that a write is worth its cost, and the records of some of them can
    /// probably no longer move.
    pub(super) fn is_batch_likely(&self) -> bool {
        let waiting = self.lock();
        // Half of the room remains for the time until the records are written.
        waiting.places.len() >= self.room + waiting.unsettled_count.min(self.room / 2)
    }

    /// Returns the positions to write now; `None` if too few wait or another task is writing. Leaves out positions of
    /// records that may still move: when such a record moves, an older version of its entry can get the position, and
    /// lookups would find the older version.
    pub(super) fn batch(&self, may_move: impl Fn(Sector) -> bool) -> Option<DemotedBatch<'_>> {
        let mut waiting = self.lock();
        if waiting.places.len() < self.room || self.is_writing.swap(true, Ordering::AcqRel) {
            return None;
        }
        let after = waiting.places.range(waiting.hand..).chain(waiting.places.range(..waiting.hand));
        let is_settled = |(_, position): &(&_, &u64)| !may_move(Sector(**position));
        let settled = after.filter(is_settled).take(BATCH);
        let mut places: Vec<_> = settled.map(|(&key, &position)| (key, position)).collect();
        waiting.unsettled_count = if places.len() < BATCH { waiting.places.len() - places.len() } else { 0 };
        if places.is_empty() {
            self.is_writing.store(false, Ordering::Release);
            return None;
        }
        waiting.hand = places.last().map_or((SetNumber(0), 0), |&((set, way), _)| (set, way + 1));
        places.sort_unstable();
        let places = places.into_iter().map(|((set, way), position)| (set, WayPosition { way, position })).collect();
        Some(DemotedBatch { demoted: self, places })
    }

    /// Notes that the position file now contains the positions in `places`.
    pub(super) fn written(&self, places: &[(SetNumber, WayPosition)]) {
        let mut waiting = self.lock();
        self.version.fetch_add(1, Ordering::AcqRel);
        for &(set, WayPosition { way, position }) in places {
            if waiting.places.get(&(set, way)) == Some(&position) {
                waiting.places.remove(&(set, way));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, WaitingPlace> {
        self.waiting.lock().ignore_poison()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(position: u64) -> WayPosition {
        WayPosition { way: 3, position }
    }

    #[test]
    fn a_place_given_anew_while_it_was_written_waits_on() {
        let demoted = DemotedPlaces::new(2);
        assert!(demoted.put(SetNumber(1), place(10)) && demoted.batch(|_| false).is_none(), "not enough waits");
        assert!(demoted.put(SetNumber(2), place(20)));
        let batch = demoted.batch(|_| false).unwrap();
        assert!(demoted.batch(|_| false).is_none(), "one at a time");
        assert!(demoted.put(SetNumber(2), place(21)));
        demoted.written(&batch.places);
        assert_eq!(
            (demoted.get(SetNumber(1), 3), demoted.get(SetNumber(2), 3), demoted.version()),
            (None, Some(21), 1)
        );
    }

    /// Guards against a lookup that uses an older record of a key, although the position of a newer one waits in
    /// memory.
    #[test]
    fn only_the_place_that_waits_is_followed_when_its_record_moves() {
        let demoted = DemotedPlaces::new(2);
        assert!(demoted.put(SetNumber(1), place(10)));
        demoted.relocate(SetNumber(1), 3, 11, 12);
        assert_eq!(demoted.get(SetNumber(1), 3), Some(10));
        demoted.relocate(SetNumber(1), 3, 10, 12);
        assert_eq!(demoted.get(SetNumber(1), 3), Some(12));
    }

    /// Guards against a lookup that finds an older version of an entry at the position from which a newer version has
    /// moved.
    #[test]
    fn a_position_waits_until_its_record_cannot_move() {
        let demoted = DemotedPlaces::new(2);
        assert!(demoted.put(SetNumber(1), place(10)) && demoted.put(SetNumber(2), place(20)));
        assert!(demoted.batch(|_| true).is_none() && demoted.is_due() && !demoted.is_batch_likely());
        let batch = demoted.batch(|position| position == Sector(10)).expect("one is settled");
        assert_eq!(batch.places, [(SetNumber(2), place(20))]);
        drop(batch);
        assert_eq!(demoted.batch(|_| false).map(|batch| batch.places.len()), Some(2), "both are settled now");
        // Positions that cannot be written yet take no room from others.
        assert!((3..=4).all(|set| demoted.put(SetNumber(set), place(set))) && !demoted.put(SetNumber(5), place(5)));
        assert!(demoted.batch(|_| true).is_none() && demoted.put(SetNumber(5), place(5)));
    }

    #[test]
    fn what_waits_is_bounded_but_at_start() {
        let demoted = DemotedPlaces::new(1);
        assert!(
            demoted.put(SetNumber(1), place(1))
                && demoted.put(SetNumber(2), place(2))
                && !demoted.put(SetNumber(3), place(3))
        );
        demoted.set_loading(true);
        assert!(demoted.put(SetNumber(3), place(3)));
    }
}
