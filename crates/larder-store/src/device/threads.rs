//! A device on a pool of threads of its own, each making one blocking call at a time.
//!
//! Owns: the threads and their queue. The reference for devices on files, and what is used where io_uring is
//! refused. Invariant: dropping it waits until every transfer has completed. Cost: two context switches per
//! transfer; a thread asleep costs nothing.

use std::{
    io,
    num::NonZeroUsize,
    ops::ControlFlow,
    os::unix::fs::FileExt,
    sync::Arc,
    thread::{self, JoinHandle},
};

use super::{
    Device, Transfer, VolumeFile,
    in_flight::{Call, InFlight},
    queue::Queue,
};

/// A device that makes blocking calls on threads of its own.
pub struct ThreadsDevice {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    file: Arc<VolumeFile>,
    queue: Queue,
}

impl ThreadsDevice {
    /// Threads, and so transfers at once, unless told otherwise. More serve a fast disk better, each at the price
    /// of a stack.
    pub const THREAD_COUNT_DEFAULT: NonZeroUsize = NonZeroUsize::new(8).expect("8 is not 0");

    /// A device on `file` with `thread_count` threads.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn new(file: Arc<VolumeFile>, thread_count: NonZeroUsize) -> io::Result<Self> {
        let shared = Arc::new(Shared { file, queue: Queue::default() });
        // Built up in place, so that threads already started end when a later one is refused.
        let mut device = Self { shared, threads: Vec::with_capacity(thread_count.get()) };
        for index in 0..thread_count.get() {
            let shared = Arc::clone(&device.shared);
            let thread = thread::Builder::new().name(format!("larder-io-{index}")).spawn(move || shared.work())?;
            device.threads.push(thread);
        }
        Ok(device)
    }
}

impl Device for ThreadsDevice {
    fn submit(&self, transfer: Transfer) {
        if let Some(in_flight) = self.shared.file.bounds().admit(transfer) {
            self.shared.queue.push(in_flight);
        }
    }

    fn len_bytes(&self) -> u64 {
        self.shared.file.len_bytes()
    }

    fn alignment_bytes(&self) -> u32 {
        self.shared.file.alignment_bytes()
    }

    fn name(&self) -> &'static str {
        "threads"
    }
}

impl Drop for ThreadsDevice {
    fn drop(&mut self) {
        self.shared.queue.close();
        join_others(self.threads.drain(..));
    }
}

/// Joins `threads`, except the calling one: a completion may drop the last owner of its own device.
pub(super) fn join_others(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        if thread.thread().id() != thread::current().id() && thread.join().is_err() {
            tracing::error!("a completion panicked on a device thread");
        }
    }
}

impl Shared {
    fn work(&self) {
        while let Some(mut in_flight) = self.queue.pop() {
            let outcome = loop {
                let result = self.make_call(&mut in_flight);
                if let ControlFlow::Break(outcome) = in_flight.advance(result) {
                    break outcome;
                }
            };
            in_flight.complete(outcome);
        }
    }

    fn make_call(&self, in_flight: &mut InFlight) -> io::Result<usize> {
        let file = self.file.file();
        match in_flight.call() {
            Call::Read(to, offset_bytes) => file.read_at(to, offset_bytes),
            Call::Write(from, offset_bytes) => file.write_at(from, offset_bytes),
            Call::Sync => file.sync_data().map(|()| 0),
        }
    }
}
