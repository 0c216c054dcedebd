//! The device interface: asynchronous I/O between aligned buffers and a flat range of bytes.
//!
//! Owns: the [`Device`] trait and the [`Transfer`] submitted to it. What is written where is decided elsewhere.

use std::sync::Arc;

use crate::{AlignedBuffer, Completion, PendingTransfer, ThreadDriver};

/// A flat range of bytes with asynchronous I/O.
///
/// Offsets and lengths of reads and writes are multiples of [`Device::alignment_bytes`]. The device refuses other
/// operations, and those beyond its length, with [`std::io::ErrorKind::InvalidInput`].
///
/// ```
/// use larder_device::{AlignedBuffer, Device, MemoryDevice, block_on};
/// use std::sync::Arc;
///
/// # fn main() -> std::io::Result<()> {
/// let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 20));
/// let mut buffer = AlignedBuffer::with_len(4096);
/// buffer.as_mut_slice().fill(7);
/// block_on(device.write(8192, Arc::new(buffer)))?;
/// block_on(device.sync())?; // from now on, the bytes survive a power loss
/// assert_eq!(block_on(device.read(8192, 4096))?.as_slice(), [7; 4096]);
/// # Ok(())
/// # }
/// ```
pub trait Device: Send + Sync + 'static {
    /// Starts `transfer` and returns at once. The transfer's completion gets the outcome, possibly before this call
    /// returns. If the system moves only a part of the bytes, the device continues with the remainder.
    fn submit(&self, transfer: Transfer);

    /// Returns the length of the device in bytes, which never changes.
    fn len_bytes(&self) -> u64;

    /// Returns the unit of offsets and lengths in bytes, a power of two from 512 to 4096.
    fn alignment_bytes(&self) -> u32;

    /// Returns the name of the implementation for logs and metrics, such as `io_uring`.
    fn name(&self) -> &'static str;

    /// Gives the calling thread an I/O ring of its own for its reads. The thread must call [`ThreadDriver::turn`] until
    /// it drops the driver. Returns `None` if the device does not support this, the thread already has a ring for the
    /// device, or the system refuses one.
    fn attach_thread(&self) -> Option<ThreadDriver> {
        None
    }

    /// Releases the lock that keeps other stores from using the device. A store that is closed calls this, because the
    /// device may still be referenced elsewhere.
    fn release(&self) {}
}

/// An operation for a device. The device owns the buffer until it completes the operation.
///
/// The methods `read`, `write` and `sync` of `dyn Device` create one and return a future. Create one yourself to get
/// the outcome by a callback, or in a device that wraps another one ([`crate::delegate_device!`]).
///
/// ```
/// use larder_device::{AlignedBuffer, Completion, Device, MemoryDevice, Transfer};
///
/// let device = MemoryDevice::from_contents(vec![7; 4096]);
/// let completion = Completion::callback(|outcome: std::io::Result<AlignedBuffer>| {
///     assert_eq!(outcome.unwrap().as_slice(), [7; 512]);
/// });
/// device.submit(Transfer::Read { offset_bytes: 1024, buffer: AlignedBuffer::with_len(512), completion });
/// ```
#[derive(Debug)]
pub enum Transfer {
    /// Fills the whole buffer with the bytes from `offset_bytes` on.
    Read {
        /// Offset on the device in bytes.
        offset_bytes: u64,
        /// Memory for the bytes. Its length is the number of bytes to read.
        buffer: AlignedBuffer,
        /// Gets the filled buffer.
        completion: Completion<AlignedBuffer>,
    },
    /// Writes the whole buffer at `offset_bytes`.
    Write {
        /// Offset on the device in bytes.
        offset_bytes: u64,
        /// The bytes to write. The buffer is shared, so that it can still be read meanwhile.
        buffer: Arc<AlignedBuffer>,
        /// Completed when the device has the bytes. They only survive a power loss after a later `Sync`.
        completion: Completion<()>,
    },
    /// Makes all writes durable that were completed before this operation was submitted.
    Sync {
        /// Completed when all writes that were completed before this operation was submitted survive a power loss.
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

    /// Makes all completed writes durable, so that they survive a power loss.
    pub fn sync(&self) -> PendingTransfer<()> {
        let (completion, pending) = Completion::pair();
        self.submit(Transfer::Sync { completion });
        pending
    }
}

/// Implements the methods of [`Device`] other than `submit` by those of a field of `self`.
///
/// Use it in a device that wraps another one and changes some of its transfers:
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
