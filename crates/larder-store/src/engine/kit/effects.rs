//! I/O that follows from a change of an engine's state, started after its lock is released.
//!
//! Invariant: completions hold the engine weakly. The device is therefore closed when the last handle is dropped, and
//! never by a completion on the device's own thread. A completion that arrives later does nothing.

use crate::{
    device::{AlignedBuffer, Completion, FileWork, Transfer},
    engine::Engine,
    volume::{Volume, counters::add, waiters::WokenTasks},
};
use std::{io, sync::Arc};

/// The I/O to start and the tasks to wake after a change of an engine's state. They are collected while the state is
/// locked, and take effect after the lock is released.
#[must_use = "effects must be started"]
pub(crate) struct Effects<T> {
    pub(crate) transfers: Vec<T>,
    woken: WokenTasks,
}

impl<T> Default for Effects<T> {
    fn default() -> Self {
        Self { transfers: Vec::new(), woken: WokenTasks::default() }
    }
}

impl<T> Effects<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.transfers.is_empty() && self.woken.is_empty()
    }

    pub(crate) fn wake(&mut self, woken: WokenTasks) {
        self.woken.add(woken);
    }

    /// Calls `start` with each collected I/O operation, and wakes the collected tasks.
    pub(crate) fn begin(self, start: impl FnMut(T)) {
        self.transfers.into_iter().for_each(start);
        self.woken.wake();
    }
}

/// Returns a completion that calls `then`, provided that `engine` still exists and has not failed. If `then` panics,
/// the engine's volume fails.
pub(crate) fn completion_for<E: Engine>(
    engine: &Arc<E>,
    then: impl FnOnce(&Arc<E>, io::Result<()>) + Send + 'static,
) -> Completion<()> {
    let engine = Arc::downgrade(engine);
    Completion::callback(move |outcome| {
        if let Some(engine) = engine.upgrade() {
            // A failure has reported itself.
            let _ = engine.volume().fence(|| then(&engine, outcome));
        }
    })
}

impl Volume {
    /// Starts to write the whole of `buffer`, and counts the write. `completion` must record its outcome
    /// ([`Volume::note_write`]).
    pub(crate) fn submit_write(&self, offset_bytes: u64, buffer: Arc<AlignedBuffer>, completion: Completion<()>) {
        if let Err(error) = self.check_writable() {
            return completion.complete(Err(error));
        }
        self.count_write(buffer.len() as u64);
        self.device.submit(Transfer::Write { offset_bytes, buffer, completion });
    }

    /// Starts an operation on the volume's files. If it is a write, counts it.
    ///
    /// # Panics
    /// If the volume has no files.
    pub(crate) fn submit_file_work(&self, work: FileWork) {
        let directory = self.directory.as_ref().expect("a policy that keeps files has a directory");
        match (work, self.check_writable()) {
            (FileWork::Write { completion, .. } | FileWork::Remove { completion, .. }, Err(error)) => {
                completion.complete(Err(error));
            }
            (work, _) => {
                if let FileWork::Write { buffer, .. } = &work {
                    self.count_write(buffer.len() as u64);
                }
                directory.submit(work);
            }
        }
    }

    /// Counts a write that is about to start.
    fn count_write(&self, len_bytes: u64) {
        add(&self.counters.writes, 1);
        add(&self.counters.written_bytes, len_bytes);
    }
}
