//! Counts how often all output for a client of HTTP/2 has been written.
//!
//! A body that cannot be completed ends with a reset. h2 then drops everything of the stream that it has not written
//! yet, even the response's head. So a body delays its error until the earlier output is written. Owns: the count, and
//! the wakers. Cost: one plain addition and load per flush.

use larder_device::IgnorePoison;
use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Waker},
};

/// Counts how often all output of an HTTP/2 connection was written.
#[derive(Default)]
pub(crate) struct FlushCounter {
    count: AtomicU64,
    awaited: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl FlushCounter {
    /// Records that all output has been written.
    pub(crate) fn note(&self) {
        self.count.fetch_add(1, SeqCst);
        if self.awaited.load(SeqCst) {
            let mut wakers = self.lock();
            self.awaited.store(false, SeqCst);
            wakers.drain(..).for_each(Waker::wake);
        }
    }

    /// Returns the number of complete flushes.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(SeqCst)
    }

    /// Returns whether a flush completed since [`Self::count`] returned `before`. If not, the next flush wakes the
    /// caller.
    pub(crate) fn is_after(&self, before: u64, context: &Context<'_>) -> bool {
        self.remember(context);
        self.count() > before
    }

    /// Registers the caller's waker for the next flush. Must precede reading the count, so that no flush is missed.
    fn remember(&self, context: &Context<'_>) {
        let mut wakers = self.lock();
        if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            wakers.push(context.waker().clone());
        }
        self.awaited.store(true, SeqCst);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waker>> {
        self.wakers.lock().ignore_poison()
    }
}
