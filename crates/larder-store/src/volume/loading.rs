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

/// The tasks that wait for a volume.
#[derive(Default)]
pub(crate) struct LoadWaiters(Mutex<TaskWaiters>);

impl LoadWaiters {
    /// Waits until `is_loaded` is set by [`Self::set_loaded`].
    pub(super) async fn wait(&self, is_loaded: &AtomicBool) {
        let has_ended = |_: &mut TaskWaiters| is_loaded.load(Ordering::Acquire).then_some(());
        wait_for(|| self.lock(), has_ended).await;
    }

    /// Sets `is_loaded`, and wakes the tasks that wait for it.
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
