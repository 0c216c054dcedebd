//! I/O that follows from a change of an engine's state, started after its lock is released.
//!
//! Invariant: completions hold the engine weakly. The device is therefore closed when the last handle is dropped, and
//! never by a completion on the device's own thread. A completion that arrives later does nothing.

use crate::{
    device::{AlignedBuffer, Completion, Transfer},
    volume::{Volume, counters::add},
};
use std::{io, sync::Arc};

/// Returns a completion that calls `then` if `engine` still exists.
pub(crate) fn completion_for<E: Send + Sync + 'static>(
    engine: &Arc<E>,
    then: impl FnOnce(&Arc<E>, io::Result<()>) + Send + 'static,
) -> Completion<()> {
    let engine = Arc::downgrade(engine);
    Completion::callback(move |outcome| {
        if let Some(engine) = engine.upgrade() {
            then(&engine, outcome);
        }
    })
}

impl Volume {
    /// Starts a counted write of the whole of `buffer`. The completion records its outcome ([`Volume::note_write`]).
    pub(crate) fn submit_write(&self, offset_bytes: u64, buffer: Arc<AlignedBuffer>, completion: Completion<()>) {
        self.count_write(buffer.len() as u64);
        self.device.submit(Transfer::Write { offset_bytes, buffer, completion });
    }

    /// Counts a write that is about to start.
    pub(crate) fn count_write(&self, len_bytes: u64) {
        add(&self.counters.writes, 1);
        add(&self.counters.written_bytes, len_bytes);
    }
}
