//! The part of a ring that a thread's event loop turns.

use std::task::Waker;

/// Drives the I/O ring of a thread. The thread's event loop must call [`Self::turn`].
///
/// Call it again in two cases. First, when the waker of the last call is woken, because the thread has queued an
/// operation. Second, when the driver's file descriptor becomes readable, because the kernel has completed an
/// operation. Poll the descriptor edge-triggered and never read it. The driver is `Send`, so that a task can own it,
/// but `turn` only has an effect on the thread that attached the ring. Dropping it waits for the ring's operations and
/// detaches the thread.
///
/// ```
/// use larder_device::{IoChoice, VolumeFile, open_device};
/// use std::{pin::pin, task::{Context, Poll, Waker}};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("volume");
/// let device = open_device(VolumeFile::create(&path, 1 << 20)?, IoChoice::Auto)?;
/// // `None` if the kernel refuses io_uring. Then threads read, and no driver is needed.
/// if let Some(mut driver) = device.attach_thread() {
///     let mut pending = pin!(device.read(0, 4096));
///     let mut context = Context::from_waker(Waker::noop());
///     let outcome = loop {
///         driver.turn(Waker::noop());
///         // An event loop sleeps here until the waker or the descriptor wakes it.
///         if let Poll::Ready(outcome) = pending.as_mut().poll(&mut context) {
///             break outcome;
///         }
///     };
///     assert_eq!(outcome?.as_slice(), [0; 4096]);
/// }
/// # Ok(())
/// # }
/// ```
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
