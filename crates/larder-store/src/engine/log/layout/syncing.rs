//! Which segments of this run are durable, and how many may be begun before the next sync.
//!
//! Invariant: a sequence is called traced only if a header or a trailer of it is with the device, so that a sync
//! makes it durable, and the superblock can vouch for it.

use super::{LogState, OpenSegment};
use crate::units::SegmentGeometry;

/// Most bytes of segments begun without a sync between: a crash of the machine may lose or keep them in any
/// order, so recovery looks this far behind the last one it finds.
const UNSYNCED_BYTES_MAX: u64 = 4 << 30;
/// The superblock vouches for new segments at the latest when the volume's segments divided by this have been begun.
const UNVOUCHED_DIVISOR: u32 = 4;

/// Sequences that have a header or a trailer on the volume: all before one, but for some.
pub(crate) struct SequenceTraces {
    pub(crate) before: u32,
    pub(crate) absent: Vec<u32>,
}

impl LogState {
    /// Returns the first sequence that is not begun yet, which is what [`Self::synced_before`] takes once a sync is
    /// done.
    pub(crate) fn next_sequence(&self) -> u32 {
        self.next_sequence
    }

    /// Notes that a sync was made when `sequence` was the next one.
    pub(crate) fn synced_before(&mut self, sequence: u32) {
        assert!(sequence <= self.next_sequence, "a sync covers nothing that is to come");
        self.synced_sequence = self.synced_sequence.max(sequence);
    }

    /// Returns whether a sync is needed soon: lest [`UNSYNCED_BYTES_MAX`] keeps writers waiting, or because the
    /// superblock does not vouch yet for many of the volume's segments.
    pub(crate) fn needs_sync(&self) -> bool {
        let begun_count = self.next_sequence - self.synced_sequence;
        begun_count > unsynced_count_max(&self.geometry) / 2
            || begun_count > self.geometry.segment_count / UNVOUCHED_DIVISOR
    }

    /// Returns the sequences of this run of which a sync makes traces durable: all before the first that has none
    /// yet.
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

    /// Notes that the superblock vouches for these.
    pub(crate) fn vouched(&mut self, traces: &SequenceTraces) {
        self.untraced.retain(|&sequence| sequence >= traces.before);
    }
}

/// Returns the most segments that are begun without a sync between.
pub(super) fn unsynced_count_max(geometry: &SegmentGeometry) -> u32 {
    (UNSYNCED_BYTES_MAX / geometry.segment_bytes) as u32
}

/// Returns the most sequences that may have been begun beyond the last that a start finds: those without a sync
/// between, and the two that were open when it was made and had nothing written yet.
pub(crate) fn unknown_count_max(geometry: &SegmentGeometry) -> u32 {
    unsynced_count_max(geometry) + 2
}
