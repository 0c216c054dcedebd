//! A minimal executor that drives a ring, and a waker that counts.

use std::{
    future::Future,
    os::fd::OwnedFd,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use larder_device::ThreadDriver;
use rustix::{
    event::{EventfdFlags, epoll},
    io::Errno,
};

/// A waker that counts how often it was woken.
#[derive(Default)]
pub(crate) struct Wakes(AtomicU64);

impl Wakes {
    /// Returns the number of wakeups so far.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// An event loop around a thread's ring, as in a proxy's thread. It sleeps in `epoll_wait` until the ring's event
/// (edge-triggered, never read) or a waker.
pub(crate) struct EventLoop {
    driver: ThreadDriver,
    poller: OwnedFd,
    wake: Arc<WakeEvent>,
}

impl EventLoop {
    pub(crate) fn new(driver: ThreadDriver) -> Self {
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&poller, &driver, epoll::EventData::new_u64(0), edge).unwrap();
        epoll::add(&poller, &wake, epoll::EventData::new_u64(1), edge).unwrap();
        Self { driver, poller, wake: Arc::new(WakeEvent(wake)) }
    }

    /// Polls `future` and drives the ring until the future is done.
    pub(crate) fn run<T>(&mut self, future: impl Future<Output = T>) -> T {
        let waker = Waker::from(Arc::clone(&self.wake));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        let mut events = Vec::with_capacity(2);
        loop {
            if let Poll::Ready(outcome) = future.as_mut().poll(&mut context) {
                return outcome;
            }
            self.driver.turn(&waker);
            events.clear();
            match epoll::wait(&self.poller, rustix::buffer::spare_capacity(&mut events), None) {
                // Older kernels' rings interrupt the thread to complete.
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => panic!("cannot wait for events: {error}"),
            }
        }
    }
}

struct WakeEvent(OwnedFd);

impl Wake for WakeEvent {
    fn wake(self: Arc<Self>) {
        rustix::io::write(&self.0, &1_u64.to_ne_bytes()).unwrap();
    }
}
