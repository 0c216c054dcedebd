//! A device that shows another one with changes of its own, which never reach it. With it, a store can be opened for
//! inspection although opening writes.
//!
//! Owns: the written blocks. Their number is not limited, because an inspection writes little. Invariant: the device
//! below is only read. Cost: a copy per write; a read also searches the table of written blocks.

use crate::ignore_poison::IgnorePoison;
use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    sync::{Arc, Mutex},
};

use crate::{AlignedBuffer, Completion, Device, Transfer, in_flight::TransferBounds};

/// A device on top of another one. Its writes stay in memory, and the other device is only read.
///
/// Use it to try an operation that writes, such as opening a store, on a device that must not change.
///
/// ```
/// use larder_device::{AlignedBuffer, Device, MemoryDevice, OverlayDevice, block_on};
/// use std::sync::Arc;
///
/// let below: Arc<dyn Device> = Arc::new(MemoryDevice::from_contents(vec![7; 8192]));
/// let overlay: Arc<dyn Device> = Arc::new(OverlayDevice::new(Arc::clone(&below)));
/// block_on(overlay.write(0, Arc::new(AlignedBuffer::with_len(4096)))).unwrap();
/// assert_eq!(block_on(overlay.read(0, 4096)).unwrap().as_slice(), [0; 4096]);
/// assert_eq!(block_on(below.read(0, 4096)).unwrap().as_slice(), [7; 4096]);
/// ```
pub struct OverlayDevice {
    below: Arc<dyn Device>,
    written: Arc<Mutex<Blocks>>,
}

impl_debug!(OverlayDevice {});

/// The blocks that were written, by number. A block is as long as the device's alignment.
type Blocks = BTreeMap<u64, Box<[u8]>>;

impl OverlayDevice {
    /// Creates a device that has the content of `below` until something is written to it.
    pub fn new(below: Arc<dyn Device>) -> Self {
        Self { below, written: Arc::default() }
    }

    fn blocks(&self, offset_bytes: u64, len_bytes: usize) -> Range<u64> {
        let block_bytes = u64::from(self.alignment_bytes());
        let start = offset_bytes / block_bytes;
        start..start.saturating_add(len_bytes as u64 / block_bytes)
    }

    fn bounds(&self) -> TransferBounds {
        TransferBounds { len_bytes: self.below.len_bytes(), alignment_bytes: self.below.alignment_bytes() }
    }
}

impl Device for OverlayDevice {
    fn submit(&self, transfer: Transfer) {
        match transfer {
            Transfer::Read { offset_bytes, buffer, completion } => {
                let blocks = self.blocks(offset_bytes, buffer.len());
                let block_bytes = self.alignment_bytes() as usize;
                let written = Arc::clone(&self.written);
                let patched = Completion::callback(move |outcome: io::Result<AlignedBuffer>| {
                    completion.complete(outcome.map(|mut buffer| {
                        for (number, block) in written.lock().ignore_poison().range(blocks.clone()) {
                            let start = (number - blocks.start) as usize * block_bytes;
                            buffer.as_mut_slice()[start..start + block_bytes].copy_from_slice(block);
                        }
                        buffer
                    }));
                });
                self.below.submit(Transfer::Read { offset_bytes, buffer, completion: patched });
            }
            Transfer::Write { offset_bytes, buffer, completion } => {
                let outcome = self.bounds().check(offset_bytes, buffer.len());
                if outcome.is_ok() {
                    let pieces = buffer.as_slice().chunks(self.alignment_bytes() as usize).map(Box::from);
                    self.written.lock().ignore_poison().extend(self.blocks(offset_bytes, buffer.len()).zip(pieces));
                }
                drop(buffer);
                completion.complete(outcome);
            }
            Transfer::Sync { completion } => completion.complete(Ok(())),
        }
    }

    crate::delegate_device!(below);
}
