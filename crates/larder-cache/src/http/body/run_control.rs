//! Controls the task that receives a response of the origin.

use larder_device::IgnorePoison;
use std::{
    future::poll_fn,
    sync::Mutex,
    task::{Context, Poll, Waker},
};

/// The order for a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RunOrder {
    /// Receive bytes.
    #[default]
    Go,
    /// Receive no bytes for now.
    Pause,
    /// End the response. None of its bytes are wanted any more.
    Stop,
}

/// Controls the task of a run.
#[derive(Default)]
pub struct RunControl(Mutex<(RunOrder, Option<Waker>)>);

impl RunControl {
    /// Gives an order. Returns the task to wake.
    pub(super) fn set(&self, order: RunOrder) -> Option<Waker> {
        let mut state = self.0.lock().ignore_poison();
        state.0 = order;
        state.1.take()
    }

    /// Returns the order, and wakes the task at the next one.
    pub(super) fn poll(&self, context: &Context<'_>) -> RunOrder {
        let mut state = self.0.lock().ignore_poison();
        state.1 = Some(context.waker().clone());
        state.0
    }

    /// Waits until the run is stopped.
    pub(super) async fn stopped(&self) {
        poll_fn(|context| if self.poll(context) == RunOrder::Stop { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}
