//! A device whose transfers complete on a thread of their own, whenever the scheduler lets it.
//!
//! Until it is told to be late it is prompt: a store is opened by a call that blocks.

use larder_store::device::{Device, MemoryDevice, Transfer};
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

    /// Is late from now on; the thread serves it until [`LateDevice::stop`].
    pub(crate) fn be_late(self: &Arc<Self>) -> JoinHandle<()> {
        self.late.store(true, Relaxed);
        let served = Arc::clone(self);
        thread::spawn(move || while served.serve_one() {})
    }

    /// Serves what waits, and is prompt from then on.
    pub(crate) fn stop(&self) {
        self.late.store(false, Relaxed);
        self.queue.state.lock().unwrap().stopped = true;
        self.queue.changed.notify_one();
    }

    /// What the device holds.
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

    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn alignment_bytes(&self) -> u32 {
        self.inner.alignment_bytes()
    }

    fn name(&self) -> &'static str {
        "late"
    }
}
