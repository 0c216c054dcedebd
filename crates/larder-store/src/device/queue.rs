//! Transfers waiting for a device's own threads.
//!
//! Owns: a bounded queue that never blocks who fills it. Invariant: what is pushed is either taken or completed
//! with an error. Cost: one short lock per push.

use std::{
    collections::VecDeque,
    io,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use super::in_flight::InFlight;

/// Most transfers that may wait in one queue; beyond, transfers fail and the cache is gone around.
pub(super) const WAITING_COUNT_MAX: usize = 16_384;

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<InFlight>,
    is_closed: bool,
}

impl Queue {
    /// Appends a transfer; whether the queue was empty, so that its taker may be asleep. A full queue refuses.
    pub(super) fn push(&self, in_flight: InFlight) -> bool {
        let mut state = self.lock();
        if state.waiting.len() == WAITING_COUNT_MAX {
            drop(state);
            let error = io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("too many transfers are waiting for the device: {WAITING_COUNT_MAX}"),
            );
            in_flight.complete(Err(error));
            return false;
        }
        let was_empty = state.waiting.is_empty();
        state.waiting.push_back(in_flight);
        drop(state);
        self.filled.notify_one();
        was_empty
    }

    /// The oldest transfer, waiting for one; `None` once the queue is closed and empty.
    pub(super) fn pop(&self) -> Option<InFlight> {
        let state = self.lock();
        let mut state = self
            .filled
            .wait_while(state, |state| state.waiting.is_empty() && !state.is_closed)
            .unwrap_or_else(PoisonError::into_inner);
        state.waiting.pop_front()
    }

    /// Gives up to `count_max` transfers to `take`, oldest first, without waiting; whether the queue is closed.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only the io_uring thread takes many at once"))]
    pub(super) fn take(&self, count_max: usize, mut take: impl FnMut(InFlight)) -> bool {
        let mut state = self.lock();
        let count = state.waiting.len().min(count_max);
        state.waiting.drain(..count).for_each(&mut take);
        state.is_closed
    }

    /// Lets takers end once the queue is empty.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.filled.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::{AlignedBuffer, Completion, Transfer, in_flight::Bounds};

    /// At stake: unbounded memory behind a device that does not answer.
    #[test]
    fn a_full_queue_refuses_and_a_dropped_one_completes() {
        let queue = Queue::default();
        let outcomes = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..=WAITING_COUNT_MAX {
            let outcomes = Arc::clone(&outcomes);
            let completion = Completion::callback(move |result: io::Result<AlignedBuffer>| {
                outcomes.lock().unwrap().push(result.map(|_| ()).unwrap_err().kind());
            });
            let transfer = Transfer::Read { offset_bytes: 0, buffer: AlignedBuffer::with_len(512), completion };
            let bounds = Bounds { len_bytes: 4096, alignment_bytes: 512 };
            queue.push(bounds.admit(transfer).unwrap());
        }
        assert_eq!(*outcomes.lock().unwrap(), [io::ErrorKind::ResourceBusy]);
        drop(queue);
        let outcomes = outcomes.lock().unwrap();
        assert_eq!(outcomes.len(), WAITING_COUNT_MAX + 1);
        assert!(outcomes[1..].iter().all(|kind| *kind == io::ErrorKind::BrokenPipe));
    }
}
