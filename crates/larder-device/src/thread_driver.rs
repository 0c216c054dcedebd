//! The part of a ring that a thread's event loop turns.

use std::task::Waker;

/// A thread's own ring. The thread's event loop must turn it.
///
/// It is `Send`, so it may be moved into a task, but turns have an effect only on the thread that attached it. When the
/// thread queues an operation, the waker of the last turn is woken once. When the kernel completes an operation, the
/// event descriptor becomes readable (use edge-triggered polling and never read it). Dropping the driver waits for the
/// ring's operations and detaches the thread.
pub struct ThreadDriver {
    turn: Box<dyn DriverTurn + Send>,
}

impl_debug!(ThreadDriver {});

/// The interface between a ring and [`ThreadDriver`].
pub(crate) trait DriverTurn {
    fn turn(&mut self, waker: &Waker);
    fn event_descriptor(&self) -> std::os::fd::BorrowedFd<'_>;
}

impl ThreadDriver {
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only io_uring has such drivers"))]
    pub(crate) fn new(turn: Box<dyn DriverTurn + Send>) -> Self {
        Self { turn }
    }

    /// Submits queued operations, delivers completed ones, and remembers `waker`.
    pub fn turn(&mut self, waker: &Waker) {
        self.turn.turn(waker);
    }
}

impl std::os::fd::AsFd for ThreadDriver {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.turn.event_descriptor()
    }
}
