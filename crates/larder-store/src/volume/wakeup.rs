//! Wakes a store's maintenance thread, and tracks whether a sync is needed.
//!
//! Owns: whether the thread sleeps, was called, or must stop, and whether bytes were written since the last sync.
//! Invariant: a call is never lost. Cost of [`MaintenanceWakeup::wake_if_idle`]: one relaxed load while the thread is
//! awake.

use crate::sync::IgnorePoison;
use std::{
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Wakes the maintenance thread, and remembers whether written bytes need a sync.
#[derive(Default)]
pub(crate) struct MaintenanceWakeup {
    state: Mutex<WakeupState>,
    condition: Condvar,
    /// Whether the maintenance thread sleeps without a time limit, because nothing is due.
    idle: AtomicBool,
}

#[derive(Default)]
struct WakeupState {
    called: bool,
    stop: bool,
    /// Whether bytes were written since the last sync began.
    unsynced: bool,
    sync_in_flight: bool,
    last_sync: Duration,
}

impl WakeupState {
    fn sync_is_due(&self, now: Duration, interval: Duration) -> bool {
        self.unsynced && !self.sync_in_flight && now >= self.last_sync + interval
    }
}

impl MaintenanceWakeup {
    /// Wakes the maintenance thread.
    pub(crate) fn wake(&self) {
        self.lock().called = true;
        self.condition.notify_one();
    }

    /// Wakes the maintenance thread if it sleeps without a time limit. Otherwise costs one relaxed load.
    pub(crate) fn wake_if_idle(&self) {
        if self.idle.load(Ordering::Relaxed) && self.idle.swap(false, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Notes that bytes were written, so that a sync is needed.
    pub(crate) fn written(&self) {
        self.lock().unsynced = true;
    }

    pub(crate) fn stop(&self) {
        self.lock().stop = true;
        self.wake();
    }

    pub(crate) fn stopped(&self) -> bool {
        self.lock().stop
    }

    /// Returns whether bytes need a sync and `interval` has passed since the last one.
    pub(crate) fn sync_is_due(&self, now: Duration, interval: Duration) -> bool {
        self.lock().sync_is_due(now, interval)
    }

    /// Returns whether a sync is due now. If so, it counts as begun: the caller must submit it without waiting for
    /// anything first, because its future may be dropped while it waits.
    pub(crate) fn begin_sync(&self, now: Duration, interval: Duration) -> bool {
        let mut state = self.lock();
        let is_due = state.sync_is_due(now, interval);
        if is_due {
            *state = WakeupState { unsynced: false, sync_in_flight: true, last_sync: now, ..*state };
        }
        is_due
    }

    pub(crate) fn synced(&self, ok: bool) {
        let mut state = self.lock();
        state.sync_in_flight = false;
        state.unsynced |= !ok;
    }

    /// Puts the maintenance thread to sleep until it is woken, or until the time that `next_due` returns has passed.
    /// Sleeps only briefly while written bytes need a sync.
    pub(crate) fn wait(&self, next_due: impl Fn() -> Option<Duration>) {
        // The order matters: a task that makes work due after this check finds `idle` set, and calls.
        self.idle.store(true, Ordering::Release);
        let due = next_due();
        let mut state = self.lock();
        let sync_due = (state.unsynced || state.sync_in_flight).then_some(TICK);
        let pause = due.into_iter().chain(sync_due).min();
        self.idle.store(pause.is_none(), Ordering::Release);
        if !state.called {
            state = match pause {
                Some(pause) => self.condition.wait_timeout(state, pause).ignore_poison().0,
                None => self.condition.wait(state).ignore_poison(),
            };
        }
        state.called = false;
        self.idle.store(false, Ordering::Release);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, WakeupState> {
        self.state.lock().ignore_poison()
    }
}

/// Interval at which the maintenance thread wakes while there is dirty data.
pub(crate) const TICK: Duration = Duration::from_millis(50);
