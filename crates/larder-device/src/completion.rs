//! How an operation ends: a completion that the device delivers, and the future that awaits it.
//!
//! Invariant: every operation completes exactly once, with an error if its device is dropped. Cost: one allocation per
//! awaited operation.

use crate::ignore_poison::IgnorePoison;
use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

/// Receives the outcome of an operation, for a callback or a [`PendingTransfer`]. Dropping it without an outcome
/// delivers a broken pipe error.
///
/// ```
/// use larder_device::{Completion, block_on};
///
/// let (completion, pending) = Completion::pair();
/// completion.complete(Ok(7));
/// assert_eq!(block_on(pending).unwrap(), 7);
/// ```
pub struct Completion<T>(Option<CompletionTarget<T>>);

impl_debug!(Completion<T> {});

enum CompletionTarget<T> {
    Future(Arc<OutcomeSlot<T>>),
    Callback(Box<dyn FnOnce(io::Result<T>) + Send>),
}

struct OutcomeSlot<T>(Mutex<SlotState<T>>);

enum SlotState<T> {
    Waiting(Option<Waker>),
    Done(io::Result<T>),
    Taken,
}

impl<T> Completion<T> {
    /// Creates a completion, and a future that waits for its outcome.
    pub fn pair() -> (Self, PendingTransfer<T>) {
        let slot = Arc::new(OutcomeSlot(Mutex::new(SlotState::Waiting(None))));
        (Self(Some(CompletionTarget::Future(Arc::clone(&slot)))), PendingTransfer(slot))
    }

    /// Creates a completion that calls `callback` with the outcome. The call is made on the thread on which the device
    /// learns of the end of the operation, so it must not block.
    pub fn callback(callback: impl FnOnce(io::Result<T>) + Send + 'static) -> Self {
        Self(Some(CompletionTarget::Callback(Box::new(callback))))
    }

    /// Delivers `result` as the outcome of the operation.
    pub fn complete(mut self, result: io::Result<T>) {
        self.deliver(result);
    }

    fn deliver(&mut self, result: io::Result<T>) {
        match self.0.take() {
            Some(CompletionTarget::Future(slot)) => {
                let mut state = slot.0.lock().ignore_poison();
                let before = std::mem::replace(&mut *state, SlotState::Done(result));
                drop(state);
                if let SlotState::Waiting(Some(waker)) = before {
                    waker.wake();
                }
            }
            Some(CompletionTarget::Callback(callback)) => callback(result),
            None => {}
        }
    }
}

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        if self.0.is_some() {
            self.deliver(Err(io::Error::new(io::ErrorKind::BrokenPipe, "the device went away")));
        }
    }
}

/// A future for the outcome of an operation. Any executor can await it, or [`crate::block_on`] on a thread that may
/// block.
///
/// Dropping it does not cancel the operation: a write whose future is gone still reaches the device.
///
/// ```
/// use larder_device::{Completion, block_on};
/// use std::io::ErrorKind;
///
/// let (completion, pending) = Completion::<()>::pair();
/// drop(completion); // as a device does that goes away
/// assert_eq!(block_on(pending).unwrap_err().kind(), ErrorKind::BrokenPipe);
/// ```
pub struct PendingTransfer<T>(Arc<OutcomeSlot<T>>);

impl_debug!(PendingTransfer<T> {});

impl<T> Future for PendingTransfer<T> {
    type Output = io::Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.0.lock().ignore_poison();
        match std::mem::replace(&mut *state, SlotState::Taken) {
            SlotState::Done(result) => Poll::Ready(result),
            SlotState::Waiting(_) => {
                *state = SlotState::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
            SlotState::Taken => panic!("a completed transfer was polled again"),
        }
    }
}
