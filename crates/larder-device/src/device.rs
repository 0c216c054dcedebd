//! The device interface: asynchronous I/O between aligned buffers and a flat range of bytes.
//!
//! Owns: the [`Device`] trait and the [`Transfer`] submitted to it. What is written where is decided elsewhere.

use std::sync::Arc;

use crate::{AlignedBuffer, Completion, PendingTransfer, ThreadDriver};

/// A flat range of bytes with asynchronous I/O.
///
/// Offsets and lengths of reads and writes are multiples of [`Device::alignment_bytes`]. A device refuses others with
/// [`std::io::ErrorKind::InvalidInput`], and never reads or writes beyond its length.
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

/// Implements the methods of [`Device`] other than `submit` by those of a field of `self`.
///
/// For a device around another one, which changes some transfers:
///
/// ```
/// use larder_device::{Device, MemoryDevice, Transfer, delegate_device};
///
/// struct ReadOnly {
///     inner: MemoryDevice,
/// }
///
/// impl Device for ReadOnly {
///     fn submit(&self, transfer: Transfer) {
///         match transfer {
///             Transfer::Write { completion, .. } => {
///                 completion.complete(Err(std::io::ErrorKind::ReadOnlyFilesystem.into()));
///             }
///             other => self.inner.submit(other),
///         }
///     }
///
///     delegate_device!(inner);
/// }
///
/// assert_eq!(ReadOnly { inner: MemoryDevice::new(4096) }.len_bytes(), 4096);
/// ```
#[macro_export]
macro_rules! delegate_device {
    ($inner:tt) => {
        fn len_bytes(&self) -> u64 {
            self.$inner.len_bytes()
        }

        fn alignment_bytes(&self) -> u32 {
            self.$inner.alignment_bytes()
        }

        fn name(&self) -> &'static str {
            self.$inner.name()
        }

        fn attach_thread(&self) -> Option<$crate::ThreadDriver> {
            self.$inner.attach_thread()
        }

        fn release(&self) {
            self.$inner.release();
        }
    };
}
