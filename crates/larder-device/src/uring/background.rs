//! The ring on a thread of its own: writes, syncs, and the reads of threads without a ring.
//!
//! Owns: that thread, and the queue through which other threads reach it. Invariant: dropping it waits until every
//! operation has completed. Cost: at most one wakeup per batch; the thread sleeps while nothing is in flight.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};

use rustix::event::{EventfdFlags, PollFd, PollFlags};

use super::{UringRing, deliver};
use crate::{
    VolumeFile,
    in_flight::InFlight,
    pool::join_others,
    queue::{TransferQueue, too_much_waits},
};

pub(super) struct BackgroundRing {
    shared: Arc<BackgroundState>,
    thread: Option<JoinHandle<()>>,
}

struct BackgroundState {
    queue: TransferQueue<InFlight>,
    /// Becomes readable when the ring's thread must look into the queue.
    wake: OwnedFd,
}

impl BackgroundRing {
    pub(super) fn start(file: &Arc<VolumeFile>) -> io::Result<Self> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(BackgroundState { queue: TransferQueue::default(), wake });
        let (report, started) = mpsc::channel();
        let thread = thread::Builder::new().name("larder-uring".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            let file = Arc::clone(file);
            // The kernel ties a ring to the thread that creates it.
            move || match UringRing::new(file) {
                Ok(ring) => {
                    if report.send(Ok(())).is_ok() {
                        shared.work(ring);
                    }
                }
                Err(error) => drop(report.send(Err(error))),
            }
        })?;
        match started.recv() {
            Ok(Ok(())) => Ok(Self { shared, thread: Some(thread) }),
            Ok(Err(error)) => {
                // Joined, so that the thread no longer holds the file when it is opened again.
                join_others([thread]);
                Err(error)
            }
            Err(mpsc::RecvError) => Err(io::Error::other("the io_uring thread has ended")),
        }
    }

    pub(super) fn submit(&self, in_flight: InFlight) {
        match self.shared.queue.push(in_flight) {
            Ok(true) => self.shared.wake(),
            Ok(false) => {}
            Err(in_flight) => in_flight.complete(Err(too_much_waits())),
        }
    }
}

impl Drop for BackgroundRing {
    fn drop(&mut self) {
        self.shared.queue.close();
        self.shared.wake();
        join_others(self.thread.take());
    }
}

impl BackgroundState {
    fn work(&self, mut ring: UringRing) {
        let mut finished = Vec::new();
        loop {
            let is_closed = self.queue.take(ring.room_count(), |in_flight| ring.queue(in_flight));
            if ring.is_idle() {
                if is_closed {
                    return;
                }
                self.sleep();
                continue;
            }
            ring.watch(self.wake.as_raw_fd());
            ring.turn(1, &mut finished);
            if !ring.is_watching {
                self.forget_wakes();
            }
            deliver(&mut finished);
        }
    }

    fn wake(&self) {
        // Fails only if the counter is full, in which case the thread is awake.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Waits until the thread is woken. Does not wait in the ring, because the system would report that as waiting for
    /// a disk.
    fn sleep(&self) {
        // The queue is checked again even if this is interrupted.
        let _ = rustix::event::poll(&mut [PollFd::new(&self.wake, PollFlags::IN)], None);
        self.forget_wakes();
    }

    fn forget_wakes(&self) {
        // Fails only if there was no wakeup.
        let _ = rustix::io::read(&self.wake, &mut [0; size_of::<u64>()]);
    }
}
