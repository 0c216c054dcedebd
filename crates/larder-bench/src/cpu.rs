//! Processor time as the kernel counts it.
//!
//! Owns: reading it, of this process and of a thread. Invariant: times of a process are those of all its threads, also of
//! those that have ended; the kernel's work for them counts.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Processor time of this process so far.
pub(crate) fn own() -> Duration {
    of_clock(ClockId::ProcessCPUTime)
}

/// Processor time of this thread so far.
pub(crate) fn of_thread() -> Duration {
    of_clock(ClockId::ThreadCPUTime)
}

fn of_clock(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}
