//! Waits until the entries of an earlier run are loaded.
//!
//! Owns: the waiting tasks. Loading is elsewhere. Invariant: every waiting task is woken once the entries are loaded,
//! and no task waits after that.

use super::{
    Volume,
    waiters::{TaskWaiters, wait_for},
};
use std::sync::{Mutex, MutexGuard, PoisonError, atomic::Ordering};

/// The tasks that wait for a volume.
#[derive(Default)]
pub(crate) struct LoadWaiters(Mutex<TaskWaiters>);

impl LoadWaiters {
    fn lock(&self) -> MutexGuard<'_, TaskWaiters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Volume {
    /// Waits until everything is loaded.
    pub(crate) async fn loaded(&self) {
        let is_loaded = |_: &mut TaskWaiters| self.counters.loaded.load(Ordering::Acquire).then_some(());
        wait_for(|| self.waiting.lock(), is_loaded).await;
    }

    /// Notes that everything is loaded.
    pub(crate) fn set_loaded(&self) {
        let woken = {
            let mut waiting = self.waiting.lock();
            self.counters.loaded.store(true, Ordering::Release);
            waiting.take()
        };
        woken.wake();
    }
}
