//! The two generations of segments, main and probation: which segment to reclaim next, and which is the oldest in use.
//!
//! Invariants: each generation is reclaimed oldest first, and a main segment only when no probation segment is older
//! ([`SegmentUse::order`]). So removals and replacements, which are in main segments, are reclaimed after the records
//! they supersede. Probation has at most its share of the segments, rounded to whole ones, plus all segments that main
//! does not use. Idea: the small and the main queue of S3-FIFO (Yang et al., SOSP 2023).

use super::{
    LogState,
    open::{OldestInUse, OpenSegment},
};
use crate::{
    clock::ClockMoment,
    engine::log::eviction::quarters::OldestQuarter,
    format::{LogOrder, SegmentRow, SegmentUse},
    units::SegmentId,
    volume::waiters::WokenTasks,
};
use std::ops::RangeInclusive;

/// The oldest quarter of a generation has 1/`QUARTER` of the generation's segments.
const QUARTER: usize = 4;
/// Minimum number of probation segments, so that new entries are not evicted at once.
const PROBATION_SEGMENTS_MIN: usize = 2;
/// Range for the number of newer segments that may be begun before an open segment is sealed although it is not full.
/// An old open segment delays checkpoints. The number is half of the volume's segments, within this range. A smaller
/// number would seal more segments early.
const LAG_SEGMENTS: RangeInclusive<u32> = 16..=256;

impl LogState {
    /// Returns the segments that are being filled.
    pub(super) fn open_segments(&self) -> impl Iterator<Item = &OpenSegment> {
        self.open.iter().flatten()
    }

    /// Returns the segment to reclaim next, if one can be reclaimed. If the next one is still open, seals it.
    pub(crate) fn next_to_reclaim(&mut self) -> Option<SegmentId> {
        if !self.ready {
            return None;
        }
        let [main, probation] = SegmentRow::ALL.map(|generation| self.sealed[generation as usize].front().copied());
        let probation_count = self.sealed[SegmentRow::Probation as usize].len()
            + usize::from(self.open[SegmentRow::Probation as usize].is_some());
        let used_count = self.geometry.segment_count as usize - self.free.len();
        debug_assert!(probation_count <= used_count, "a segment on probation is in use");
        let has_share = probation_count as f64 > used_count as f64 * self.probation_share
            && probation_count > PROBATION_SEGMENTS_MIN;
        let main_order = main.map(|main| self.segments.order(main));
        let is_due = |probation: &SegmentId| {
            has_share || main_order.is_none_or(|main_order| self.segments.order(*probation) < main_order)
        };
        if let Some(probation) = probation.filter(is_due) {
            return Some(probation).filter(|&segment| !self.segments.is_dirty(segment));
        }
        let open = self.open[SegmentRow::Probation as usize].as_ref().map(|open| open.of.order());
        if let (Some(main_order), Some(open_order)) = (main_order, open)
            && open_order < main_order
        {
            self.seal_segment_of(SegmentRow::Probation);
            return None;
        }
        main.filter(|&segment| !self.segments.is_dirty(segment))
    }

    /// Frees a reclaimed segment, because its records are no longer needed.
    pub(crate) fn release(&mut self, segment: SegmentId, now: ClockMoment) -> WokenTasks {
        let of = self.segments.segment_use(segment);
        let others = self.sealed.iter().flatten().copied().chain(self.open_segments().map(|open| open.segment));
        let is_oldest = others.map(|other| self.segments.order(other)).all(|order| of.order() <= order);
        assert!(
            of.generation() == SegmentRow::Probation || is_oldest,
            "a main segment is released only when it is the oldest"
        );
        let row = &mut self.sealed[of.generation() as usize];
        assert_eq!(row.pop_front(), Some(segment), "segments are reclaimed oldest first");
        self.free.push_back(segment);
        self.change_places(now);
        self.waiting.take()
    }

    /// Frees all segments older than `order`, because their records are to be ignored.
    pub(crate) fn forget_before(&mut self, order: LogOrder) -> WokenTasks {
        for generation in SegmentRow::ALL {
            while let Some(&segment) = self.sealed[generation as usize].front()
                && self.segments.order(segment) < order
            {
                assert!(self.open_segments().all(|open| open.segment != segment), "what is full is not being filled");
                self.sealed[generation as usize].pop_front();
                self.segments.begin(segment, SegmentUse::default(), false);
                self.free.push_back(segment);
            }
        }
        self.waiting.take()
    }

