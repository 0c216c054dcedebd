//! The locks and atomics of engines, indexes and layouts.
//!
//! Normally these are the standard library's. With the feature `shuttle` they belong to a scheduler that runs one
//! thread at a time and chooses the next thread at each lock or atomic. `tests/shuttle` can then try interleavings that
//! occur on a machine once in a year. Locks that are held only for a moment, with no other lock inside (counters,
//! completions, the wakeup of the maintenance thread), are not covered.

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

pub(crate) use larder_device::IgnorePoison;
