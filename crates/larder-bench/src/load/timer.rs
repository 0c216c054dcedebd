//! Waits for a moment, precise to a microsecond.
//!
//! The runtime's own timers have a resolution of a millisecond. At a thousand requests per second, that is the time
//! between two requests. Therefore this module uses a timer of the kernel. Invariant: a wait never ends early.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::{io, os::fd::OwnedFd, time::Instant};
use tokio::io::{Interest, unix::AsyncFd};

pub(super) struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    #[expect(deprecated, reason = "its successor is unsafe for descriptors that change under it; an OwnedFd does not")]
    pub(super) fn new() -> io::Result<Self> {
        let file = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Self(AsyncFd::with_interest(file, Interest::READABLE)?))
    }

    /// Waits until `moment`.
    pub(super) async fn wait_until(&self, moment: Instant) -> io::Result<()> {
        loop {
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let it_value = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value })?;
            let mut ready = self.0.readable().await?;
            let mut expirations = [0; 8];
            // Reading makes the timer ready for the next wait. If there is nothing to read, the runtime woke this task
            // too early, and the loop waits again.
            let _ = rustix::io::read(self.0.get_ref(), &mut expirations);
            ready.clear_ready();
        }
    }
}
