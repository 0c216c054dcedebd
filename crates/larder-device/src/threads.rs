//! A device with a pool of threads, each making one blocking call at a time.
//!
//! Owns: the calls; [`ThreadPool`] has the threads and the queue. It is the reference for devices on files, and the
//! replacement if io_uring is refused. Invariant: dropping it waits until every operation has completed. Cost: two
//! context switches per operation; a sleeping thread costs nothing.

use std::{io, num::NonZeroUsize, ops::ControlFlow, os::unix::fs::FileExt, sync::Arc};

use crate::{
    Device, Transfer, VolumeFile,
    in_flight::{InFlight, SystemCall},
    pool::ThreadPool,
    queue::too_much_waits,
};

/// A device that makes blocking calls on threads of its own. It works where io_uring is refused.
///
/// [`crate::open_device`] chooses between this device and io_uring. Use this type to set the number of threads.
///
/// ```
/// use larder_device::{Device, ThreadsDevice, VolumeFile, block_on};
/// use std::{num::NonZeroUsize, sync::Arc};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("volume");
/// let file = Arc::new(VolumeFile::create(&path, 1 << 20)?);
/// let device: Arc<dyn Device> = Arc::new(ThreadsDevice::new(file, NonZeroUsize::new(2).unwrap())?);
/// assert_eq!(block_on(device.read(0, 4096))?.as_slice(), [0; 4096]);
/// assert!(block_on(device.read(1 << 20, 4096)).is_err(), "it is beyond the end");
/// # Ok(())
/// # }
/// ```
pub struct ThreadsDevice {
    file: Arc<VolumeFile>,
    pool: ThreadPool<InFlight>,
}

impl_debug!(ThreadsDevice {});

impl ThreadsDevice {
    /// Default number of threads, which is also the number of operations that run at the same time. More threads make
    /// better use of a fast disk, but each takes memory for a stack.
    pub const THREAD_COUNT_DEFAULT: NonZeroUsize = NonZeroUsize::new(8).expect("8 is not 0");

    /// Creates a device on `file` with `thread_count` threads.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn new(file: Arc<VolumeFile>, thread_count: NonZeroUsize) -> io::Result<Self> {
        let pool = ThreadPool::start("larder-io", thread_count, {
            let file = Arc::clone(&file);
            move |in_flight| transfer(&file, in_flight)
        })?;
        Ok(Self { file, pool })
    }
}

impl Device for ThreadsDevice {
    fn submit(&self, transfer: Transfer) {
        if let Some(in_flight) = self.file.bounds().admit(transfer)
            && let Err(in_flight) = self.pool.push(in_flight)
        {
            in_flight.complete(Err(too_much_waits()));
        }
    }

    fn release(&self) {
        self.file.unlock();
    }

    fn len_bytes(&self) -> u64 {
        self.file.len_bytes()
    }

    fn alignment_bytes(&self) -> u32 {
        self.file.alignment_bytes()
    }

    fn name(&self) -> &'static str {
        "threads"
    }
}

fn transfer(file: &VolumeFile, mut in_flight: InFlight) {
    let outcome = loop {
        let result = make_call(file, &mut in_flight);
        if let ControlFlow::Break(outcome) = in_flight.advance(result) {
            break outcome;
        }
    };
    in_flight.complete(outcome);
}

fn make_call(file: &VolumeFile, in_flight: &mut InFlight) -> io::Result<usize> {
    match in_flight.call() {
        SystemCall::Read(to, offset_bytes) => file.file().read_at(to, offset_bytes),
        SystemCall::Write(from, offset_bytes) => file.file().write_at(from, offset_bytes),
        SystemCall::Sync => file.file().sync_data().map(|()| 0),
    }
}
