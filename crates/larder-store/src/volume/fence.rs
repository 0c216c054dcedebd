//! The fence around every call of an engine, and what a failure of the engine does.
//!
//! Two things fail an engine: a panic, and a sync that fails. In both cases its memory and the device may disagree, and
//! an acknowledged change may be lost. Such a failure ends the use of one volume, and of nothing else. The volume
//! returns with a new engine, which finds what the records on the device say (`store::outage`).
//!
//! Owns: the fence, and what happens at once: the keys whose last change may be lost become pending removals, and the
//! superblock notes that the next start must not believe the volume. Invariants: nothing that was found in a failed
//! state leaves the fence, because the lock around an engine's state (`engine::kit::state_lock`) sets the mark before
//! it releases the state. No call waits for a failed engine. It writes nothing more. In a program that aborts on
//! panics, the process ends instead.
//!
//! Cost: a flag and a counter per call, and a lock when a call begins to wait and when it ends.

use super::{
    Volume,
    changed_keys::LostChanges,
    counters::add,
    failure::{caught, contains_panics},
    superblocks,
};
use crate::{
    Error, ErrorKind, Result,
    device::{Completion, PlannedPanic},
};
use std::{any::Any, future::poll_fn, io, panic::resume_unwind, pin::Pin, sync::atomic::Ordering, task::Poll, thread};

/// A change of a key, while it is being made. The key stays on the list of changed keys even if the caller stops
/// waiting.
///
/// This does not hide the key from lookups. A new removal also has a `RemovalGuard` for that. Commits and new heads
/// must not hide their key, and the key of a retried removal is hidden already.
pub(crate) struct NotedChange<'a> {
    volume: &'a Volume,
    key: &'a [u8],
    position: u64,
}

impl<'a> NotedChange<'a> {
    /// Adds `key` to the list of changed keys. To be called before the change is made.
    pub(crate) fn new(volume: &'a Volume, key: &'a [u8]) -> Self {
        Self { volume, key, position: volume.changed_keys.note(key, volume.clock.now()) }
    }
}

impl Drop for NotedChange<'_> {
    fn drop(&mut self) {
        self.volume.changed_keys.confirm(self.position, self.key, self.volume.clock.now());
        // The list may have been taken before the key was on it.
        if self.volume.failure.is_set() {
            self.volume.defer_removal(self.key);
        }
    }
}

impl Volume {
    /// Runs a step of the volume's engine. If it panics, the volume fails. Runs nothing while another panic unwinds
    /// through a fence.
    ///
    /// In debug builds, a panic that no test has planned is not caught, so that it fails the test.
    ///
    /// # Errors
    /// `Unavailable` if the volume has failed before or during the step.
    pub(crate) fn fence<T>(&self, step: impl FnOnce() -> T) -> Result<T> {
        if self.failure.is_set() || (contains_panics() && thread::panicking()) {
            return Err(has_failed());
        }
        match caught(step) {
            Ok(_) if self.failure.is_set() => Err(has_failed()),
            Ok(outcome) => Ok(outcome),
            Err(panic) => {
                let error = self.fail_assertion(&*panic);
                if cfg!(debug_assertions) && !panic.is::<PlannedPanic>() {
                    resume_unwind(panic);
                }
                Err(error)
            }
        }
    }

    /// Runs a call of the volume's engine, polling it inside a fence. If it panics, the volume fails.
    ///
    /// The caller must pin the call, because passing it by value would store its state twice in this future.
    ///
    /// # Errors
    /// `Unavailable` if the volume has failed, even while the call waits. Otherwise the error of the call.
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

    /// Returns an error if the volume has failed, because nothing may be written to it then.
    pub(crate) fn check_writable(&self) -> io::Result<()> {
        if self.failure.is_set() {
            return Err(io::Error::other("the volume has failed, so it is not written"));
        }
        Ok(())
    }

    /// Fails the volume because its engine panicked with `panic`. Returns the error for the caller.
    fn fail_assertion(&self, panic: &(dyn Any + Send)) -> Error {
        if self.failure.set() {
            add(&self.counters.failed_assertions, 1);
            let volume = self.options.path.display();
            let cause = message_of(panic);
            tracing::error!(
                %volume, cause,
                "an assertion of the storage engine failed: the volume is opened again; please report this as a bug"
            );
            self.end_engine();
        }
        has_failed()
    }

    /// Fails the volume because a sync failed. The device may have lost any write since the last good sync, and a later
    /// sync that succeeds would not show it.
    pub(super) fn fail_sync(&self, error: &io::Error) {
        if self.failure.set_for_sync() {
            add(&self.counters.failed_syncs, 1);
            let volume = self.options.path.display();
            tracing::error!(
                %volume, %error,
                "a sync failed: the device may have lost the changes since the last one, so they are removed"
            );
            self.end_engine();
        }
    }

    /// Excludes the volume after its engine failed. Keys whose last change may be lost are removed when the volume is
    /// opened again.
    fn end_engine(&self) {
        add(&self.counters.outages, 1);
        match self.changed_keys.take() {
            LostChanges::Keys(keys) => keys.iter().for_each(|key| self.defer_removal(key)),
            LostChanges::Unknown => {
                tracing::error!("too many changes may be lost: the volume is emptied");
                self.defer_all();
            }
        }
        self.health.exclude_for_reopening(self.clock.now());
        self.set_loaded();
        self.wakeup.wake();
        self.failure.wake_all();
        self.doubt();
    }

    /// Waits until the superblock of a failed volume says that the volume has failed. The next start then empties it.
    /// Does nothing if the volume has not failed.
    ///
    /// # Errors
    /// `Unavailable` if the superblock cannot be written.
    pub(crate) async fn ensure_doubted(&self) -> Result<()> {
        if !self.failure.is_set() || self.health.is_safe() {
            return Ok(());
        }
        let written = superblocks::doubt(self).await;
        self.health.set_recorded(written.is_ok());
        written.map_err(|source| {
            Error::io(ErrorKind::Unavailable, "cannot record on a volume that its engine failed", source)
        })
    }

    /// Begins to write to the superblock that the volume must be emptied at the next start. Once this is durable,
    /// pending removals are safe from a kill.
    fn doubt(&self) {
        let recorded = self.health.recorded_flag();
        let done = Completion::callback(move |outcome: io::Result<()>| match outcome {
            Ok(()) => recorded.store(true, Ordering::SeqCst),
            Err(error) => tracing::error!(%error, "cannot record on a volume that its engine failed"),
        });
        superblocks::change_with(self, |superblock| superblock.is_doubtful = true, done);
    }
}

fn has_failed() -> Error {
    let place = "the volume of this entry has failed and is not used until it is opened again";
    Error::new(ErrorKind::Unavailable, place)
}

fn message_of(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown")
}
