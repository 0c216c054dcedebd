//! The lock around an engine's state. It marks the volume if a task panics while it has the state. In debug builds it
//! checks the state when it is released.
//!
//! Owns: when checks happen. Each state defines its conditions ([`CheckedState`]). Cost: none in release builds. In
//! debug builds, a check examines at most [`LOOKS_PER_CHANGE`] items per change on average: a small state is checked at
//! every change, a large one only after many changes.

use crate::sync::IgnorePoison;
use crate::{
    sync::{Mutex, MutexGuard},
    volume::failure::FailureMark,
};
use std::{
    ops::{Deref, DerefMut},
    thread,
};

/// Maximum number of items that checks examine per change, on average, in debug builds.
const LOOKS_PER_CHANGE: u64 = 512;

/// A state whose invariants can be checked.
pub(crate) trait CheckedState {
    /// Checks the invariants that hold while no task is changing the state.
    ///
    /// # Panics
    /// If an invariant is violated.
    fn check(&self);

    /// Returns roughly how many items [`Self::check`] examines.
    fn check_cost(&self) -> u64;
}

/// A lock around the state of an engine.
pub(crate) struct StateLock<S> {
    inner: Mutex<Inner<S>>,
    /// Failure mark of the volume. It is set if a task panics while this task has the state locked.
    failure: FailureMark,
}

struct Inner<S> {
    state: S,
    /// Number of changes since the invariants were last checked.
    unchecked: u64,
}

/// Exclusive access to the locked state. Dropping it releases the lock.
pub(crate) struct LockedState<'a, S: CheckedState> {
    inner: MutexGuard<'a, Inner<S>>,
    failure: &'a FailureMark,
    is_changed: bool,
    /// Whether the thread was already panicking when it locked the state.
    was_panicking: bool,
}

impl<S: CheckedState> StateLock<S> {
    /// Creates the lock around `state`. `failure` is set if a task panics while it has the state locked.
    pub(crate) fn new(state: S, failure: FailureMark) -> Self {
        Self { inner: Mutex::new(Inner { state, unchecked: 0 }), failure }
    }

    pub(crate) fn lock(&self) -> LockedState<'_, S> {
        // A poisoned state is marked, and the fence drops whatever is found in it.
        let inner = self.inner.lock().ignore_poison();
        LockedState { inner, failure: &self.failure, is_changed: false, was_panicking: thread::panicking() }
    }
}

impl<S: CheckedState> Deref for LockedState<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.inner.state
    }
}

impl<S: CheckedState> DerefMut for LockedState<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        self.is_changed = true;
        &mut self.inner.state
    }
}

impl<S: CheckedState> Drop for LockedState<'_, S> {
    fn drop(&mut self) {
        if thread::panicking() {
            if !self.was_panicking {
                // Before the state is released, so that a task that takes it next finds the mark.
                self.failure.set();
            }
            return;
        }
        // Calls that a failure ends may leave more behind.
        if !cfg!(debug_assertions) || !self.is_changed || self.failure.is_set() {
            return;
        }
        self.inner.unchecked += 1;
        if self.inner.unchecked * LOOKS_PER_CHANGE >= self.inner.state.check_cost() {
            self.inner.unchecked = 0;
            self.inner.state.check();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Even(u64, u64);

    impl CheckedState for Even {
        fn check(&self) {
            assert!(self.0.is_multiple_of(2), "{} is odd", self.0);
        }

        fn check_cost(&self) -> u64 {
            self.1
        }
    }

    #[test]
    #[should_panic = "3 is odd"]
    fn a_small_state_is_checked_at_every_change() {
        let lock = StateLock::new(Even(1, 1), FailureMark::default());
        assert_eq!(lock.lock().0, 1, "to look is no change");
        lock.lock().0 = 2;
        lock.lock().0 = 3;
    }

    /// Guards against results from a state that a panic left half changed.
    #[test]
    fn state_that_a_panicking_task_held_is_marked_before_others_get_it() {
        let mark = FailureMark::default();
        let lock = StateLock::new(Even(1, 1), mark.clone());
        let outcome = thread::scope(|scope| {
            let panicking = || {
                let _state = lock.lock();
                panic!("a failed assertion");
            };
            scope.spawn(panicking).join()
        });
        assert!(outcome.is_err());
        drop(lock.lock());
        assert!(mark.is_set());
    }

    #[test]
    fn panic_of_another_origin_does_not_mark_a_state_that_is_taken_while_it_unwinds() {
        struct Looks<'a>(&'a StateLock<Even>);
        impl Drop for Looks<'_> {
            fn drop(&mut self) {
                drop(self.0.lock());
            }
        }
        let mark = FailureMark::default();
        let lock = StateLock::new(Even(1, 1), mark.clone());
        let outcome = thread::scope(|scope| {
            let panicking = || {
                let _looks = Looks(&lock);
                panic!("a panic of the caller");
            };
            scope.spawn(panicking).join()
        });
        assert!(outcome.is_err());
        assert!(!mark.is_set());
    }

    #[test]
    fn a_large_state_is_checked_as_seldom_as_its_size_asks() {
        let lock = StateLock::new(Even(1, 4 * LOOKS_PER_CHANGE), FailureMark::default());
        (0..3).for_each(|_| lock.lock().0 = 3);
        lock.lock().0 = 4;
    }
}
