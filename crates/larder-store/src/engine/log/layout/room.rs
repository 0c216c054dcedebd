//! Room for the next records: seals what is full, and opens units and segments.
//!
//! Invariants: a client leaves a free segment. Clients and reclaim leave those that buffered groups need
//! ([`super::groups`]).

use super::{
    AppendRole, LogState, NoRoom, OpenSegment, OpenUnit, SEQUENCE_LAST, SegmentRow, UnitStart, buffer_of,
    unit_header_bytes,
};
use std::time::Duration;

impl LogState {
    /// Seals the open unit, and if necessary the open segment, if the next record does not fit. `len_in` returns the
    /// bytes that this record takes in a segment.
    pub(super) fn make_room(&mut self, generation: SegmentRow, len_in: impl Fn(&OpenSegment) -> u64) {
        let at = generation as usize;
        let geometry = self.geometry;
        if self.open[at].as_ref().is_some_and(|open| !open.unit_takes(len_in(open))) {
            self.seal_unit_of(generation);
        }
        if self.open[at].as_ref().is_some_and(|open| !open.takes(&geometry, len_in(open))) {
            self.seal_segment_of(generation);
        }
    }

    /// Opens a segment and a unit for a record of `len_bytes`, if none is open.
    pub(super) fn open_unit(&mut self, appender: AppendRole, len_bytes: u64, now: Duration) -> Result<(), NoRoom> {
        let at = appender.generation() as usize;
        if self.open[at].is_none() {
            self.open_segment(appender)?;
        }
        let open = self.open[at].as_mut().expect("a segment was opened above");
        if open.unit.is_none() {
            let capacity = open.unit_capacity(&self.geometry, self.unit_bytes, len_bytes);
            let buffer = buffer_of(&mut self.spare, capacity);
            let start = UnitStart { ticket: self.next_ticket, opened_at: now };
            open.unit = Some(OpenUnit::new(buffer, [unit_header_bytes(&self.geometry), capacity], start));
            self.next_ticket += 1;
        }
        Ok(())
    }

    /// Opens a segment for `appender`, unless too few segments are free for it.
    fn open_segment(&mut self, appender: AppendRole) -> Result<(), NoRoom> {
        if self.next_sequence > SEQUENCE_LAST {
            return Err(NoRoom::Spent);
        }
        let (kept, for_groups) = match appender {
            AppendRole::Client | AppendRole::Newcomer => (1, self.segments_for_groups()),
            AppendRole::Reclaim => (0, self.segments_for_groups()),
            AppendRole::Buffers(_) => (0, 0),
        };
        if self.free.len() <= kept || self.openable_count() <= for_groups {
            return Err(NoRoom::Now);
        }
        let segment = self.free.pop_front().ok_or(NoRoom::Now)?;
        let sequence = self.next_sequence;
        assert!(sequence > self.last_sequence, "no two segments share a sequence");
        self.next_sequence = sequence + 1;
        self.last_sequence = sequence;
        self.seal_laggard(sequence);
        let generation = appender.generation();
        assert!(self.has_probation || generation == SegmentRow::Main, "without probation everything goes to main");
        let of = self.use_of(generation, sequence);
        let oldest = self.oldest(sequence);
        self.segments.begin(segment, of, true);
        let listings = std::mem::take(&mut self.spare_listings);
        self.open[generation as usize] = Some(OpenSegment::new(segment, of, oldest, listings));
        Ok(())
    }
}
