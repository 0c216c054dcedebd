//! The mark of a volume whose engine failed, and the calls to be woken then.
//!
//! Owns: the mark, the waiting calls, and the count of fences around a thread's code. What a failure does is in
//! [`super::fence`]. Invariant: a mark is never taken back. Cost: a lock when a call begins to wait and when it ends.

use crate::sync::IgnorePoison;
use slab::Slab;
use std::{
    any::Any,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

thread_local! {
    /// Number of fences around the code that runs on this thread.
    static FENCE_COUNT: Cell<u32> = const { Cell::new(0) };
}

/// Returns whether a panic on this thread would now end in a store, which then excludes one of its volumes.
///
/// A program that lets no other panic pass can ask this in its panic hook, and abort if the answer is `false`.
pub fn contains_panics() -> bool {
    FENCE_COUNT.get() > 0
}

/// The mark of a volume whose engine failed. Its clones share it.
#[derive(Clone, Default)]
pub(crate) struct FailureMark(Arc<AtomicBool>);

impl FailureMark {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The failure of one volume, if its engine fails.
#[derive(Default)]
pub(crate) struct VolumeFailure {
    mark: FailureMark,
    is_announced: AtomicBool,
    /// Whether the cause is a sync that failed, not an assertion.
    is_of_sync: AtomicBool,
    waiting: Mutex<Slab<Waker>>,
}

impl VolumeFailure {
    /// Returns the mark, for the locks around the engine's state.
    pub(crate) fn mark(&self) -> FailureMark {
        self.mark.clone()
    }

    pub(crate) fn is_set(&self) -> bool {
        self.mark.is_set()
    }

    /// Returns whether an assertion failed.
    pub(crate) fn is_assertion(&self) -> bool {
        self.is_set() && !self.is_of_sync.load(Ordering::Acquire)
    }

    /// Sets the mark like [`Self::set`], because a sync failed.
    pub(super) fn set_for_sync(&self) -> bool {
        let is_first = self.set();
        self.is_of_sync.fetch_or(is_first, Ordering::SeqCst);
        is_first
    }

    /// Sets the mark. Returns whether this is the first failure that its caller must announce.
    pub(super) fn set(&self) -> bool {
        self.mark.set();
        !self.is_announced.swap(true, Ordering::SeqCst)
    }

    /// Returns a call that may wait.
    pub(super) fn waiting_call(&self) -> WaitingCall<'_> {
        WaitingCall { failure: self, index: None }
    }

    /// Wakes every call that waits.
    pub(super) fn wake_all(&self) {
        let wakers: Vec<Waker> = self.waiting().iter().map(|(_, waker)| waker.clone()).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    fn waiting(&self) -> MutexGuard<'_, Slab<Waker>> {
        self.waiting.lock().ignore_poison()
    }
}

/// The place of a waiting call among those that a failure wakes. Leaves it when dropped.
pub(super) struct WaitingCall<'a> {
    failure: &'a VolumeFailure,
    index: Option<usize>,
}

impl WaitingCall<'_> {
    /// Sets the waker that a failure wakes.
    pub(super) fn note(&mut self, waker: &Waker) {
        let mut waiting = self.failure.waiting();
        match self.index {
            Some(index) => waiting[index].clone_from(waker),
            None => self.index = Some(waiting.insert(waker.clone())),
        }
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        if let Some(index) = self.index {
            self.failure.waiting().remove(index);
        }
    }
}

/// The panic of a caller's code, which no fence around it may contain.
pub(crate) struct CallersPanic(Box<dyn Any + Send>);

impl CallersPanic {
    /// Continues the panic, outside of the fence.
    pub(crate) fn resume(self) -> ! {
        resume_unwind(self.0)
    }
}

/// Runs code of the store's caller inside a fence. Its panic is not one of the engine, so it must leave the fence as a
/// value and be resumed outside.
///
/// # Errors
/// The panic of `code`.
pub(crate) fn unfenced<T>(code: impl FnOnce() -> T) -> std::result::Result<T, CallersPanic> {
    /// Enters the fences again when dropped.
    struct Outside(u32);
    impl Drop for Outside {
        fn drop(&mut self) {
            FENCE_COUNT.set(self.0);
        }
    }
    let _outside = Outside(FENCE_COUNT.replace(0));
    // The caller's data is not used before the panic goes on.
    catch_unwind(AssertUnwindSafe(code)).map_err(CallersPanic)
}

/// Runs `step` and catches its panic.
pub(super) fn caught<T>(step: impl FnOnce() -> T) -> std::result::Result<T, Box<dyn Any + Send>> {
    /// Leaves the fence when dropped.
    struct Inside;
    impl Drop for Inside {
        fn drop(&mut self) {
            FENCE_COUNT.set(FENCE_COUNT.get() - 1);
        }
    }
    FENCE_COUNT.set(FENCE_COUNT.get() + 1);
    let _inside = Inside;
    // Nothing of the engine is used after a panic: the mark is set.
    catch_unwind(AssertUnwindSafe(step))
}
