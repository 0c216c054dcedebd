//! What the core has ordered, to be executed after the body's lock is released.

use std::{collections::VecDeque, ops::Range, sync::Arc, task::Waker};

use bytes::Bytes;
use larder_cache::object::{OriginAsk, RunId, Tick};

use super::{run_control::RunControl, state::Asker};

/// Orders in the order in which they were given, and the tasks to wake.
#[derive(Default)]
pub(super) struct Orders {
    waiting: VecDeque<Order>,
    pub(super) wakers: Vec<Waker>,
}

/// A task of the driver. See [`larder_cache::object::Action`].
pub(super) enum Order {
    Ask {
        run: RunId,
        ask: OriginAsk,
        control: Arc<RunControl>,
        asker: Asker,
    },
    Probe(u64),
    Read(Range<u64>),
    Store {
        chunk: u64,
        pieces: Vec<Bytes>,
    },
    StorePart {
        chunk: u64,
        start: u64,
        pieces: Vec<Bytes>,
    },
    CommitHead {
        is_whole: bool,
    },
    /// The origin has another representation, so the stored head leads to nothing.
    Forget,
    Timer(Tick),
    GivenUp,
    TakeTurn,
}

impl Orders {
    pub(super) fn push(&mut self, order: Order) {
        self.waiting.push_back(order);
    }

    /// Wakes the tasks, and returns the next order.
    pub(super) fn next(&mut self) -> Option<Order> {
        self.wakers.drain(..).for_each(Waker::wake);
        self.waiting.pop_front()
    }
}
