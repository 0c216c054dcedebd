//! The place where fetches run: the tokio runtime of the caller that begins one, or a thread of the cache.
//!
//! Invariant: a task goes on when its caller is dropped, and ends early only with its runtime. Cost: one thread for all
//! fetches that begin outside of a tokio runtime, and another for removals of tags, each started by the first.

use futures_channel::oneshot;
use larder_device::IgnorePoison;
use std::{io, sync::Mutex, thread};
use tokio::runtime::{Builder, Handle};

/// Runs the fetches of a cache: on the tokio runtime of their callers, or on a thread of the cache.
#[derive(Default)]
pub(crate) struct Ground {
    own: Mutex<Option<OwnThread>>,
}

/// The cache's own thread. It ends when the last clone of the cache is dropped. Each task on it has a clone, so the
/// thread ends after all tasks.
struct OwnThread {
    handle: Handle,
    _end: oneshot::Sender<()>,
}

impl Ground {
    /// Runs a task to its end, even if the caller is dropped.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        let handle = match Handle::try_current() {
            Ok(handle) => handle,
            Err(_) => self.own_handle()?,
        };
        handle.spawn(task);
        Ok(())
    }

    /// Runs blocking work on another thread, one call after the other. The work goes on if the caller is dropped.
    ///
    /// # Errors
    /// No thread can be started, or the work panicked.
    pub(crate) async fn block<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let working = self.own_handle()?.spawn_blocking(work);
        working.await.map_err(io::Error::other)
    }

    fn own_handle(&self) -> io::Result<Handle> {
        let mut own = self.own.lock().ignore_poison();
        if let Some(own) = &*own {
            return Ok(own.handle.clone());
        }
        let runtime = Builder::new_current_thread().max_blocking_threads(1).build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let run = move || _ = runtime.block_on(ended);
        thread::Builder::new().name("larder-fetch".to_owned()).spawn(run)?;
        *own = Some(OwnThread { handle: handle.clone(), _end: end });
        Ok(handle)
    }
}
