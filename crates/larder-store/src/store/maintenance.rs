//! The store's own thread: loads the index at start, then does the work that is due.
//!
//! Invariant: it sleeps while nothing is due. All its work is in [`EngineVolumes::maintain`], so that a simulation can
//! do the same work in virtual time.

use super::EngineVolumes;
use crate::sync::IgnorePoison;
use crate::{Error, ErrorKind, Result, device::block_on};
use std::{sync::Mutex, thread};

/// The running maintenance thread of one volume. Stopping or dropping this makes the thread write all dirty data, and
/// waits until the thread has ended.
pub(super) struct MaintenanceThread {
    volumes: EngineVolumes,
    /// Index of the volume among the store's volumes.
    index: usize,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

impl MaintenanceThread {
    pub(super) fn start(volumes: &EngineVolumes, index: usize) -> Result<Self> {
        let engine = volumes.at(index);
        if !engine.volume().options.background {
            block_on(engine.load());
            return Ok(Self { volumes: volumes.clone(), index, thread: Mutex::default() });
        }
        let own = volumes.clone();
        let spawned = thread::Builder::new().name("larder-maint".into()).spawn(move || run(&own, index));
        let thread =
            spawned.map_err(|source| Error::io(ErrorKind::Unavailable, "cannot start the store's thread", source))?;
        Ok(Self { volumes: volumes.clone(), index, thread: Mutex::new(Some(thread)) })
    }

    /// Stops the thread and waits until it has ended. Blocks the caller.
    pub(super) fn stop(&self) {
        self.volumes.at(self.index).volume().wakeup.stop();
        let thread = self.thread.lock().ignore_poison().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the store's thread panicked");
        }
    }
}

impl Drop for MaintenanceThread {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(volumes: &EngineVolumes, index: usize) {
    volumes.at(index).volume().set_maintenance_thread();
    block_on(volumes.at(index).load());
    loop {
        // The volume may get a new engine, and the loop must not keep the memory of the old one.
        let engine = volumes.at(index);
        if engine.volume().wakeup.stopped() {
            break;
        }
        drop(engine);
        block_on(volumes.maintain(index));
        let engine = volumes.at(index);
        engine.volume().wakeup.wait(|| engine.next_due());
    }
    volumes.at(index).volume().end_read_batches();
    if !volumes.at(index).volume().is_closed() {
        block_on(volumes.take_back(index, true));
        let engine = volumes.at(index);
        block_on(engine.retry_pending(true));
        if let Err(error) = block_on(engine.empty_if_pending()) {
            tracing::error!("{error}");
        }
        engine.finish_blocking();
        if let Err(error) = block_on(engine.volume().ensure_doubted()) {
            tracing::error!("{error}");
        }
    }
}
