//! Buffers of units, kept for reuse.

use super::LogState;
use crate::{device::AlignedBuffer, format::SegmentRow};
use std::sync::Arc;

impl LogState {
    /// Keeps the buffer of a written unit for the next unit, unless the device or a reader still uses the buffer.
    pub(super) fn keep_for_reuse(&mut self, buffer: Arc<AlignedBuffer>) {
        if let Ok(mut buffer) = Arc::try_unwrap(buffer)
            && self.spare.len() < 1 + usize::from(self.has_probation)
        {
            buffer.extend_to_capacity();
            self.spare.push(buffer);
        }
        assert!(self.spare.len() <= SegmentRow::ALL.len(), "spare buffers are bounded");
    }
}

/// Creates a buffer for a unit of `unit_bytes`. Writes to all its memory, so that the process does not grow later.
pub(super) fn spare_buffer(unit_bytes: u64) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::with_len(unit_bytes as usize);
    buffer.as_mut_slice().fill(1);
    buffer
}

/// Returns a buffer of at least `len_bytes`: one from `spare`, or a new buffer.
pub(super) fn buffer_of(spare: &mut Vec<AlignedBuffer>, len_bytes: u64) -> AlignedBuffer {
    assert!(len_bytes > 0, "a unit has bytes");
    match spare.pop() {
        Some(buffer) if buffer.len() as u64 >= len_bytes => buffer,
        _ => AlignedBuffer::with_len(len_bytes as usize),
    }
}
