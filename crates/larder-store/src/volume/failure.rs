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
    /// Number of nested fences (`Volume::fence`, which catches panics) around the code that this thread is running.
    static FENCE_COUNT: Cell<u32> = const { Cell::new(0) };
}

/// Returns whether the store would catch a panic of this thread now. It then excludes the volume whose engine panicked.
///
/// A program that aborts on all other panics can call this in its panic hook:
///
/// ```
/// std::panic::set_hook(Box::new(|panic| {
///     eprintln!("{panic}");
///     if !larder_store::contains_panics() {
///         std::process::abort();
///     }
/// }));
/// # let _ = std::panic::take_hook();
/// ```
pub fn contains_panics() -> bool {
    FENCE_COUNT.get() > 0
}

/// Marks that the engine of a volume has failed. All clones are the same mark.
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

/// Whether a volume's engine has failed, and the calls to wake when it fails.
#[derive(Default)]
pub(crate) struct VolumeFailure {
    mark: FailureMark,
    is_announced: AtomicBool,
    /// Whether the engine failed because of a sync. If not, it failed because of an assertion.
    is_of_sync: AtomicBool,
    waiting: Mutex<Slab<Waker>>,
}

impl VolumeFailure {
    /// Returns the mark that says whether the engine has failed. The locks around the engine's state set it when a task
    /// panics while holding them.
    pub(crate) fn mark(&self) -> FailureMark {
        self.mark.clone()
    }

    pub(crate) fn is_set(&self) -> bool {
        self.mark.is_set()
    }

    /// Returns whether the engine failed by an assertion, and not by a sync.
    pub(crate) fn is_assertion(&self) -> bool {
        self.is_set() && !self.is_of_sync.load(Ordering::Acquire)
    }

    /// Marks the engine as failed because a sync failed. Returns what [`Self::set`] returns.
    pub(super) fn set_for_sync(&self) -> bool {
        let is_first = self.set();
        self.is_of_sync.fetch_or(is_first, Ordering::SeqCst);
        is_first
    }

    /// Marks the engine as failed. Returns whether this call is the first to do so: its caller must then announce the
    /// failure.
    pub(super) fn set(&self) -> bool {
        self.mark.set();
        !self.is_announced.swap(true, Ordering::SeqCst)
    }

    /// Creates the registration of a call that may wait. A failure wakes it.
    pub(super) fn waiting_call(&self) -> WaitingCall<'_> {
        WaitingCall { failure: self, index: None }
    }

    /// Wakes all registered calls, so that they return the failure.
    pub(super) fn wake_all(&self) {
        let wakers: Vec<Waker> = self.waiting().iter().map(|(_, waker)| waker.clone()).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    fn waiting(&self) -> MutexGuard<'_, Slab<Waker>> {
        self.waiting.lock().ignore_poison()
    }
}

/// The registration of a call that waits inside the engine. A failure wakes it. Dropping this ends the registration.
pub(super) struct WaitingCall<'a> {
    failure: &'a VolumeFailure,
    index: Option<usize>,
}

impl WaitingCall<'_> {
    /// Sets the waker that a failure wakes. Replaces an earlier waker of the same call.
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

/// A panic in code of the store's caller, which the store runs but must not catch.
pub(crate) struct CallersPanic(Box<dyn Any + Send>);

impl CallersPanic {
    /// Resumes the panic. To be called outside of the fence, which would catch it again.
    pub(crate) fn resume(self) -> ! {
        resume_unwind(self.0)
    }
}

/// Runs code of the store's caller while inside a fence. If the code panics, the engine is not at fault. The panic is
/// therefore returned as a value, and the caller of this function resumes it outside of the fence.
///
/// # Errors
/// The panic of `code`.
pub(crate) fn unfenced<T>(code: impl FnOnce() -> T) -> std::result::Result<T, CallersPanic> {
    /// Restores the thread's number of fences when it is dropped.
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

/// Runs `step` inside a fence: catches its panic and returns it as an error.
pub(super) fn caught<T>(step: impl FnOnce() -> T) -> std::result::Result<T, Box<dyn Any + Send>> {
    /// Reduces the thread's number of fences by one when it is dropped.
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
