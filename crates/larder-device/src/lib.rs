//! The lowest part of Larder's storage engine: asynchronous reads and writes of disks, without a runtime.
//!
//! A [`Device`] is a flat range of bytes, such as a file or a block device. A [`Directory`] is a set of named files.
//! Both take operations at once and deliver each outcome exactly once, by a callback or a future.
//!
//! | to do | use |
//! |---|---|
//! | open a file or block device that nobody else uses | [`VolumeFile::open`], [`VolumeFile::create`] |
//! | read and write it by io_uring, or by threads | [`open_device`] with an [`IoChoice`] |
//! | read, write and sync | `read`, `write` and `sync` of `dyn Device`, with an [`AlignedBuffer`] |
//! | keep named files | [`FilesDirectory::open`] |
//! | read on a thread's own ring, from its event loop | [`Device::attach_thread`] |
//! | test without a disk | [`MemoryDevice`], [`MemoryDirectory`] |
//! | test errors, short transfers, reordering and power losses, by seed | [`FaultyDevice`] with a [`FaultPlan`] |
//! | test a failed assertion of the caller | [`PanickingDevice`] |
//! | keep a list on disk that grows, or replace a small file | [`Journal`], [`replace_file`] |
//! | lock a mutex whose holder may have panicked | [`IgnorePoison`] |
//! | try a change without writing it | [`OverlayDevice`] |
//! | put a device of your own around another | [`delegate_device!`] |
//!
//! ```
//! use larder_device::{AlignedBuffer, Device, MemoryDevice, block_on};
//! use std::sync::Arc;
//!
//! # fn main() -> std::io::Result<()> {
//! let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 20));
//! let mut buffer = AlignedBuffer::with_len(4096);
//! buffer.as_mut_slice().fill(7);
//! block_on(device.write(8192, Arc::new(buffer)))?;
//! block_on(device.sync())?;
//! assert_eq!(block_on(device.read(8192, 4096))?.as_slice()[0], 7);
//! # Ok(())
//! # }
//! ```

#![warn(missing_debug_implementations)]

#[macro_use]
mod debug;

mod blocking;
mod buffer;
mod completion;
mod creation;
mod device;
mod directory;
mod error;
mod faulty;
mod ignore_poison;
mod in_flight;
mod journal;
mod memory;
mod overlay;
mod panicking;
mod pinned;
mod pool;
mod queue;
mod split_mix;
mod thread_driver;
mod threads;
#[cfg(target_os = "linux")]
mod uring;
mod volume;

pub use blocking::block_on;
pub use buffer::{AlignedBuffer, release_unused_buffers};
pub use completion::{Completion, PendingTransfer};
pub use creation::UnfinishedFile;
pub use device::{Device, Transfer};
pub use directory::{Directory, FileName, FileWork, FilesDirectory, MemoryDirectory};
pub use error::{DeviceError, DeviceErrorKind, Result};
pub use faulty::{FaultPlan, FaultStats, FaultyDevice};
pub use ignore_poison::IgnorePoison;
pub use journal::{Journal, create_own_file, replace_file, whole_lines, whole_records};
pub use memory::MemoryDevice;
pub use overlay::OverlayDevice;
pub use panicking::{PanickingDevice, PlannedPanic};
pub use pinned::pinned;
pub use split_mix::SplitMix64;
pub use thread_driver::ThreadDriver;
pub use threads::ThreadsDevice;
#[cfg(target_os = "linux")]
pub use uring::UringDevice;
pub use volume::{IoChoice, VolumeFile, open_device};
