//! The content of a set while it is being written, see `set_write`.

use crate::device::AlignedBuffer;
use std::sync::Arc;

/// A set that is being written.
pub(super) struct SetInFlight {
    buffer: Arc<AlignedBuffer>,
    /// Whether the buffer is still the set's content. If not, the write is only waited for.
    pub(super) is_believed: bool,
}

impl SetInFlight {
    pub(super) fn new(buffer: Arc<AlignedBuffer>) -> Self {
        Self { buffer, is_believed: true }
    }

    /// Returns whether the buffer is still the set's content.
    pub(super) fn is_believed(&self) -> bool {
        self.is_believed
    }

    /// Returns the buffer, if it is still the set's content.
    pub(super) fn believed(&self) -> Option<Arc<AlignedBuffer>> {
        self.is_believed.then(|| Arc::clone(&self.buffer))
    }
}
