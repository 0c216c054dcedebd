//! Locks that go on after a panic of their holder.
//!
//! The program's panic hook ends the process, except for a panic inside a volume's engine. Then the volume's fence
//! keeps everybody from the state, and the volume is opened again. So poison tells nobody anything.

use std::sync::PoisonError;

/// Access to locks that may be poisoned, because a thread has panicked while it held the lock.
///
/// Use it where a panic ends the process, or where the state behind the lock is valid at every moment. Then poison is
/// no reason to fail.
///
/// ```
/// use larder_device::IgnorePoison;
/// use std::{panic::{AssertUnwindSafe, catch_unwind}, sync::Mutex};
///
/// let count = Mutex::new(1);
/// let outcome = catch_unwind(AssertUnwindSafe(|| {
///     let _held = count.lock();
///     panic!("while it holds the lock");
/// }));
/// assert!(outcome.is_err() && count.is_poisoned());
/// assert_eq!(*count.lock().ignore_poison(), 1);
/// ```
pub trait IgnorePoison<T> {
    /// Returns the guard or value of a lock, even if a holder of the lock has panicked.
    fn ignore_poison(self) -> T;
}

impl<T> IgnorePoison<T> for Result<T, PoisonError<T>> {
    #[inline]
    fn ignore_poison(self) -> T {
        self.unwrap_or_else(PoisonError::into_inner)
    }
}
