//! Decides how much of a body fills the remainder of a segment that cannot hold the whole record.
//!
//! Pure decision: the engine appends the part, and then asks again. Each part costs a hit one more read. So a record
//! that fits into an empty segment is divided only if the remainder of the open one is large enough to be worth it.

use super::{AppendRole, LogState, open::OpenSegment};
use crate::format::record::{RecordKind, RecordParts, part_body_bytes};

/// Minimum number of bytes of a body in a part.
const PART_BYTES_MIN: u64 = 4 << 10;
/// The remainder of a segment is filled with a part only if it is at least 1/`LEFT_DIVISOR` of the segment.
const LEFT_DIVISOR: u64 = 100;

impl LogState {
    /// Returns how many bytes of the record's body to append as a part, a record of their own, before the record
    /// itself. Returns `None` if the record is not to be divided.
    pub(crate) fn part_due(&self, record: &RecordParts<'_>, appender: AppendRole) -> Option<u64> {
        let has_body =
            matches!(record.meta.kind, RecordKind::Entry | RecordKind::InParts(_)) && !record.body.is_empty();
        if !self.geometry.is_packed() || !has_body || self.is_buffered(record) {
            return None;
        }
        let geometry = &self.geometry;
        let len_bytes = self.geometry.stepped(record.len_bytes());
        let open = self.open[appender.generation() as usize].as_ref();
        let left_bytes = open.map(|open| open.room_bytes(geometry, record.meta.hash.key_hash()));
        assert!(left_bytes.is_none_or(|left| left <= geometry.segment_bytes), "room within a segment");
        if left_bytes.is_some_and(|left_bytes| left_bytes >= len_bytes) {
            return None;
        }
        let fits_elsewhere = OpenSegment::fits_empty(geometry, len_bytes);
        let least_bytes =
            if fits_elsewhere { PART_BYTES_MIN.max(geometry.segment_bytes / LEFT_DIVISOR) } else { PART_BYTES_MIN };
        let body_bytes: u64 = record.body.iter().map(|bytes| bytes.len() as u64).sum();
        let part_bytes = left_bytes.map_or(0, part_body_bytes);
        if part_bytes >= least_bytes {
            return Some(part_bytes.min(body_bytes));
        }
        let whole_segment = part_body_bytes(OpenSegment::room_empty(geometry));
        (!fits_elsewhere && whole_segment >= PART_BYTES_MIN).then(|| whole_segment.min(body_bytes))
    }
}
