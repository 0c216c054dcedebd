//! The fence around every call of an engine. A failed assertion ends the use of one volume, and of nothing else.
//!
//! Owns: the fence, and what a failure does. The other volumes' record of the exclusion is in `store::outage`.
//! Invariants: nothing that was found in a failed state leaves the fence, because the lock around an engine's state
//! (`engine::kit::state_lock`) sets the mark before it releases the state. No call waits for a failed volume. Nothing is
//! written to it, except its superblock. In a program that aborts on panics, the process ends instead.
//!
//! Cost: a flag and a counter per call, and a lock when a call begins to wait and when it ends.

use super::{
    Volume,
    counters::add,
    failure::{caught, contains_panics},
    superblocks,
};
use crate::{
    Error, ErrorKind, Result,
    device::{Completion, PlannedPanic},
};
use std::{any::Any, future::poll_fn, io, panic::resume_unwind, pin::Pin, sync::atomic::Ordering, task::Poll, thread};

impl Volume {
    /// Runs a step of the volume's engine. If it panics, the volume fails. While a panic in a fence unwinds, no further
    /// step is run.
    ///
    /// Debug builds let a panic through that no test has planned, so that it fails the test.
    ///
    /// # Errors
    /// `Unavailable` if the volume has failed, also during the step.
    pub(crate) fn fence<T>(&self, step: impl FnOnce() -> T) -> Result<T> {
        if self.failure.is_set() || (contains_panics() && thread::panicking()) {
            return Err(has_failed());
        }
        match caught(step) {
            Ok(_) if self.failure.is_set() => Err(has_failed()),
            Ok(outcome) => Ok(outcome),
            Err(panic) => {
                let error = self.fail(&*panic);
                if cfg!(debug_assertions) && !panic.is::<PlannedPanic>() {
                    resume_unwind(panic);
                }
                Err(error)
            }
        }
    }

    /// Runs a call of the volume's engine. If it panics, the volume fails.
    ///
    /// The call is pinned where it is made: passed by value, its state would be in this one twice.
    ///
    /// # Errors
    /// `Unavailable` if the volume has failed, also while the call waits, and otherwise the error of the call.
    pub(crate) async fn fenced<T>(&self, mut call: Pin<&mut impl Future<Output = Result<T>>>) -> Result<T> {
        let mut waiting = self.failure.waiting_call();
        poll_fn(|context| match self.fence(|| call.as_mut().poll(context)) {
            Err(error) => Poll::Ready(Err(error)),
            Ok(Poll::Ready(outcome)) => Poll::Ready(outcome),
            Ok(Poll::Pending) => {
                waiting.note(context.waker());
                // A failure before this line may have found no waker to wake.
                if self.failure.is_set() { Poll::Ready(Err(has_failed())) } else { Poll::Pending }
            }
        })
        .await
    }

    /// Returns an error if nothing may be written to the volume any more.
    pub(crate) fn check_writable(&self) -> io::Result<()> {
        if self.failure.is_set() {
            return Err(io::Error::other("an assertion failed, so the volume is not written"));
        }
        Ok(())
    }

    /// Excludes the volume until the next start, because its engine panicked. Returns the error for the caller.
    fn fail(&self, panic: &(dyn Any + Send)) -> Error {
        if self.failure.set() {
            add(&self.counters.outages, 1);
            add(&self.counters.failed_assertions, 1);
            let (volume, cause) = (self.options.path.display(), message_of(panic));
            tracing::error!(
                %volume, cause,
                "an assertion of the storage engine failed: the volume is not used until the next start, which empties it; \
                 please report this as a bug"
            );
            self.health.exclude_for_good(self.clock.now());
            self.set_loaded();
            self.wakeup.wake();
            self.failure.wake_all();
            self.empty_at_next_start();
        }
        has_failed()
    }

    /// Waits until the next start empties the volume, if it has failed.
    ///
    /// # Errors
    /// `Unavailable` if that cannot be written.
    pub(crate) async fn ensure_emptied(&self) -> Result<()> {
        if !self.failure.is_set() || self.health.is_safe() {
            return Ok(());
        }
        let written = superblocks::change(self, |superblock| superblock.epochs.invalidate_all()).await;
        self.health.set_recorded(written.is_ok());
        written.map_err(|source| {
            Error::io(ErrorKind::Unavailable, "cannot empty the volume of an engine that failed", source)
        })
    }

    /// Invalidates everything on the volume, for the next start. Once that is durable, removals need not be written.
    fn empty_at_next_start(&self) {
        let recorded = self.health.recorded_flag();
        let done = Completion::callback(move |outcome: io::Result<()>| match outcome {
            Ok(()) => recorded.store(true, Ordering::SeqCst),
            Err(error) => tracing::error!(%error, "cannot empty the volume that failed"),
        });
        superblocks::change_with(self, |superblock| superblock.epochs.invalidate_all(), done);
    }
}

fn has_failed() -> Error {
    let place = "the volume of this entry is not used until the next start: an assertion of the engine failed";
    Error::new(ErrorKind::Unavailable, place)
}

fn message_of(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown")
}
