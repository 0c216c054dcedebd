//! The engine's device in virtual time: written bytes are kept, and the time of I/O is summed.
//!
//! Owns: the written bytes ([`SparseBytes`]), the disk, and in front of it the page cache of a file system, or nothing
//! (a raw device). Nothing waits. Invariant: every operation completes inside `submit`; bytes read are bytes written.

use super::{
    disk::{Disk, DiskOperation, DiskWork, PieceReads},
    one_file::OneFile,
    parameters::Model,
    sparse::SparseBytes,
};
use larder_device::IgnorePoison;
use larder_device::{Device, Transfer};
use std::{
    io,
    sync::{Mutex, MutexGuard},
};

const ALIGNMENT_BYTES: u32 = 512;

/// A device of the engine on a modeled disk, in virtual time.
pub struct ModelDevice {
    len_bytes: u64,
    state: Mutex<DeviceState>,
}

struct DeviceState {
    disk: Disk,
    file: Option<OneFile>,
    reads: PieceReads,
    contents: SparseBytes,
    passed_ns: u64,
}

impl ModelDevice {
    /// Creates a raw device that takes the first `len_bytes` of the disk.
    pub fn raw(model: &Model, len_bytes: u64) -> Self {
        Self::new(model, len_bytes, None)
    }

    /// Creates a device on a file that takes the first `len_bytes` of the disk. The file system has a page cache.
    pub fn file(model: &Model, len_bytes: u64) -> Self {
        Self::new(model, len_bytes, Some(OneFile::new(&model.system)))
    }

    fn new(model: &Model, len_bytes: u64, file: Option<OneFile>) -> Self {
        let mut disk = Disk::new(&model.disk);
        disk.set_used_share(len_bytes as f64 / model.disk.capacity_bytes());
        let reads = PieceReads::default();
        Self {
            len_bytes,
            state: Mutex::new(DeviceState { disk, file, reads, contents: SparseBytes::default(), passed_ns: 0 }),
        }
    }

    /// Sets how a program divides entries into reads.
    #[must_use]
    pub fn reading(self, reads: PieceReads) -> Self {
        self.lock().reads = reads;
        self
    }

    /// Returns the virtual time that I/O has taken since the device was created, in nanoseconds.
    pub fn passed_ns(&self) -> u64 {
        self.lock().passed_ns
    }

    /// Begins to record the operations of the disk, for [`Self::take_operations`].
    pub fn record_operations(&self) {
        self.lock().disk.record_operations();
    }

    /// Returns the operations of the disk that were recorded since the last call.
    pub fn take_operations(&self) -> Vec<DiskOperation> {
        self.lock().disk.take_operations()
    }

    /// Returns what the disk has done since it was created.
    pub fn served(&self) -> DiskWork {
        self.lock().disk.served()
    }

    fn check(&self, offset_bytes: u64, len_bytes: usize) -> io::Result<()> {
        let alignment = u64::from(ALIGNMENT_BYTES);
        let len_bytes = len_bytes as u64;
        let is_aligned = offset_bytes.is_multiple_of(alignment) && len_bytes.is_multiple_of(alignment);
        let is_inside = offset_bytes.checked_add(len_bytes).is_some_and(|end| end <= self.len_bytes);
        if is_aligned && is_inside { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    fn lock(&self) -> MutexGuard<'_, DeviceState> {
        self.state.lock().ignore_poison()
    }
}

impl Device for ModelDevice {
    fn submit(&self, transfer: Transfer) {
        // No lock is held while a completion runs, because it may submit again.
        match transfer {
            Transfer::Read { offset_bytes, mut buffer, completion } => {
                let outcome = self.check(offset_bytes, buffer.len());
                if outcome.is_ok() {
                    self.lock().read(offset_bytes, buffer.as_mut_slice());
                }
                completion.complete(outcome.map(|()| buffer));
            }
            Transfer::Write { offset_bytes, buffer, completion } => {
                let outcome = self.check(offset_bytes, buffer.len());
                if outcome.is_ok() {
                    self.lock().write(offset_bytes, buffer.as_slice());
                }
                drop(buffer);
                completion.complete(outcome);
            }
            Transfer::Sync { completion } => completion.complete(Ok(())),
        }
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn alignment_bytes(&self) -> u32 {
        ALIGNMENT_BYTES
    }

    fn name(&self) -> &'static str {
        "model"
    }
}

impl DeviceState {
    fn read(&mut self, offset_bytes: u64, to: &mut [u8]) {
        let len_bytes = to.len() as u64;
        let Self { disk, file, reads, .. } = self;
        let others = disk.head();
        self.passed_ns += match file {
            Some(file) => {
                reads.perform(disk, (offset_bytes, len_bytes), others, |disk, at, len| file.read(disk, at, len))
            }
            None => reads.perform(disk, (offset_bytes, len_bytes), others, Disk::read),
        };
        self.contents.read(offset_bytes, to);
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) {
        let len_bytes = from.len() as u64;
        self.passed_ns += match &mut self.file {
            Some(file) => file.write(&mut self.disk, offset_bytes, len_bytes),
            None => self.disk.write(offset_bytes, len_bytes),
        };
        self.contents.write(offset_bytes, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_device::AlignedBuffer;
    use std::sync::Arc;

    #[test]
    fn transfers_complete_at_once_and_their_time_is_added_up() {
        let model = Model::open("st15150wc-ufs").unwrap();
        let device: Arc<dyn Device> = Arc::new(ModelDevice::raw(&model, 1 << 20));
        let mut buffer = AlignedBuffer::with_len(1024);
        buffer.as_mut_slice().fill(0);
        buffer.as_mut_slice()[700] = 9;
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut ready = |pending| match std::future::Future::poll(std::pin::pin!(pending), &mut context) {
            std::task::Poll::Ready(outcome) => outcome,
            std::task::Poll::Pending => panic!("a modeled transfer waits"),
        };
        assert!(ready(device.read(0, 512)).unwrap().as_slice().iter().all(|byte| *byte == 0));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let written = std::pin::pin!(device.write(4096, Arc::new(buffer)));
        assert!(std::future::Future::poll(written, &mut context).is_ready());
        assert_eq!(ready(device.read(4608, 512)).unwrap().as_slice()[188], 9);
        assert_eq!(ready(device.read(100, 512)).err().map(|error| error.kind()), Some(io::ErrorKind::InvalidInput));
        assert_eq!(ready(device.read(1 << 20, 512)).err().map(|error| error.kind()), Some(io::ErrorKind::InvalidInput));
    }
}
