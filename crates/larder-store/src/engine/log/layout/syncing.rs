//! Tracks which segments of this run are durable, and how many may be begun before the next sync.
//!
//! Invariant: a sequence counts as traced only if one of its headers or trailers is on the device, so that a sync makes
//! it durable and the superblock can vouch for it.

use super::{LogState, OpenSegment};
use crate::units::SegmentGeometry;

/// Maximum number of bytes of segments that are begun between two syncs. A power loss may lose any of these segments
/// and keep others, so recovery searches this far beyond the last one that it finds.
const UNSYNCED_BYTES_MAX: u64 = 4 << 30;
/// A sync is due when 1/`UNVOUCHED_DIVISOR` of the volume's segments were begun since the last sync. After the sync,
/// the superblock records that these segments exist.
const UNVOUCHED_DIVISOR: u32 = 4;

/// The sequences of which a header or trailer is on the volume: all before `before`, except those in `absent`.
pub(crate) struct SequenceTraces {
    pub(crate) before: u32,
    pub(crate) absent: Vec<u32>,
}

impl LogState {
    /// Returns the sequence that the next segment gets. Pass it to [`Self::synced_before`] after a sync that begins
    /// now.
    pub(crate) fn next_sequence(&self) -> u32 {
        self.next_sequence
    }

    /// Notes that a sync has succeeded. `sequence` was the next segment's sequence when the sync began.
    pub(crate) fn synced_before(&mut self, sequence: u32) {
        assert!(sequence <= self.next_sequence, "a sync covers nothing that is to come");
        self.synced_sequence = self.synced_sequence.max(sequence);
    }

    /// Returns whether a sync is needed soon. Without it, writers would soon wait because of [`UNSYNCED_BYTES_MAX`], or
    /// the superblock would lack many of the volume's segments.
    pub(crate) fn needs_sync(&self) -> bool {
        let begun_count = self.next_sequence - self.synced_sequence;
        begun_count > unsynced_count_max(&self.geometry) / 2
            || begun_count > self.geometry.segment_count / UNVOUCHED_DIVISOR
    }

    /// Returns which sequences of this run a sync makes durable: all before the first one that has neither a header nor
    /// a trailer on the volume.
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

    /// Notes that the superblock now records the sequences in `traces`.
    pub(crate) fn vouched(&mut self, traces: &SequenceTraces) {
        self.untraced.retain(|&sequence| sequence >= traces.before);
    }
}

/// Returns the maximum number of segments that are begun between two syncs.
pub(super) fn unsynced_count_max(geometry: &SegmentGeometry) -> u32 {
    (UNSYNCED_BYTES_MAX / geometry.segment_bytes) as u32
}

/// Returns the maximum number of sequences that can have been used beyond the last one that a start finds: those begun
/// since a sync, and the two segments that were open at the sync and may have been empty.
pub(crate) fn unknown_count_max(geometry: &SegmentGeometry) -> u32 {
    unsynced_count_max(geometry) + 2
}
