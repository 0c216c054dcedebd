//! Controls the task that receives a response of the origin.

use larder_device::IgnorePoison;
use std::{
    future::poll_fn,
    sync::Mutex,
    task::{Context, Poll, Waker},
};

/// An order for the task that receives a run, which is a response of the origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RunOrder {
    /// Receive bytes of the response.
    #[default]
    Go,
    /// Receive no bytes for now, but keep the connection.
    Pause,
    /// Abort the response, because nobody wants its remaining bytes.
    Stop,
}

/// Controls the task that receives a run, which is a response of the origin.
#[derive(Default)]
pub struct RunControl(Mutex<(RunOrder, Option<Waker>)>);

impl RunControl {
    /// Sets the order for the receiving task. Returns the waker of the task if it must be woken.
    pub(super) fn set(&self, order: RunOrder) -> Option<Waker> {
        let mut state = self.0.lock().ignore_poison();
        state.0 = order;
        state.1.take()
    }

    /// Returns the current order. The calling task is woken when the order changes.
    pub(super) fn poll(&self, context: &Context<'_>) -> RunOrder {
        let mut state = self.0.lock().ignore_poison();
        state.1 = Some(context.waker().clone());
        state.0
    }

    /// Waits until the order is [`RunOrder::Stop`].
    pub(super) async fn stopped(&self) {
        poll_fn(|context| if self.poll(context) == RunOrder::Stop { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}