    /// Returns the greatest sequence up to which the log is final: all segments up to it are on the device, and no
    /// later probation segment can come before one of these main segments in log order.
    pub(crate) fn clean_through(&self) -> u32 {
        let open = self.open_segments().map(|open| open.of);
        let closing = self.closing.iter().map(|closing| closing.of);
        let trailers = self.trailers_in_flight.iter().map(|trailer| self.segments.segment_use(trailer.segment));
        let unclean = open.chain(closing).chain(trailers).map(SegmentUse::first_sequence).min();
        unclean.map_or(self.last_sequence, |unclean| unclean.saturating_sub(1))
    }

    /// Returns the sequence of the first main segment whose records take precedence over those of the open probation
    /// segment. If no probation segment is open, answers as if one were opened now.
    pub(crate) fn first_sequence_over_probation(&self) -> u32 {
        let open = self.open[SegmentRow::Probation as usize].as_ref().or(self.open[SegmentRow::Main as usize].as_ref());
        open.map_or(self.next_sequence, |open| open.of.first_sequence())
    }

    /// Returns all segments in this order: the free ones, the next to be used first; the one for the places of buffered
    /// records; those in use, from the oldest to the newest.
    pub(crate) fn order(&self) -> Vec<(SegmentId, SegmentUse)> {
        let open = self.open_segments().map(|open| open.segment);
        let used = self.sealed.iter().flatten().copied().chain(open);
        let mut used: Vec<_> = used.map(|segment| (segment, self.segments.segment_use(segment))).collect();
        used.sort_by_key(|(_, of)| of.order());
        let unused = self.free.iter().copied().chain(self.segment_of_groups());
        unused.map(|segment| (segment, SegmentUse::default())).chain(used).collect()
    }

    /// Returns the use of a segment of `generation` that begins now with `sequence`.
    pub(super) fn use_of(&self, generation: SegmentRow, sequence: u32) -> SegmentUse {
        let main = self.open[SegmentRow::Main as usize].as_ref().map(|open| open.of.sequence);
        match generation {
            SegmentRow::Main => SegmentUse::main(sequence),
            SegmentRow::Probation => SegmentUse { sequence, anchor: main.unwrap_or(sequence) },
        }
    }

    /// Returns the oldest sequence in use of each generation; `next` for a generation without segments.
    pub(super) fn oldest(&self, next: u32) -> OldestInUse {
        let oldest = |generation: SegmentRow| {
            let sealed = self.sealed[generation as usize].front().map(|&segment| self.segments.sequence(segment));
            let open = self.open[generation as usize].as_ref().map(|open| open.of.sequence);
            sealed.or(open).unwrap_or(next)
        };
        OldestInUse {
            main: oldest(SegmentRow::Main),
            probation: self.has_probation.then(|| oldest(SegmentRow::Probation)),
        }
    }

    /// Returns the oldest quarter of each generation's full segments.
    pub(crate) fn oldest_quarters(&self) -> [OldestQuarter; 2] {
        let quarter = |generation: SegmentRow| {
            let sealed = &self.sealed[generation as usize];
            let count = sealed.len().div_ceil(QUARTER);
            let last = count.checked_sub(1).map(|last| self.segments.sequence(sealed[last]));
            OldestQuarter { end_sequence: last.map_or(0, |last| last + 1), segment_count: count as u32 }
        };
        SegmentRow::ALL.map(quarter)
    }

    /// Sets probation's share of the segments in use.
    pub(crate) fn set_probation_share(&mut self, share: f64) {
        assert!((0.0..1.0).contains(&share), "a share of the segments: {share}");
        self.probation_share = share;
    }

    /// Seals the open segment of a generation if many newer segments ([`LAG_SEGMENTS`]) were begun since it was opened.
    pub(super) fn seal_laggard(&mut self, next_sequence: u32) {
        let lag_max = (self.geometry.segment_count / 2).clamp(*LAG_SEGMENTS.start(), *LAG_SEGMENTS.end());
        for generation in SegmentRow::ALL {
            let begun = self.open[generation as usize].as_ref().map(|open| open.of.first_sequence());
            if begun.is_some_and(|begun| next_sequence.saturating_sub(begun) > lag_max) {
                self.seal_segment_of(generation);
                debug_assert!(self.open[generation as usize].is_none(), "a sealed segment is not open");
            }
        }
    }
}
