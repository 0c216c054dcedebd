//! The locks and atomics of engines, indexes and layouts: the standard library's.
//!
//! With the feature `shuttle` they are those of a scheduler that runs one thread at a time, and chooses the next thread
//! at each lock or atomic. So `tests/shuttle` can try interleavings that a machine produces once in a year. Locks that
//! are held only for a moment, with no other lock inside, are not covered (counters, completions, the wakeup of the
//! maintenance thread).

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

pub(crate) use std::sync::PoisonError;
