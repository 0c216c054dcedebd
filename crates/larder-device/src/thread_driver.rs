//! The part of a ring that a thread's event loop turns.

use std::task::Waker;

/// Drives the I/O ring of a thread. The thread's event loop must call [`Self::turn`].
///
/// It is `Send`, so that a task can own it, but `turn` only has an effect on the thread that attached the ring. Call it
/// again in two cases. First, when the waker of the last call is woken, because the thread has queued an operation.
/// Second, when the event descriptor becomes readable, because the kernel has completed one. Poll the descriptor
/// edge-triggered and never read it. Dropping the driver waits for the ring's operations and detaches the thread.
pub struct ThreadDriver {
    turn: Box<dyn DriverTurn + Send>,
}

impl_debug!(ThreadDriver {});

/// The ring behind a [`ThreadDriver`].
pub(crate) trait DriverTurn {
    fn turn(&mut self, waker: &Waker);
    fn event_descriptor(&self) -> std::os::fd::BorrowedFd<'_>;
}

impl ThreadDriver {
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only io_uring has such drivers"))]
    pub(crate) fn new(turn: Box<dyn DriverTurn + Send>) -> Self {
        Self { turn }
    }

    /// Submits the queued operations, delivers those that are complete, and remembers `waker` for operations queued
    /// later.
    pub fn turn(&mut self, waker: &Waker) {
        self.turn.turn(waker);
    }
}

impl std::os::fd::AsFd for ThreadDriver {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.turn.event_descriptor()
    }
}
