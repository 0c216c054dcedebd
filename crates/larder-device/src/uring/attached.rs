//! The rings of threads that run an event loop. A thread's reads go through its own ring, without another thread.
//!
//! Owns: the calling thread's rings, one per volume. Nothing waits here, except when a ring is given up. Invariant: no
//! waker and no completion runs while the thread's rings are borrowed, because both may submit an operation. Cost: one
//! access to thread-local storage per read, one system call per turn.

use std::{
    cell::RefCell,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

use rustix::event::EventfdFlags;

use super::{FinishedTransfer, UringRing, deliver};
use crate::{
    VolumeFile,
    in_flight::InFlight,
    queue::WAITING_COUNT_MAX,
    thread_driver::{DriverTurn, ThreadDriver},
};

thread_local! {
    static RINGS: RefCell<Vec<AttachedRing>> = const { RefCell::new(Vec::new()) };
}

/// The ring of this thread for one volume. Dropping it waits for its operations. Their completions may use the list of
/// rings, so the list must not be borrowed at that time.
struct AttachedRing {
    ring: UringRing,
    link: Arc<DriverLink>,
    /// The waker that the last call of [`ThreadDriver::turn`] passed. It is removed when it is woken, so that it is
    /// woken only once.
    waker: Option<Waker>,
    /// Completed operations of the present call of [`ThreadDriver::turn`]. Empty between calls; kept to reuse its
    /// memory.
    finished: Vec<FinishedTransfer>,
}

/// The state that a ring and its driver share. It also identifies the ring of a driver.
struct DriverLink {
    event: OwnedFd,
    /// Whether the driver was dropped on another thread, so that the ring must be removed by its own thread.
    is_orphan: AtomicBool,
}

/// Creates a ring for `file` on the calling thread. Returns `None` if the thread already has one for this file.
pub(super) fn attach(file: &Arc<VolumeFile>) -> io::Result<Option<ThreadDriver>> {
    let place = |rings: &mut Vec<AttachedRing>| {
        let index = rings.iter().position(|attached| Arc::ptr_eq(&attached.ring.file, file));
        index.map(|index| rings[index].link.is_orphan.load(Ordering::Acquire).then(|| rings.swap_remove(index)))
    };
    match with_rings(place) {
        // The thread is about to end.
        None => return Ok(None),
        Some(Some(None)) => return Ok(None),
        Some(Some(Some(orphan))) => drop(orphan),
        Some(None) => {}
    }
    let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let mut ring = UringRing::new(Arc::clone(file))?;
    ring.register_buffers();
    ring.signal(event.as_raw_fd())?;
    let link = Arc::new(DriverLink { event, is_orphan: AtomicBool::new(false) });
    let attached = AttachedRing { ring, link: Arc::clone(&link), waker: None, finished: Vec::new() };
    with_rings(|rings| rings.push(attached));
    Ok(Some(ThreadDriver::new(Box::new(RingDriver { link }))))
}

/// Queues a read on the ring of the calling thread. Returns the read if the thread has no ring for `file`.
pub(super) fn submit(file: &Arc<VolumeFile>, in_flight: InFlight) -> Option<InFlight> {
    let mut not_taken = Some(in_flight);
    let mut orphan = None;
    let waker = with_rings(|rings| {
        let index = rings.iter().position(|attached| Arc::ptr_eq(&attached.ring.file, file))?;
        let attached = &mut rings[index];
        if attached.link.is_orphan.load(Ordering::Acquire) {
            orphan = Some(rings.swap_remove(index));
            return None;
        }
        if attached.ring.is_broken || attached.ring.waiting.len() >= WAITING_COUNT_MAX {
            return None;
        }
        attached.ring.queue(not_taken.take()?);
        attached.waker.take()
    });
    drop(orphan);
    if let Some(waker) = waker.flatten() {
        waker.wake();
    }
    not_taken
}

struct RingDriver {
    link: Arc<DriverLink>,
}

impl DriverTurn for RingDriver {
    fn turn(&mut self, waker: &Waker) {
        let turned = self.with_ring(|attached| {
            attached.waker = Some(waker.clone());
            let mut finished = std::mem::take(&mut attached.finished);
            attached.ring.turn(0, &mut finished);
            finished
        });
        let Some(mut finished) = turned else { return };
        deliver(&mut finished);
        let again = self.with_ring(|attached| {
            attached.finished = finished;
            if attached.ring.wants_turn() { attached.waker.take() } else { None }
        });
        if let Some(waker) = again.flatten() {
            waker.wake();
        }
    }

    fn event_descriptor(&self) -> BorrowedFd<'_> {
        self.link.event.as_fd()
    }
}

impl RingDriver {
    /// Calls `call` with the driver's ring. Returns `None` if this is not the thread of the ring.
    fn with_ring<T>(&self, call: impl FnOnce(&mut AttachedRing) -> T) -> Option<T> {
        with_rings(|rings| rings.iter_mut().find(|attached| Arc::ptr_eq(&attached.link, &self.link)).map(call))
            .flatten()
    }
}

impl Drop for RingDriver {
    fn drop(&mut self) {
        let found = with_rings(|rings| {
            let index = rings.iter().position(|attached| Arc::ptr_eq(&attached.link, &self.link));
            index.map(|index| rings.swap_remove(index))
        });
        match found.flatten() {
            Some(attached) => drop(attached),
            // The ring's thread gives it up when it next submits, or ends.
            None => self.link.is_orphan.store(true, Ordering::Release),
        }
    }
}

/// Calls `call` with the rings of this thread. Returns `None` if the thread is ending, so that its rings are gone.
fn with_rings<T>(call: impl FnOnce(&mut Vec<AttachedRing>) -> T) -> Option<T> {
    RINGS.try_with(|rings| call(&mut rings.borrow_mut())).ok()
}
