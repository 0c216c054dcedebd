//! Tracks which segments of this run are durable, and how many may be begun before the next sync.
//!
//! Invariant: a sequence counts as traced only if one of its headers or trailers is on the device, so that a sync makes
//! it durable and the superblock can vouch for it.

use super::{LogState, OpenSegment};
use crate::units::SegmentGeometry;

/// Maximum bytes of segments begun between two syncs. A crash of the machine may lose any of them and keep others, so
/// recovery looks this far beyond the last one it finds.
const UNSYNCED_BYTES_MAX: u64 = 4 << 30;
/// Divisor of the volume's segments that gives the number begun before the superblock vouches for them.
const UNVOUCHED_DIVISOR: u32 = 4;

/// The sequences with a header or trailer on the volume: all below `before` except `absent`.
pub(crate) struct SequenceTraces {
    pub(crate) before: u32,
    pub(crate) absent: Vec<u32>,
}

impl LogState {
    /// Returns the first sequence that is not begun yet, to be passed to [`Self::synced_before`] once a sync is done.
    pub(crate) fn next_sequence(&self) -> u32 {
        self.next_sequence
    }

    /// Notes that a sync completed which was started when `sequence` was the next one.
    pub(crate) fn synced_before(&mut self, sequence: u32) {
        assert!(sequence <= self.next_sequence, "a sync covers nothing that is to come");
        self.synced_sequence = self.synced_sequence.max(sequence);
    }

    /// Returns whether a sync is needed soon: either because [`UNSYNCED_BYTES_MAX`] would make writers wait, or because
    /// the superblock does not yet vouch for many of the volume's segments.
    pub(crate) fn needs_sync(&self) -> bool {
        let begun_count = self.next_sequence - self.synced_sequence;
        begun_count > unsynced_count_max(&self.geometry) / 2
            || begun_count > self.geometry.segment_count / UNVOUCHED_DIVISOR
    }

    /// Returns the sequences of this run whose traces a sync makes durable: all before the first without a trace.
    pub(crate) fn traces(&self) -> SequenceTraces {
        let is_writing =
            |open: &&OpenSegment| !open.has_units() || self.in_flight.iter().any(|unit| unit.segment == open.segment);
        let open = self.open_segments().filter(is_writing).map(|open| open.of);
        let closing = self.closing.iter().map(|closing| closing.of);
        let trailers = self.trailers_in_flight.iter().map(|trailer| self.segments.segment_use(trailer.segment));
        let untraced_yet = open.chain(closing).chain(trailers).map(|of| of.sequence).min();
        let before = untraced_yet.unwrap_or(self.next_sequence);
        assert!(before <= self.next_sequence, "what was begun has a sequence");
        SequenceTraces {
            before,
            absent: self.untraced.iter().copied().take_while(|&sequence| sequence < before).collect(),
        }
    }

    /// Notes that the superblock vouches for these sequences.
    pub(crate) fn vouched(&mut self, traces: &SequenceTraces) {
        self.untraced.retain(|&sequence| sequence >= traces.before);
    }
}

/// Returns the maximum number of segments begun between two syncs.
pub(super) fn unsynced_count_max(geometry: &SegmentGeometry) -> u32 {
    (UNSYNCED_BYTES_MAX / geometry.segment_bytes) as u32
}

/// Returns the maximum number of sequences begun beyond the last one that a start finds: those begun since a sync, and
/// the two open at that sync, which may have had nothing written.
pub(crate) fn unknown_count_max(geometry: &SegmentGeometry) -> u32 {
    unsynced_count_max(geometry) + 2
}
