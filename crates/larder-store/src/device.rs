//! The device interface: asynchronous I/O between aligned buffers and one flat byte range.
//!
//! Owns: the [`Device`] trait, the [`Transfer`] submitted to it, and the completion that comes back. What is written
//! where is decided elsewhere. Invariant: every operation completes exactly once, with an error if its device goes
//! away. Cost: one allocation per awaited operation.

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

pub(crate) use blocking::block_on;
pub use buffer::{AlignedBuffer, BUFFER_ALIGNMENT_BYTES, release_unused_buffers};
pub(crate) use creation::UnfinishedFile;
pub use directory::{Directory, FileName, FileWork, FilesDirectory, MemoryDirectory};
pub use faulty::{FaultPlan, FaultStats, FaultyDevice};
pub use memory::MemoryDevice;
pub use overlay::OverlayDevice;
pub use threads::ThreadsDevice;
#[cfg(target_os = "linux")]
pub use uring::UringDevice;
pub use volume::{VolumeFile, open_device};

/// A flat range of bytes with asynchronous transfers.
///
/// Offsets and lengths of reads and writes are multiples of [`Device::alignment_bytes`]; a device
/// refuses others with [`io::ErrorKind::InvalidInput`] and never transfers outside its length.
pub trait Device: Send + Sync + 'static {
    /// Starts `transfer` and returns at once; the transfer's completion tells the outcome, possibly
    /// before this call returns. A short transfer is continued by the device.
    fn submit(&self, transfer: Transfer);

    /// Returns the length in bytes, which never changes.
    fn len_bytes(&self) -> u64;

    /// Returns the unit of offsets and lengths, a power of two between 512 and 4096.
    fn alignment_bytes(&self) -> u32;

    /// Returns one word for logs and metrics, such as `io_uring`.
    fn name(&self) -> &'static str;

    /// Makes the calling thread submit its reads through a ring of its own, if the device has such
    /// rings. The caller must keep turning the driver until it drops it, on this same thread. `None` also for a
    /// thread that has its ring already, and when the system refuses one.
    fn attach_thread(&self) -> Option<ThreadDriver> {
        None
    }

    /// Gives up the lock that keeps other stores away, for one that is closed and whose device somebody still holds.
    fn release(&self) {}
}

/// One piece of work for a device. The device owns the buffer until completion.
pub enum Transfer {
    /// Fill the buffer's whole length from `offset_bytes`.
    Read {
        /// The offset on the device.
        offset_bytes: u64,
        /// The destination; its length is the number of bytes.
        buffer: AlignedBuffer,
        /// Gets the filled buffer.
        completion: Completion<AlignedBuffer>,
    },
    /// Write the buffer's whole length at `offset_bytes`.
    Write {
        /// The offset on the device.
        offset_bytes: u64,
        /// The bytes; shared, so that they can be read while they are being written.
        buffer: Arc<AlignedBuffer>,
        /// Told when the bytes are with the device (durable only after a `Sync`).
        completion: Completion<()>,
    },
    /// Make all writes that completed before this was submitted durable.
    Sync {
        /// Told when it is done.
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

/// The sending half of a transfer's outcome. Dropped without an outcome it reports a broken pipe.
pub struct Completion<T>(Option<CompletionTarget<T>>);

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

/// The outcome of a transfer, to be awaited. Dropping it does not cancel the transfer.
pub struct PendingTransfer<T>(Arc<OutcomeSlot<T>>);

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

/// A thread's own ring, to be turned by the thread's event loop.
///
/// It may be moved into a task (it is `Send`), but only turns of the thread that attached it do
/// anything. When the thread queues a transfer, the waker of the last turn is woken, once; whenever
/// the kernel completes one, the event descriptor becomes readable (use edge-triggered polling and
/// never read it). Dropping it waits for the ring's transfers and detaches the thread.
pub struct ThreadDriver {
    turn: Box<dyn DriverTurn + Send>,
}

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
