//! What the core has ordered, to be executed after the body's lock is released.

use std::{collections::VecDeque, ops::Range, sync::Arc, task::Waker};

use crate::object::{OriginAsk, RunId, Tick};
use bytes::Bytes;

use super::{run_control::RunControl, state::Asker};
use crate::http::{fetcher::Fetcher, late_commits::LateCommit};

/// The orders of the core (the state machine of a body), in the order in which they were given, and the tasks to wake.
pub(super) struct Orders<F: Fetcher> {
    waiting: VecDeque<Order<F>>,
    pub(super) wakers: Vec<Waker>,
    /// A guard that keeps the program from ending before bytes are stored that clients may already have. Held until
    /// these orders have begun.
    pub(super) late: Option<LateCommit>,
}

/// A piece of work that the core ordered. Most variants are those of [`crate::object::Action`].
pub(super) enum Order<F: Fetcher> {
    Ask {
        run: RunId,
        ask: OriginAsk,
        control: Arc<RunControl>,
        asker: Asker<F>,
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
    /// Remove the stored head, because the origin now has another representation.
    Forget,
    Timer(Tick),
    GivenUp,
    TakeTurn,
}

impl<F: Fetcher> Default for Orders<F> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), wakers: Vec::new(), late: None }
    }
}

impl<F: Fetcher> Orders<F> {
    pub(super) fn push(&mut self, order: Order<F>) {
        self.waiting.push_back(order);
    }

    /// Wakes the tasks that have to be woken, and returns the next order.
    pub(super) fn next(&mut self) -> Option<Order<F>> {
        self.wakers.drain(..).for_each(Waker::wake);
        self.waiting.pop_front()
    }
}
