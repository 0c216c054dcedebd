//! The queue of work for the threads of a device or directory.
//!
//! Owns: a bounded queue that never blocks its producers. The work is done elsewhere. Invariant: a pushed item is taken
//! by exactly one taker, or returned to the caller. Cost: one short lock per push.

use crate::ignore_poison::IgnorePoison;
use std::{
    collections::VecDeque,
    io,
    sync::{Condvar, Mutex, MutexGuard},
};

/// Maximum number of items in a queue. If there are more, their operations fail, and the proxy serves requests without
/// the cache.
pub(super) const WAITING_COUNT_MAX: usize = 16_384;

pub(super) struct TransferQueue<T> {
    state: Mutex<QueueState<T>>,
    filled: Condvar,
}

struct QueueState<T> {
    waiting: VecDeque<T>,
    is_closed: bool,
}

impl<T> Default for TransferQueue<T> {
    fn default() -> Self {
        let state = QueueState { waiting: VecDeque::new(), is_closed: false };
        Self { state: Mutex::new(state), filled: Condvar::new() }
    }
}

impl<T> TransferQueue<T> {
    /// Appends `work`. Returns whether the queue was empty: then the thread that takes items may have to be woken.
    /// Returns `work` as the error if the queue is full.
    pub(super) fn push(&self, work: T) -> Result<bool, T> {
        let mut state = self.lock();
        if state.waiting.len() == WAITING_COUNT_MAX {
            return Err(work);
        }
        let was_empty = state.waiting.is_empty();
        state.waiting.push_back(work);
        drop(state);
        self.filled.notify_one();
        Ok(was_empty)
    }

    /// Waits for an item, and takes the oldest. Returns `None` once the queue is closed and empty.
    pub(super) fn pop(&self) -> Option<T> {
        let state = self.lock();
        let mut state =
            self.filled.wait_while(state, |state| state.waiting.is_empty() && !state.is_closed).ignore_poison();
        state.waiting.pop_front()
    }

    /// Passes up to `count_max` items to `take`, the oldest first, without waiting. Returns whether the queue is
    /// closed.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only the io_uring thread takes many at once"))]
    pub(super) fn take(&self, count_max: usize, mut take: impl FnMut(T)) -> bool {
        let mut state = self.lock();
        let count = state.waiting.len().min(count_max);
        state.waiting.drain(..count).for_each(&mut take);
        state.is_closed
    }

    /// Closes the queue. Takers end once it is empty.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.filled.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().ignore_poison()
    }
}

/// Returns the error for an operation that a full queue did not accept.
pub(super) fn too_much_waits() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, format!("too many transfers are waiting: {WAITING_COUNT_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards against memory without a limit if a device does not respond.
    #[test]
    fn a_full_queue_gives_back_and_a_closed_one_ends_when_it_is_empty() {
        let queue = TransferQueue::default();
        for index in 0..WAITING_COUNT_MAX {
            assert_eq!(queue.push(index), Ok(index == 0));
        }
        assert_eq!(queue.push(WAITING_COUNT_MAX), Err(WAITING_COUNT_MAX));
        queue.close();
        assert_eq!(queue.pop(), Some(0));
        let mut taken = Vec::new();
        assert!(queue.take(usize::MAX, |index| taken.push(index)));
        assert!(taken.into_iter().eq(1..WAITING_COUNT_MAX));
        assert_eq!(queue.pop(), None);
    }
}
