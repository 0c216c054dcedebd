//! Reads processor time from the kernel's counters.
//!
//! Owns: the readings for this process and for a thread. Invariant: the time of a process includes all its threads,
//! even ended ones, and the kernel's work for them.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the processor time of this process so far.
pub(crate) fn own() -> Duration {
    of_clock(ClockId::ProcessCPUTime)
}

/// Returns the processor time of this thread so far.
pub(crate) fn of_thread() -> Duration {
    of_clock(ClockId::ThreadCPUTime)
}

fn of_clock(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}
