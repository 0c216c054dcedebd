//! The store's own thread: loads the index at start, then does the work that is due.
//!
//! Invariant: it sleeps while nothing is due. All its work is in [`EngineVolumes::maintain`], so that a simulation can
//! do the same work in virtual time.

use super::EngineVolumes;
use crate::{Error, ErrorKind, Result, device::block_on, families::AnyEngine};
use std::{
    sync::{Mutex, PoisonError},
    thread,
};

/// The running thread. Stopping or dropping it writes what is dirty and joins the thread.
pub(super) struct MaintenanceThread {
    engine: AnyEngine,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

impl MaintenanceThread {
    pub(super) fn start(volumes: &EngineVolumes, engine: &AnyEngine, background: bool) -> Result<Self> {
        if !background {
            block_on(engine.load());
            return Ok(Self { engine: engine.clone(), thread: Mutex::default() });
        }
        let (volumes, own) = (volumes.clone(), engine.clone());
        let spawned = thread::Builder::new().name("larder-maint".into()).spawn(move || run(&volumes, &own));
        let thread =
            spawned.map_err(|source| Error::io(ErrorKind::Unavailable, "cannot start the store's thread", source))?;
        Ok(Self { engine: engine.clone(), thread: Mutex::new(Some(thread)) })
    }

    /// Stops the thread and waits until it has ended. Blocks.
    pub(super) fn stop(&self) {
        self.engine.volume().wakeup.stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
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

fn run(volumes: &EngineVolumes, engine: &AnyEngine) {
    engine.volume().set_maintenance_thread();
    block_on(engine.load());
    let wakeup = &engine.volume().wakeup;
    while !wakeup.stopped() {
        block_on(volumes.maintain(engine));
        wakeup.wait(|| engine.next_due());
    }
    engine.volume().end_read_batches();
    if !engine.volume().is_closed() {
        if let Err(error) = block_on(engine.volume().ensure_emptied()) {
            tracing::error!("{error}");
        }
        block_on(volumes.take_back(engine, true));
        block_on(engine.retry_pending(true));
        if let Err(error) = block_on(engine.empty_if_pending()) {
            tracing::error!("{error}");
        }
        engine.finish_blocking();
    }
}
