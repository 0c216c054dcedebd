//! The device interface: asynchronous I/O between aligned buffers and a flat range of bytes.
//!
//! Owns: the [`Device`] trait, the [`Transfer`] submitted to it, and the completion that comes back. What is written
//! where is decided elsewhere. Invariant: every operation completes exactly once, with an error if its device is
//! dropped. Cost: one allocation per awaited operation.

mod blocking;
mod buffer;
mod creation;
mod directory;
mod faulty;
mod in_flight;
mod memory;
mod overlay;
mod pool;
mod queue;
mod threads;
#[cfg(target_os = "linux")]
mod uring;
mod volume;

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

pub use blocking::block_on;
pub(crate) use buffer::BUFFER_ALIGNMENT_BYTES;
pub use buffer::{AlignedBuffer, release_unused_buffers};
pub(crate) use creation::UnfinishedFile;
pub use directory::{Directory, FileName, FileWork, FilesDirectory, MemoryDirectory};
pub use faulty::{FaultPlan, FaultStats, FaultyDevice};
pub use memory::MemoryDevice;
pub use overlay::OverlayDevice;
pub use threads::ThreadsDevice;
#[cfg(target_os = "linux")]
pub use uring::UringDevice;
pub use volume::{VolumeFile, open_device};

/// A flat range of bytes with asynchronous I/O.
///
/// Offsets and lengths of reads and writes are multiples of [`Device::alignment_bytes`]. A device refuses others with
/// [`io::ErrorKind::InvalidInput`], and never reads or writes beyond its length.
pub trait Device: Send + Sync + 'static {
    /// Starts `transfer` and returns at once. The completion delivers the outcome, possibly before this call returns.
    /// The device continues short reads and writes.
    fn submit(&self, transfer: Transfer);

    /// Returns the length in bytes, which never changes.
    fn len_bytes(&self) -> u64;

    /// Returns the unit of offsets and lengths, a power of two between 512 and 4096.
    fn alignment_bytes(&self) -> u32;

    /// Returns the name of the implementation for logs and metrics, such as `io_uring`.
    fn name(&self) -> &'static str;

    /// Gives the calling thread an I/O ring of its own for its reads, if the device supports that. The caller must turn
    /// the driver on this thread until it drops it. Returns `None` also if the thread already has a ring, or the system
    /// refuses one.
    fn attach_thread(&self) -> Option<ThreadDriver> {
        None
    }

    /// Releases the lock that excludes other stores. Called when a store is closed while its device is still
    /// referenced.
    fn release(&self) {}
}

/// An operation for a device. The device owns the buffer until completion.
#[derive(Debug)]
pub enum Transfer {
    /// Fills the whole buffer from `offset_bytes`.
    Read {
        /// The offset on the device.
        offset_bytes: u64,
        /// The destination; its length is the number of bytes.
        buffer: AlignedBuffer,
        /// Receives the filled buffer.
        completion: Completion<AlignedBuffer>,
    },
    /// Writes the whole buffer at `offset_bytes`.
    Write {
        /// The offset on the device.
        offset_bytes: u64,
        /// The bytes; shared, so that they can be read while they are being written.
        buffer: Arc<AlignedBuffer>,
        /// Called when the device has the bytes. They are durable only after a `Sync`.
        completion: Completion<()>,
    },
    /// Makes all writes durable that completed before this was submitted.
    Sync {
        /// Called when the sync is done.
        completion: Completion<()>,
    },
}

impl dyn Device {
    /// Reads `len_bytes` at `offset_bytes`.
    pub fn read(&self, offset_bytes: u64, len_bytes: usize) -> PendingTransfer<AlignedBuffer> {
        let (completion, pending) = Completion::pair();
        let buffer = AlignedBuffer::for_reading(len_bytes);
        self.submit(Transfer::Read { offset_bytes, buffer, completion });
        pending
    }

    /// Writes the whole of `buffer` at `offset_bytes`.
    pub fn write(&self, offset_bytes: u64, buffer: Arc<AlignedBuffer>) -> PendingTransfer<()> {
        let (completion, pending) = Completion::pair();
        self.submit(Transfer::Write { offset_bytes, buffer, completion });
        pending
    }

    /// Makes completed writes durable.
    pub fn sync(&self) -> PendingTransfer<()> {
        let (completion, pending) = Completion::pair();
        self.submit(Transfer::Sync { completion });
        pending
    }
}

/// The sending half of an operation's outcome. If it is dropped without an outcome, it delivers a broken pipe error.
pub struct Completion<T>(Option<CompletionTarget<T>>);

impl_debug!(Completion<T> {});

enum CompletionTarget<T> {
    Future(Arc<OutcomeSlot<T>>),
    Callback(Box<dyn FnOnce(io::Result<T>) + Send>),
}

struct OutcomeSlot<T>(Mutex<SlotState<T>>);

enum SlotState<T> {
    Waiting(Option<Waker>),
    Done(io::Result<T>),
    Taken,
}

impl<T> Completion<T> {
    /// Returns a completion and the future that awaits it.
    pub fn pair() -> (Self, PendingTransfer<T>) {
        let slot = Arc::new(OutcomeSlot(Mutex::new(SlotState::Waiting(None))));
        (Self(Some(CompletionTarget::Future(Arc::clone(&slot)))), PendingTransfer(slot))
    }

    /// Creates a completion that calls `callback` on the thread that reaps the operation. The callback must not block.
    pub fn callback(callback: impl FnOnce(io::Result<T>) + Send + 'static) -> Self {
        Self(Some(CompletionTarget::Callback(Box::new(callback))))
    }

    /// Delivers the outcome.
    pub fn complete(mut self, result: io::Result<T>) {
        self.deliver(result);
    }

    fn deliver(&mut self, result: io::Result<T>) {
        match self.0.take() {
            Some(CompletionTarget::Future(slot)) => {
                let mut state = slot.0.lock().unwrap_or_else(PoisonError::into_inner);
                let before = std::mem::replace(&mut *state, SlotState::Done(result));
                drop(state);
                if let SlotState::Waiting(Some(waker)) = before {
                    waker.wake();
                }
            }
            Some(CompletionTarget::Callback(callback)) => callback(result),
            None => {}
        }
    }
}

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        if self.0.is_some() {
            self.deliver(Err(io::Error::new(io::ErrorKind::BrokenPipe, "the device went away")));
        }
    }
}

/// A future for the outcome of an operation. Dropping it does not cancel the operation.
pub struct PendingTransfer<T>(Arc<OutcomeSlot<T>>);

impl_debug!(PendingTransfer<T> {});

impl<T> Future for PendingTransfer<T> {
    type Output = io::Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, SlotState::Taken) {
            SlotState::Done(result) => Poll::Ready(result),
            SlotState::Waiting(_) => {
                *state = SlotState::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
            SlotState::Taken => panic!("a completed transfer was polled again"),
        }
    }
}

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
