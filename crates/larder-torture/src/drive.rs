//! Runs futures on this thread and turns the device while they wait, so that nothing happens outside these turns.

use larder_device::FaultyDevice;
use std::{
    fmt,
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

/// Error: a future waits, but neither the device nor a thread has work left that could wake it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck;

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it waits although nothing is on its way")
    }
}

/// Polls `future` until it is ready. While it waits, advances `device` by its pending operations.
///
/// # Errors
/// [`Stuck`] if the future waits and nothing is left that could wake it.
pub fn drive<T>(device: &FaultyDevice, future: impl Future<Output = T>) -> Result<T, Stuck> {
    let mut future = pin!(future);
    let flag = Flag::new();
    loop {
        if let Poll::Ready(outcome) = flag.poll(future.as_mut()) {
            return Ok(outcome);
        }
        while !flag.is_raised() {
            if !device.turn() && !flag.wait(PATIENCE_ROUNDS) {
                return Err(Stuck);
            }
        }
    }
}

/// Waker of a future. Its flag is raised when the future must be polled again.
pub(crate) struct Flag {
    raised: AtomicBool,
    thread: Thread,
}

impl Flag {
    /// Creates a raised flag, which wakes the calling thread when it is raised again.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { raised: AtomicBool::new(true), thread: thread::current() })
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }

    /// Lowers the flag and polls the future, which can raise the flag again.
    pub(crate) fn poll<T>(self: &Arc<Self>, future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
        self.raised.store(false, Ordering::Release);
        future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(self))))
    }

    /// Waits up to `rounds` times [`PATIENCE_ROUND`] for another thread of the engine to raise the flag. Returns
    /// whether it is raised.
    pub(crate) fn wait(&self, rounds: u32) -> bool {
        for _ in 0..rounds {
            if self.is_raised() {
                return true;
            }
            thread::park_timeout(PATIENCE_ROUND);
        }
        self.is_raised()
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.raised.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Time of one round in which [`Flag::wait`] waits for another thread. It only limits how long a stuck test takes, and
/// no result depends on it.
const PATIENCE_ROUND: Duration = Duration::from_millis(100);
pub(crate) const PATIENCE_ROUNDS: u32 = 100;
