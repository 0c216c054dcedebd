//! What the core has ordered, to be executed after the body's lock is released.

use std::{collections::VecDeque, ops::Range, sync::Arc, task::Waker};

use crate::object::{OriginAsk, RunId, Tick};
use bytes::Bytes;

use super::{run_control::RunControl, state::Asker};
use crate::http::{fetcher::Fetcher, late_commits::LateCommit};

/// Orders in the order in which they were given, and the tasks to wake.
pub(super) struct Orders<F: Fetcher> {
    waiting: VecDeque<Order<F>>,
    pub(super) wakers: Vec<Waker>,
    /// A guard for which the end of the program waits. Held from the moment when clients may have bytes that are yet to
    /// be stored, until these orders have begun.
    pub(super) late: Option<LateCommit>,
}

/// Work that the core has ordered, see [`crate::object::Action`].
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
    /// Removes the stored head, because the origin now has another representation.
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

    /// Wakes the tasks, and returns the next order.
    pub(super) fn next(&mut self) -> Option<Order<F>> {
        self.wakers.drain(..).for_each(Waker::wake);
        self.waiting.pop_front()
    }
}
