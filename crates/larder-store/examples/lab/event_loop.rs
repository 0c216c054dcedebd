//! A thread's ring in an edge-triggered epoll, as in a network runtime, and a reading of processor time.

use larder_device::ThreadDriver;
use rustix::event::epoll;
use std::{
    error::Error,
    fs,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Wake, Waker},
};

pub(crate) struct EventLoop {
    driver: ThreadDriver,
    poller: OwnedFd,
    woken: Arc<Woken>,
    pub(crate) waker: Waker,
    events: Vec<epoll::Event>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl EventLoop {
    /// Creates the event loop of a thread with the driver that `attach_thread` of a device or store returned.
    pub(crate) fn new(driver: Option<ThreadDriver>) -> Result<Self, Box<dyn Error>> {
        let driver = driver.ok_or("the system refuses this thread a ring")?;
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&poller, &driver, epoll::EventData::new_u64(0), edge)?;
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        Ok(Self { driver, poller, woken, waker, events: Vec::with_capacity(1) })
    }

    /// Submits and completes operations. Returns whether no task was woken, so that there is nothing to do until the
    /// ring's event.
    pub(crate) fn turn(&mut self) -> bool {
        self.driver.turn(&self.waker);
        !self.woken.0.load(Ordering::Acquire)
    }

    /// Returns whether the waker was used since the last call.
    pub(crate) fn take_woken(&self) -> bool {
        self.woken.0.swap(false, Ordering::AcqRel)
    }

    /// Waits for the ring's event.
    pub(crate) fn wait(&mut self) -> Result<(), Box<dyn Error>> {
        self.events.clear();
        match epoll::wait(&self.poller, rustix::buffer::spare_capacity(&mut self.events), None) {
            // Older kernels' rings interrupt the thread to complete.
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the processor time of all threads so far, in seconds. Threads that end between two readings would be missed;
/// here none do.
pub(crate) fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let mut nanoseconds = 0;
    for task in fs::read_dir("/proc/self/task")? {
        let schedule = fs::read_to_string(task?.path().join("schedstat"))?;
        nanoseconds += schedule.split_whitespace().next().ok_or("an empty schedstat")?.parse::<u64>()?;
    }
    Ok(nanoseconds as f64 / 1e9)
}
