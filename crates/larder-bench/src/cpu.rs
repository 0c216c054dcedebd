//! Processor time as the kernel counts it.
//!
//! Owns: reading it, of this process and of others. Invariant: times are those of all threads, also of those that
//! have ended, and of the kernel's work for them.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Processor time of this process so far.
pub(crate) fn own() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}
