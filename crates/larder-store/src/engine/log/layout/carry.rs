//! Carries records of groups that still grow over to the next unit, so that a page's entries are stored next to each
//! other however many pages are fetched at once, and however long each takes.
//!
//! The open unit is the buffer of all groups: when it is due or full, complete groups are written, and growing ones
//! become the first records of the next unit. Owns: the times of groups, and the decision which of them still grow.
//! Invariants: a carried record keeps its order to other records of its key. A flush carries nothing. A unit keeps room
//! for new records, because at most half of it is carried. Cost: a copy of the carried records in memory, up to an
//! eighth of each segment, which stays empty, and up to [`VIEW_MAX`] and two windows until a record is written.
//! Source: HashCache (NSDI 2009) buffers each group.

use super::{
    AppendRole, LogState, OpenSegment, OpenUnit, SEQUENCE_LAST, UnitStart, buffers::buffer_of, open::CutRecord,
    syncing::unsynced_count_max,
};
use crate::{
    clock::ClockMoment,
    format::{SegmentRow, unit::unit_header_bytes},
};
use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

/// Longest time from a group's first record until it is written. Page views of up to ten seconds are stored together.
const VIEW_MAX: Duration = Duration::from_secs(12);
/// Divisor of a unit's length that gives the most bytes carried over.
const CARRIED_DIVISOR: u64 = 2;
/// Divisor of a segment's length that gives the most bytes carried over from its end.
const LEFT_EMPTY_DIVISOR: u64 = 8;

/// The groups with records in the open unit.
pub(super) struct OpenGroups {
    /// Time that a group grows after its last record.
    window: Duration,
    times: HashMap<u32, GroupTimes>,
}

#[derive(Clone, Copy)]
struct GroupTimes {
    first_at: Duration,
    last_at: Duration,
}

impl OpenGroups {
    pub(super) fn new(window: Duration) -> Self {
        Self { window, times: HashMap::new() }
    }

    /// Notes that a record of `group` was appended; 0 is none.
    pub(super) fn note(&mut self, group: u32, now: Duration) {
        if group != 0 && !self.window.is_zero() {
            let times = self.times.entry(group).or_insert(GroupTimes { first_at: now, last_at: now });
            assert!(times.first_at <= now, "time does not go back");
            times.last_at = now;
        }
    }

    /// Returns the groups of a unit's records, given with their lengths, that still grow. The newest are chosen if they
    /// have more than `bytes_max` together. Forgets the others.
    fn take_growing(
        &mut self,
        records: impl Iterator<Item = (u32, u64)>,
        now: Duration,
        bytes_max: u64,
    ) -> HashSet<u32> {
        let window = self.window;
        self.times.retain(|_, times| now < times.last_at + window && now < times.first_at + VIEW_MAX);
        let mut bytes_of: HashMap<u32, u64> = HashMap::new();
        for (group, len_bytes) in records.filter(|(group, _)| self.times.contains_key(group)) {
            *bytes_of.entry(group).or_default() += len_bytes;
        }
        let mut newest_first: Vec<_> = bytes_of.into_iter().collect();
        newest_first.sort_unstable_by_key(|(group, _)| (std::cmp::Reverse(self.times[group].first_at), *group));
        let mut left_bytes = bytes_max;
        let mut growing = HashSet::new();
        for (group, len_bytes) in newest_first {
            let Some(left) = left_bytes.checked_sub(len_bytes) else { break };
            left_bytes = left;
            growing.insert(group);
        }
        self.times.retain(|group, _| growing.contains(group));
        assert_eq!(self.times.len(), growing.len(), "a group that grows has its times");
        growing
    }
}

impl LogState {
    /// Seals the open units, which are due, except for the records of growing groups.
    pub(crate) fn seal_due_unit(&mut self, now: ClockMoment) {
        SegmentRow::ALL.into_iter().for_each(|generation| self.seal_complete_of(generation, false, now));
    }

    /// Seals the open unit except for the records of growing groups, which begin the next unit. With `ends_segment`,
    /// the segment is sealed too, and the next unit is in a new one. Without growing groups, seals the unit only.
    pub(super) fn seal_complete_of(&mut self, generation: SegmentRow, ends_segment: bool, now: ClockMoment) {
        let growing = self.growing_groups(generation, ends_segment, now.at);
        if growing.is_empty() || !self.may_open_segment() {
            return self.seal_unit_of(generation);
        }
        let open = self.open[generation as usize].as_mut().expect("its unit has groups");
        let is_growing = |group: u32| growing.contains(&group);
        let (moved, count) = open.gather_groups(&self.geometry, self.volume, &mut self.spare, &is_growing);
        self.moved.push(moved);
        let unit = open.unit.as_mut().expect("it has groups");
        if count == unit.record_count() {
            // Nothing is complete. If the unit is full, the caller seals it.
            unit.opened_at = now.at;
            return;
        }
        assert!(count < unit.record_count(), "records that grow are some of the unit's");
        let cut = open.cut(&self.geometry, count);
        self.seal_gathered_of(generation);
        if ends_segment {
            self.seal_segment_of(generation);
        }
        self.carry(generation, now, cut);
    }

