//! Waiting until what an earlier run left on a volume is loaded.
//!
//! Owns: who waits. Does not: load. Invariant: whoever waits is woken once it is loaded, and nobody waits after that.

use super::Volume;
use std::{
    future::poll_fn,
    mem,
    sync::{Mutex, PoisonError, atomic::Ordering},
    task::{Poll, Waker},
};

/// Those who wait for one volume.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<Vec<Waker>>);

impl Volume {
    /// Waits until everything is loaded.
    pub(crate) async fn loaded(&self) {
        poll_fn(|context| {
            let mut waiting = self.waiting.0.lock().unwrap_or_else(PoisonError::into_inner);
            if self.counters.loaded.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
            if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Notes that everything is loaded.
    pub(crate) fn set_loaded(&self) {
        let woken = {
            let mut waiting = self.waiting.0.lock().unwrap_or_else(PoisonError::into_inner);
            self.counters.loaded.store(true, Ordering::Release);
            mem::take(&mut *waiting)
        };
        woken.into_iter().for_each(Waker::wake);
    }
}
