//! Watches the writes and syncs of a volume, so that no sync that fails is forgotten.
//!
//! Owns: how many writes have begun, have ended, and are durable; the devices that count them. What a lost write leads
//! to is in [`super::fence`]. Invariants: every write and sync of every engine passes here. When a sync fails, the
//! volume fails before the caller of the sync learns of it, so that nothing is acknowledged in between. A sync that
//! succeeds later proves nothing: the system may have dropped the writes and reports that only once. A volume to which
//! nothing was written since its last good sync has nothing to lose.
//!
//! Cost: a lock and an allocation for each write and sync. Reads pass through.

use super::{
    failure::FailureMark,
    waiters::{TaskWaiters, wait_for},
};
use crate::device::{Completion, Device, Directory, FileWork, Transfer};
use crate::sync::IgnorePoison;
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard},
    thread,
};

/// Counts the writes and syncs of one device or directory, and notices when a failed sync may have lost writes.
#[derive(Default)]
pub(crate) struct SyncWatch(Mutex<WatchState>);

/// A function that is called with the error of a sync that may have lost writes. It is called before the caller of the
/// sync learns of the error.
type LossCallback = Arc<dyn Fn(&io::Error) + Send + Sync>;

#[derive(Default)]
struct WatchState {
    /// Number of writes that began. `ended` is the number of those that ended, whether they succeeded or failed.
    begun: u64,
    ended: u64,
    /// Number of syncs whose callers have not been told the outcome yet.
    sync_count: u64,
    /// Number of writes that the last successful sync covers.
    durable: u64,
    /// The function to call when a failed sync may have lost writes.
    on_loss: Option<LossCallback>,
    waiting: TaskWaiters,
}

impl SyncWatch {
    /// Sets the function that is called when a failed sync may have lost writes.
    pub(crate) fn set_on_loss(&self, on_loss: impl Fn(&io::Error) + Send + Sync + 'static) {
        self.lock().on_loss = Some(Arc::new(on_loss));
    }

    /// Waits until no write or sync is in flight.
    pub(crate) async fn drained(&self) {
        let is_idle = |state: &mut WatchState| (state.begun == state.ended && state.sync_count == 0).then_some(());
        wait_for(|| self.lock(), is_idle).await;
    }

    /// Counts a write that begins now. Returns a completion for it, which also counts its end and then completes
    /// `completion`.
    fn write(self: &Arc<Self>, completion: Completion<()>) -> Completion<()> {
        self.lock().begun += 1;
        let watch = Arc::clone(self);
        Completion::callback(move |outcome| {
            let woken = {
                let mut state = watch.lock();
                state.ended += 1;
                assert!(state.ended <= state.begun, "a write ends once");
                state.waiting.take()
            };
            woken.wake();
            completion.complete(outcome);
        })
    }

    /// Counts a sync that begins now. Returns a completion for it, which also notes its outcome and then completes
    /// `completion`.
    pub(crate) fn sync(self: &Arc<Self>, completion: Completion<()>) -> Completion<()> {
        let covered = {
            let mut state = self.lock();
            state.sync_count += 1;
            state.ended
        };
        let watch = Arc::clone(self);
        let running = RunningSync(Arc::clone(self));
        Completion::callback(move |outcome: io::Result<()>| {
            // Ends after the caller has learned of the sync, also if the caller's code panics.
            let _running = running;
            if let Some(on_loss) = watch.note_sync(covered, outcome.is_ok())
                && let Err(error) = &outcome
            {
                on_loss(error);
            }
            completion.complete(outcome);
        })
    }

    /// Records the outcome of a sync. `covered` writes had ended when it began. If it failed and writes may be lost,
    /// returns the function to call.
    fn note_sync(&self, covered: u64, is_ok: bool) -> Option<LossCallback> {
        let mut state = self.lock();
        if is_ok {
            state.durable = state.durable.max(covered);
            return None;
        }
        // A panic drops the operations that it interrupts. It fails the volume by itself.
        let loses = state.begun > state.durable && !thread::panicking();
        if loses { state.on_loss.clone() } else { None }
    }

    fn lock(&self) -> MutexGuard<'_, WatchState> {
        self.0.lock().ignore_poison()
    }
}

/// A sync whose caller has not been told the outcome yet. Counted until it is dropped.
struct RunningSync(Arc<SyncWatch>);

impl Drop for RunningSync {
    fn drop(&mut self) {
        let woken = {
            let mut state = self.0.lock();
            assert!(state.sync_count > 0, "a sync ends once");
            state.sync_count -= 1;
            state.waiting.take()
        };
        woken.wake();
    }
}

impl AsMut<TaskWaiters> for WatchState {
    fn as_mut(&mut self) -> &mut TaskWaiters {
        &mut self.waiting
    }
}

/// The device that an engine uses. It counts writes and syncs, and refuses writes once the engine has failed.
pub(super) struct WatchedDevice {
    pub(super) inner: Arc<dyn Device>,
    pub(super) watch: Arc<SyncWatch>,
    pub(super) failure: FailureMark,
}

impl Device for WatchedDevice {
    fn submit(&self, transfer: Transfer) {
        let watched = match transfer {
            Transfer::Write { completion, .. } if self.failure.is_set() => {
                return completion.complete(Err(is_not_written()));
            }
            Transfer::Write { offset_bytes, buffer, completion } => {
                Transfer::Write { offset_bytes, buffer, completion: self.watch.write(completion) }
            }
            Transfer::Sync { completion } => Transfer::Sync { completion: self.watch.sync(completion) },
            read @ Transfer::Read { .. } => read,
        };
        self.inner.submit(watched);
    }

    crate::device::delegate_device!(inner);
}

/// The directory that an engine uses. It counts changes and syncs, and refuses changes once the engine has failed.
pub(super) struct WatchedDirectory {
    pub(super) inner: Arc<dyn Directory>,
    pub(super) watch: Arc<SyncWatch>,
    pub(super) failure: FailureMark,
}

impl Directory for WatchedDirectory {
    fn submit(&self, work: FileWork) {
        let watched = match work {
            FileWork::Write { completion, .. }
            | FileWork::Remove { completion, .. }
            | FileWork::Clear { completion }
                if self.failure.is_set() =>
            {
                return completion.complete(Err(is_not_written()));
            }
            FileWork::Write { file, offset_bytes, buffer, completion } => {
                FileWork::Write { file, offset_bytes, buffer, completion: self.watch.write(completion) }
            }
            FileWork::Remove { file, completion } => {
                FileWork::Remove { file, completion: self.watch.write(completion) }
            }
            FileWork::Clear { completion } => FileWork::Clear { completion: self.watch.write(completion) },
            FileWork::Sync { completion } => FileWork::Sync { completion: self.watch.sync(completion) },
            read @ (FileWork::Read { .. } | FileWork::List { .. }) => read,
        };
        self.inner.submit(watched);
    }

    fn block_bytes(&self) -> u32 {
        self.inner.block_bytes()
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn release(&self) {
        self.inner.release();
    }
}

fn is_not_written() -> io::Error {
    io::Error::other("the volume has failed, so it is not written")
}