    /// Seals the unit, and the segment, that have no room for a record of the length `len_in` returns.
    pub(super) fn make_room(&mut self, generation: SegmentRow, now: ClockMoment, len_in: impl Fn(&OpenSegment) -> u64) {
        let at = generation as usize;
        let geometry = self.geometry;
        let is_full = |log: &Self| log.open[at].as_ref().is_some_and(|open| !open.unit_takes(len_in(open)));
        let is_at_end = |log: &Self| log.open[at].as_ref().is_some_and(|open| !open.takes(&geometry, len_in(open)));
        if is_full(self) {
            self.seal_complete_of(generation, false, now);
        }
        if is_at_end(self) {
            self.seal_complete_of(generation, true, now);
        }
        // Without growing groups, only the unit was sealed. What was carried may leave too little room.
        if is_full(self) {
            self.seal_unit_of(generation);
        }
        if is_at_end(self) {
            self.seal_segment_of(generation);
        }
        assert!(!is_full(self) && !is_at_end(self), "a record fits into what is open, or into an empty segment");
    }

    /// Makes `cut` the first records of a new unit, in a new segment if none is open or the open one has no room.
    fn carry(&mut self, generation: SegmentRow, now: ClockMoment, cut: Vec<CutRecord>) {
        let cut_bytes: u64 = cut.iter().map(|record| record.bytes.len() as u64).sum();
        if cut.is_empty() {
            return;
        }
        let at = generation as usize;
        let has_room =
            self.open[at].as_ref().is_some_and(|open| open.takes_records(&self.geometry, cut_bytes, cut.len() as u64));
        if !has_room {
            self.seal_segment_of(generation);
            let opened = self.open_segment(AppendRole::Client);
            assert!(opened.is_ok(), "a free segment was there");
        }
        let open = self.open[at].as_mut().expect("a segment is open");
        let capacity = open.unit_capacity(&self.geometry, self.unit_bytes, cut_bytes);
        let buffer = buffer_of(&mut self.spare, capacity);
        let start = UnitStart { ticket: self.next_ticket, opened_at: now.at };
        open.unit = Some(OpenUnit::new(buffer, [unit_header_bytes(&self.geometry), capacity], start));
        self.next_ticket += 1;
        let mut moved = Vec::with_capacity(cut.len());
        for record in cut {
            self.segments.note(open.segment, record.listing.expires_at, now.unix_s);
            moved.push(open.append_cut(&self.geometry, self.volume, record));
        }
        self.moved.push(moved);
        assert!(open.unit_takes(1), "a unit keeps room for new records");
    }

    /// Returns the groups of the open unit that still grow, and forgets the others. At a segment's end fewer are
    /// carried, because the room that they leave in the segment stays empty.
    fn growing_groups(&mut self, generation: SegmentRow, ends_segment: bool, now: Duration) -> HashSet<u32> {
        let (Some(groups), Some(open)) = (&mut self.groups, &self.open[generation as usize]) else {
            return HashSet::new();
        };
        let Some(unit) = &open.unit else { return HashSet::new() };
        let of_unit = self.unit_bytes / CARRIED_DIVISOR;
        let of_segment = self.geometry.segment_bytes / LEFT_EMPTY_DIVISOR;
        // What does not fit behind the unit twice begins a new segment ([`OpenSegment::takes_records`]).
        let left_bytes = if ends_segment { 0 } else { open.left_bytes(&self.geometry) };
        let bytes_max = of_unit.min(of_segment.max(left_bytes - left_bytes / 8));
        groups.take_growing(unit.groups(&open.listings), now, bytes_max)
    }

    /// Returns whether a client's record may open a segment now.
    fn may_open_segment(&self) -> bool {
        self.next_sequence <= SEQUENCE_LAST
            && self.free.len() > 1
            && self.next_sequence - self.synced_sequence < unsynced_count_max(&self.geometry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_group_grows_for_a_window_after_its_last_record_and_not_without_end() {
        let mut groups = OpenGroups::new(at(2000));
        let records = || [(1, 100), (2, 100), (0, 100), (1, 100)].into_iter();
        [(1, 0), (2, 0), (0, 0), (1, 1500)].into_iter().for_each(|(group, millis)| groups.note(group, at(millis)));
        assert_eq!(groups.take_growing(records(), at(2500), 1000), HashSet::from([1]));
        for second in 1..=6 {
            groups.note(1, at(second * 2000));
            let growing = groups.take_growing(records(), at(second * 2000 + 100), 1000);
            assert_eq!(growing.contains(&1), second < 6, "{second}");
        }
    }

    #[test]
    fn the_newest_groups_are_carried_if_there_is_no_room_for_all() {
        let mut groups = OpenGroups::new(at(2000));
        (1..=4).for_each(|group| groups.note(group, at(u64::from(group))));
        let records = (1..=4).map(|group| (group, 100));
        assert_eq!(groups.take_growing(records, at(10), 250), HashSet::from([3, 4]));
        assert_eq!(groups.times.len(), 2);
    }

    #[test]
    fn without_a_window_nothing_grows() {
        let mut groups = OpenGroups::new(Duration::ZERO);
        groups.note(1, at(5));
        assert!(groups.take_growing([(1, 1)].into_iter(), at(5), 10).is_empty());
    }
}
