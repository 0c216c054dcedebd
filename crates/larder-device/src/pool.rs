//! A pool of threads that take work from one queue, one item at a time.
//!
//! Owns: the threads and their queue. The meaning of the work is unknown here. Invariant: dropping the pool waits until
//! all accepted work is done. Cost: two context switches per item; a sleeping thread costs nothing.

use std::{
    io,
    num::NonZeroUsize,
    sync::Arc,
    thread::{self, JoinHandle},
};

use crate::queue::TransferQueue;

pub(super) struct ThreadPool<T> {
    queue: Arc<TransferQueue<T>>,
    threads: Vec<JoinHandle<()>>,
}

impl<T: Send + 'static> ThreadPool<T> {
    /// Starts `thread_count` threads that call `work` for each item. Their names begin with `name`.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub(super) fn start(
        name: &str,
        thread_count: NonZeroUsize,
        work: impl Fn(T) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let work = Arc::new(work);
        // Filled in place, so that the threads already started end when a later one is refused.
        let mut pool = Self { queue: Arc::default(), threads: Vec::with_capacity(thread_count.get()) };
        for index in 0..thread_count.get() {
            let queue = Arc::clone(&pool.queue);
            let work = Arc::clone(&work);
            let thread = thread::Builder::new().name(format!("{name}-{index}")).spawn(move || {
                while let Some(piece) = queue.pop() {
                    work(piece);
                }
            })?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Passes `piece` to the next free thread. Returns `piece` as the error if the queue is full.
    pub(super) fn push(&self, piece: T) -> Result<(), T> {
        self.queue.push(piece).map(drop)
    }
}

impl<T> Drop for ThreadPool<T> {
    fn drop(&mut self) {
        self.queue.close();
        join_others(self.threads.drain(..));
    }
}

/// Waits for the end of `threads`, except the calling one. One of these threads may drop the last reference to its own
/// device in a completion, and a thread cannot wait for itself.
pub(super) fn join_others(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        if thread.thread().id() != thread::current().id() && thread.join().is_err() {
            tracing::error!("a completion panicked on a device thread");
        }
    }
}
