//! A memory device that can be made to fail and to recover.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use larder_device::{Device, MemoryDevice, Transfer};

/// The kinds of failure of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ailment {
    Nothing,
    /// Writes fail because there is no room.
    Full,
    /// Writes are refused.
    ReadOnly,
    /// Reads fail, writes do not.
    Unreadable,
    /// All operations fail.
    Dead,
    /// No operation completes until the device recovers.
    Hung,
    /// Only operations at both ends, where the superblocks are, complete until the device recovers.
    HungInside,
    /// Writes complete one at a time, with a pause between them, see [`Ailing::slow_down`].
    Slow,
}

/// Length of each end, which has room for a superblock.
const ENDS_BYTES: u64 = 64 << 10;

/// A device with an [`Ailment`].
pub(crate) struct Ailing {
    memory: MemoryDevice,
    written_bytes: AtomicU64,
    state: Mutex<(Ailment, Vec<Transfer>)>,
}

impl Ailing {
    pub(crate) fn new(len_bytes: u64) -> Self {
        let memory = MemoryDevice::new(len_bytes);
        Self { memory, written_bytes: AtomicU64::new(0), state: Mutex::new((Ailment::Nothing, Vec::new())) }
    }

    /// Changes the failure. Waiting operations then complete or fail.
    pub(crate) fn set(&self, ailment: Ailment) {
        let waiting = {
            let mut state = self.state.lock().unwrap();
            state.0 = ailment;
            std::mem::take(&mut state.1)
        };
        waiting.into_iter().for_each(|transfer| self.submit(transfer));
    }

    /// Makes the device complete one write every `pause`, until another failure is set.
    pub(crate) fn slow_down(self: &Arc<Self>, pause: Duration) {
        self.set(Ailment::Slow);
        let device = Arc::clone(self);
        std::thread::spawn(move || {
            loop {
                std::thread::park_timeout(pause);
                let next = {
                    let mut state = device.state.lock().unwrap();
                    if state.0 != Ailment::Slow {
                        return;
                    }
                    if state.1.is_empty() { None } else { Some(state.1.remove(0)) }
                };
                next.into_iter().for_each(|transfer| device.transfer(transfer));
            }
        });
    }

    /// Bytes written so far.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::SeqCst)
    }

    fn transfer(&self, transfer: Transfer) {
        if let Transfer::Write { buffer, .. } = &transfer {
            self.written_bytes.fetch_add(buffer.len() as u64, Ordering::SeqCst);
        }
        self.memory.submit(transfer);
    }

    /// Transfers that wait for its recovery.
    pub(crate) fn waiting_count(&self) -> usize {
        self.state.lock().unwrap().1.len()
    }

    /// Returns a guard that recovers the device when dropped, so that a store can be closed even if its test has
    /// failed.
    pub(crate) fn recovering(self: &Arc<Self>) -> Recovering {
        Recovering(Arc::clone(self))
    }
}

/// See [`Ailing::recovering`].
pub(crate) struct Recovering(Arc<Ailing>);

impl Drop for Recovering {
    fn drop(&mut self) {
        self.0.set(Ailment::Nothing);
    }
}

impl Device for Ailing {
    fn submit(&self, transfer: Transfer) {
        let ailment = {
            let mut state = self.state.lock().unwrap();
            let is_inside = match &transfer {
                Transfer::Read { offset_bytes, .. } | Transfer::Write { offset_bytes, .. } => {
                    (ENDS_BYTES..self.memory.len_bytes() - ENDS_BYTES).contains(offset_bytes)
                }
                Transfer::Sync { .. } => false,
            };
            let waits = match state.0 {
                Ailment::Hung => true,
                Ailment::HungInside => is_inside,
                Ailment::Slow => !matches!(transfer, Transfer::Read { .. }),
                _ => false,
            };
            if waits {
                return state.1.push(transfer);
            }
            state.0
        };
        let is_read = matches!(transfer, Transfer::Read { .. });
        let error = match ailment {
            Ailment::Nothing | Ailment::Hung | Ailment::HungInside | Ailment::Slow => None,
            Ailment::Full => (!is_read).then_some(io::ErrorKind::StorageFull),
            Ailment::ReadOnly => (!is_read).then_some(io::ErrorKind::ReadOnlyFilesystem),
            Ailment::Unreadable => is_read.then_some(io::ErrorKind::Other),
            Ailment::Dead => Some(io::ErrorKind::Other),
        };
        match (error, transfer) {
            (None, transfer) => self.transfer(transfer),
            (Some(kind), Transfer::Read { completion, .. }) => completion.complete(Err(kind.into())),
            (Some(kind), Transfer::Write { completion, .. } | Transfer::Sync { completion }) => {
                completion.complete(Err(kind.into()));
            }
        }
    }

    larder_device::delegate_device!(memory);
}
