//! A device whose operations complete on its own thread, whenever the scheduler runs that.
//!
//! Until [`LateDevice::be_late`] is called, operations complete at once, because a store is opened by a blocking call.

use larder_device::{Device, MemoryDevice, Transfer};
use shuttle::{
    sync::{Condvar, Mutex},
    thread::{self, JoinHandle},
};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// A memory device that takes its time.
pub(crate) struct LateDevice {
    inner: MemoryDevice,
    queue: Arc<Queue>,
    late: AtomicBool,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Transfer>,
    stopped: bool,
}

impl LateDevice {
    pub(crate) fn new(len_bytes: u64) -> Arc<Self> {
        Arc::new(Self { inner: MemoryDevice::new(len_bytes), queue: Arc::default(), late: AtomicBool::new(false) })
    }

    /// Starts the thread that completes operations until [`LateDevice::stop`] is called.
    pub(crate) fn be_late(self: &Arc<Self>) -> JoinHandle<()> {
        self.late.store(true, Relaxed);
        let served = Arc::clone(self);
        thread::spawn(move || while served.serve_one() {})
    }

    /// Completes the waiting operations. Later ones complete at once.
    pub(crate) fn stop(&self) {
        self.late.store(false, Relaxed);
        self.queue.state.lock().unwrap().stopped = true;
        self.queue.changed.notify_one();
    }

    /// Returns a copy of the device's content.
    pub(crate) fn snapshot(&self) -> MemoryDevice {
        self.inner.snapshot()
    }

    fn serve_one(&self) -> bool {
        let mut state = self.queue.state.lock().unwrap();
        while state.waiting.is_empty() && !state.stopped {
            state = self.queue.changed.wait(state).unwrap();
        }
        let Some(transfer) = state.waiting.pop_front() else { return false };
        drop(state);
        self.inner.submit(transfer);
        true
    }
}

impl Device for LateDevice {
    fn submit(&self, transfer: Transfer) {
        if !self.late.load(Relaxed) {
            return self.inner.submit(transfer);
        }
        self.queue.state.lock().unwrap().waiting.push_back(transfer);
        self.queue.changed.notify_one();
    }

    larder_device::delegate_device!(inner);
}
