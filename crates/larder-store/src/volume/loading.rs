//! Waits until the entries of an earlier run are loaded.
//!
//! Owns: the waiting tasks. Loading is elsewhere. Invariant: every waiting task is woken once the entries are loaded,
//! and no task waits after that.

use super::waiters::{TaskWaiters, wait_for};
use crate::sync::IgnorePoison;
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};

/// The tasks that wait until entries of an earlier run are loaded.
#[derive(Default)]
pub(crate) struct LoadWaiters(Mutex<TaskWaiters>);

impl LoadWaiters {
    /// Waits until `is_loaded` returns `true`. Calls it again after each [`Self::set_loaded`] and [`Self::note_part`].
    pub(super) async fn wait(&self, is_loaded: impl Fn() -> bool) {
        wait_for(|| self.lock(), |_: &mut TaskWaiters| is_loaded().then_some(())).await;
    }

    /// Wakes the waiting tasks to check again, because another part of the entries is loaded.
    pub(super) fn note_part(&self) {
        let woken = self.lock().take();
        woken.wake();
    }

    /// Sets the flag `is_loaded`, and wakes the waiting tasks.
    pub(super) fn set_loaded(&self, is_loaded: &AtomicBool) {
        let woken = {
            let mut waiting = self.lock();
            is_loaded.store(true, Ordering::Release);
            waiting.take()
        };
        woken.wake();
    }

    fn lock(&self) -> MutexGuard<'_, TaskWaiters> {
        self.0.lock().ignore_poison()
    }
}
