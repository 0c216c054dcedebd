//! The content of a set while it is being written, see `set_write`.

use crate::device::AlignedBuffer;
use std::sync::Arc;

/// A set whose new content is being written.
pub(super) struct SetInFlight {
    buffer: Arc<AlignedBuffer>,
    /// Whether the buffer is still the content of the set. If `false`, lookups do not use the buffer, and it only shows
    /// that the set is being written.
    pub(super) is_believed: bool,
}

impl SetInFlight {
    pub(super) fn new(buffer: Arc<AlignedBuffer>) -> Self {
        Self { buffer, is_believed: true }
    }

    /// Returns whether the buffer is still the content of the set.
    pub(super) fn is_believed(&self) -> bool {
        self.is_believed
    }

    /// Returns the buffer, if it still is the content of the set.
    pub(super) fn believed(&self) -> Option<Arc<AlignedBuffer>> {
        self.is_believed.then(|| Arc::clone(&self.buffer))
    }
}
