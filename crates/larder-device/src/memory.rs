//! A device in memory: the reference for tests, and for measuring the engine without a disk.
//!
//! Owns: pages that are created by their first write; an absent page reads as zeros. Nothing is durable. Invariant:
//! every operation completes inside `submit`. Cost: one copy; a snapshot shares all pages until one side writes them.

use crate::ignore_poison::IgnorePoison;
use std::{
    io,
    sync::{Arc, RwLock},
};

use crate::{
    Device, Transfer,
    in_flight::{SystemCall, TransferBounds},
};

/// A device in memory, for tests and for measuring without a disk. It only takes memory for pages that were written.
///
/// ```
/// use larder_device::{AlignedBuffer, Device, MemoryDevice, block_on};
/// use std::sync::Arc;
///
/// let memory = Arc::new(MemoryDevice::new(1 << 40));
/// let before = memory.snapshot();
/// let device: Arc<dyn Device> = memory;
/// let mut buffer = AlignedBuffer::with_len(4096);
/// buffer.as_mut_slice().fill(7);
/// block_on(device.write(1 << 30, Arc::new(buffer))).unwrap();
/// assert_eq!(block_on(device.read(1 << 30, 512)).unwrap().as_slice(), [7; 512]);
///
/// let before: Arc<dyn Device> = Arc::new(before);
/// assert_eq!(block_on(before.read(1 << 30, 512)).unwrap().as_slice(), [0; 512]);
/// ```
pub struct MemoryDevice {
    pages: Box<[RwLock<Page>]>,
    bounds: TransferBounds,
}

impl_debug!(MemoryDevice {});

/// A page of [`PAGE_SIZE_BYTES`], shared with snapshots. `None` stands for zeros.
type Page = Option<Arc<Vec<u8>>>;

impl MemoryDevice {
    /// Creates a device with `len_bytes` of zeros.
    pub fn new(len_bytes: u64) -> Self {
        let page_count = len_bytes.div_ceil(PAGE_SIZE_BYTES as u64);
        let pages = (0..page_count).map(|_| RwLock::new(None)).collect();
        Self { pages, bounds: TransferBounds { len_bytes, alignment_bytes: ALIGNMENT_BYTES } }
    }

    /// Creates a device that has the bytes of `contents`.
    pub fn from_contents(contents: Vec<u8>) -> Self {
        let device = Self::new(contents.len() as u64);
        for (index, chunk) in contents.chunks(PAGE_SIZE_BYTES).enumerate() {
            if chunk.iter().any(|byte| *byte != 0) {
                device.write_at(index as u64 * PAGE_SIZE_BYTES as u64, chunk);
            }
        }
        device
    }

    /// Returns a copy of all bytes of the device.
    pub fn contents(&self) -> Vec<u8> {
        let mut contents = vec![0; self.bounds.len_bytes as usize];
        self.read_at(0, &mut contents);
        contents
    }

    /// Returns an independent device with the same bytes. Pages are shared until one of the two devices writes to them.
    pub fn snapshot(&self) -> Self {
        let pages = self.pages.iter().map(|page| RwLock::new(page.read().ignore_poison().clone())).collect();
        Self { pages, bounds: self.bounds }
    }

    pub(super) fn read_at(&self, offset_bytes: u64, to: &mut [u8]) {
        let mut done_bytes = 0;
        while done_bytes < to.len() {
            let (index, start) = place(offset_bytes + done_bytes as u64);
            let end = (done_bytes + PAGE_SIZE_BYTES - start).min(to.len());
            let part = &mut to[done_bytes..end];
            match self.pages[index].read().ignore_poison().as_deref() {
                Some(page) => part.copy_from_slice(&page[start..start + part.len()]),
                None => part.fill(0),
            }
            done_bytes = end;
        }
    }

    pub(super) fn write_at(&self, offset_bytes: u64, from: &[u8]) {
        let mut done_bytes = 0;
        while done_bytes < from.len() {
            let (index, start) = place(offset_bytes + done_bytes as u64);
            let end = (done_bytes + PAGE_SIZE_BYTES - start).min(from.len());
            let part = &from[done_bytes..end];
            let mut page = self.pages[index].write().ignore_poison();
            let page = page.get_or_insert_with(|| Arc::new(vec![0; PAGE_SIZE_BYTES]));
            Arc::make_mut(page)[start..start + part.len()].copy_from_slice(part);
            done_bytes = end;
        }
    }
}

impl Device for MemoryDevice {
    fn submit(&self, transfer: Transfer) {
        let Some(mut in_flight) = self.bounds.admit(transfer) else { return };
        match in_flight.call() {
            SystemCall::Read(to, offset_bytes) => self.read_at(offset_bytes, to),
            SystemCall::Write(from, offset_bytes) => self.write_at(offset_bytes, from),
            SystemCall::Sync => {}
        }
        in_flight.complete(io::Result::Ok(()));
    }

    fn len_bytes(&self) -> u64 {
        self.bounds.len_bytes
    }

    fn alignment_bytes(&self) -> u32 {
        self.bounds.alignment_bytes
    }

    fn name(&self) -> &'static str {
        "memory"
    }
}

const PAGE_SIZE_BYTES: usize = 1 << 20;
const ALIGNMENT_BYTES: u32 = 512;

/// Returns the page that contains `offset_bytes`, and the position in it.
fn place(offset_bytes: u64) -> (usize, usize) {
    let page_size_bytes = PAGE_SIZE_BYTES as u64;
    ((offset_bytes / page_size_bytes) as usize, (offset_bytes % page_size_bytes) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_written_takes_memory() {
        let device = MemoryDevice::new(1 << 40);
        device.write_at((1 << 39) - 512, &[7; 1024]);
        let held = device.pages.iter().filter(|page| page.read().ignore_poison().is_some()).count();
        assert_eq!(held, 2);
        let mut back = [0; 2048];
        device.read_at((1 << 39) - 1024, &mut back);
        assert_eq!(back[..512], [0; 512]);
        assert_eq!(back[512..1536], [7; 1024]);
        assert_eq!(back[1536..], [0; 512]);
    }

    /// Guards against a snapshot that changes when the original is written. A crash test would then change the past.
    #[test]
    fn a_snapshot_stays_what_it_was() {
        let device = MemoryDevice::new(3 << 20);
        device.write_at(0, &[1; 512]);
        let snapshot = device.snapshot();
        let again = MemoryDevice::from_contents(snapshot.contents());
        device.write_at(0, &[2; 512]);
        snapshot.write_at(512, &[3; 512]);
        assert_eq!(device.contents()[..1024], [[2; 512], [0; 512]].concat());
        assert_eq!(snapshot.contents()[..1024], [[1; 512], [3; 512]].concat());
        assert_eq!(again.contents()[..1024], [[1; 512], [0; 512]].concat());
        assert_eq!(again.contents().len(), 3 << 20);
    }
}
