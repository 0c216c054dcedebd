//! Locks that go on after a panic of their holder.
//!
//! The program's panic hook ends the process, except for a panic inside a volume's engine. Then the volume's fence
//! keeps everybody from the state, and the volume is opened again. So poison tells nobody anything.

use std::sync::PoisonError;

/// Access to locks that may be poisoned, because a thread has panicked while it held the lock.
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
