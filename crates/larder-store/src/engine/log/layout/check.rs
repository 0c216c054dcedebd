//! Checks the invariants of the log's segments, units and counters.

use super::LogState;
use crate::{
    engine::kit::state_lock::CheckedState,
    format::{SegmentRow, unit::unit_header_bytes},
    units::SegmentId,
};

impl CheckedState for LogState {
    fn check(&self) {
        if self.ready || self.is_barred {
            self.check_segments();
        }
        self.check_sequences();
        self.check_units();
        assert!(self.effects.is_empty(), "every step starts what follows from it");
    }

    fn check_cost(&self) -> u64 {
        u64::from(self.geometry.segment_count) + (self.in_flight.len() + self.closing.len()) as u64
    }
}

impl LogState {
    /// Checks that every segment is in exactly one of these states: free, full, open, or in use for the places of
    /// buffered records.
    fn check_segments(&self) {
        let mut seen = vec![false; self.geometry.segment_count as usize];
        let open = self.open_segments().map(|open| open.segment);
        let of_groups = self.segment_of_groups();
        for segment in self.free.iter().chain(self.sealed.iter().flatten()).copied().chain(open).chain(of_groups) {
            assert!(!std::mem::replace(&mut seen[segment.index()], true), "segment {segment:?} is in two places");
        }
        assert!(seen.into_iter().all(|seen| seen), "a segment is nowhere");
        for closing in &self.closing {
            let is_sealed = self.sealed.iter().any(|sealed| sealed.contains(&closing.segment));
            assert!(is_sealed, "a segment that is closing is sealed");
        }
    }

    /// Checks that in each generation, log order is the order of sequences.
    fn check_sequences(&self) {
        let sequence = |segment: &SegmentId| self.segments.sequence(*segment);
        for generation in SegmentRow::ALL {
            let sealed = &self.sealed[generation as usize];
            let is_of = |segment: &SegmentId| self.segments.segment_use(*segment).generation() == generation;
            assert!(sealed.iter().all(is_of), "a segment is among those of its generation");
            let sequences = sealed.iter().map(sequence);
            assert!(sequences.is_sorted_by(|one, other| one < other), "sealed segments are in log order");
            let open = self.open[generation as usize].as_ref().map(|open| open.of.sequence);
            let last = sealed.back().map(sequence);
            assert!(
                open.or(last).is_none_or(|newest| newest <= self.last_sequence),
                "the last sequence is the greatest"
            );
            if let Some(open) = open {
                assert!(last.is_none_or(|last| last < open), "the open segment is the newest");
            }
        }
        if self.ready {
            assert!(self.last_sequence < self.next_sequence, "no sequence is used twice");
            assert!(self.synced_sequence <= self.next_sequence, "a sync covers what was begun");
        }
    }

    /// Checks that all data that is not on the device yet is counted, and is within its segment.
    fn check_units(&self) {
        let header_bytes = unit_header_bytes(&self.geometry);
        let open = self.open_segments().filter_map(|open| open.unit_bytes(&self.geometry));
        let mut dirty_bytes: u64 = open.map(|(_, bytes)| bytes.len() as u64 - header_bytes).sum();
        for unit in &self.in_flight {
            assert!(unit.ticket < self.next_ticket && unit.used_bytes >= header_bytes);
            dirty_bytes += unit.used_bytes - header_bytes;
            let begins = unit.start.byte_offset() >= self.geometry.segment_start_bytes(unit.segment);
            let ends = unit.start.byte_offset() + unit.used_bytes <= self.geometry.segment_end_bytes(unit.segment);
            assert!(begins && ends, "a unit lies within its segment");
        }
        if let Some(groups) = &self.groups {
            groups.check();
            dirty_bytes += groups.bytes();
            assert!(self.segments_for_groups() <= self.openable_count(), "buffered records have room");
        }
        assert_eq!(dirty_bytes, self.dirty_bytes, "bytes that are not on the device are counted");
        for closing in &self.closing {
            let count = self.in_flight.iter().filter(|unit| unit.segment == closing.segment).count();
            assert_eq!(count, closing.units_in_flight as usize, "units of a closing segment are counted");
        }
        for trailer in &self.trailers_in_flight {
            assert!(self.segments.is_dirty(trailer.segment), "a segment is dirty until its trailer is written");
        }
        assert!(
            self.open_segments().all(|open| open.hidden_from.is_none()),
            "a segment whose first unit failed is sealed at once"
        );
    }
}
