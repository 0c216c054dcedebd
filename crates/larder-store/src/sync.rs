//! The locks and atomics of engines, indexes and layouts: the standard library's.
//!
//! With the feature `shuttle` they are those of a scheduler that runs one thread at a time and decides at each of them who goes
//! on, so that `tests/shuttle` can try interleavings that a machine comes to once in a year. Does not: cover what is
//! locked only for a moment with no other lock within it (counters, completions, how the maintenance thread is woken).

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

pub(crate) use std::sync::PoisonError;
