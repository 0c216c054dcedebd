//! The state of one body: its core, its clients, and the responses that fill it.
//!
//! Owns: the translation of the core's actions. Actions on clients and runs are executed at once, under the body's
//! lock, so that their order never changes. All others become orders, which are executed after the lock is released.

use std::{collections::BTreeMap, ops::Range, sync::Arc, task::Waker};

use crate::object::{Action, Actions, Core, CursorEnd, CursorId, Event, RunId, Tick};
use http::HeaderMap;
use larder_http::framing::CompletedBody;
use tokio::{task::AbortHandle, time::Instant};

use super::{
    continuation::ContinuedBody,
    error::BodyError,
    fill::Fill,
    head::BodyHead,
    orders::{Order, Orders},
    run_control::{RunControl, RunOrder},
};
use crate::http::{body_budget::FillTurn, fetcher::Fetcher};

/// The state of one body: the core (its state machine), its clients, and the responses that fill it.
pub(super) struct BodyState<F: Fetcher> {
    pub(super) core: Core<BodyHead>,
    cursors: BTreeMap<CursorId, CursorSlot>,
    last_cursor: u32,
    runs: Vec<RunSlot>,
    /// The request with which missing bytes are requested, and the means to send it.
    pub(super) asker: Asker<F>,
    /// Number of bytes that may be in memory, as last reported to the core.
    pub(super) share_bytes: u64,
    /// Parts of the body that are not stored on this node, because another node stores them.
    pub(super) unkept: Vec<Range<u64>>,
    /// The reason why a response broke off. `None` if none did.
    pub(super) error: Option<BodyError>,
    /// The proof that the body is complete, from a response whose end determined the body's length.
    pub(super) completed: Option<CompletedBody>,
    /// The trailers that came after the body, if any.
    pub(super) trailers: Option<HeaderMap>,
    /// Number of heads that are being stored.
    pub(super) commits: usize,
    /// The plan for storing an arriving response. `None` if the body was opened from the store.
    pub(super) fill: Option<Fill>,
    /// Whether arriving bytes are stored. False once the core has given up storing.
    pub(super) is_storing: bool,
    /// Permission to exceed the body's memory share until a chunk is complete. `None` if the body has no such turn.
    pub(super) turn: Option<FillTurn>,
    /// Whether a task is waiting for a turn, the permission to exceed the memory share.
    pub(super) awaits_turn: bool,
    /// The task of the timer that the core requested last.
    pub(super) timer: Option<AbortHandle>,
}

/// The request of the client that attached last, and the means to request missing bytes with it.
pub(super) struct Asker<F: Fetcher> {
    pub(super) asked: Arc<F::Asked>,
    pub(super) means: Arc<F>,
}

impl<F: Fetcher> Clone for Asker<F> {
    fn clone(&self) -> Self {
        Self { asked: Arc::clone(&self.asked), means: Arc::clone(&self.means) }
    }
}

/// A client of the body, as the tasks around the core see it: its waker, and what the core has told it.
#[derive(Default)]
pub(super) struct CursorSlot {
    pub(super) waker: Option<Waker>,
    pub(super) is_promised: bool,
    /// Whether the core has been notified that the client found no bytes.
    pub(super) is_waiting: bool,
    /// The response that brings the bytes that were missing when the client got its promise. `None` if none were.
    pub(super) continued: Option<ContinuedBody>,
    pub(super) end: Option<CursorEnd>,
}

/// A response of the origin that fills the body: requested, or in progress.
struct RunSlot {
    id: RunId,
    control: Arc<RunControl>,
    continued: Option<ContinuedBody>,
}

impl<F: Fetcher> BodyState<F> {
    /// Creates the state of a body without clients.
    pub(super) fn new(core: Core<BodyHead>, asker: Asker<F>, fill: Option<Fill>) -> Self {
        Self {
            core,
            cursors: BTreeMap::new(),
            last_cursor: 0,
            runs: Vec::new(),
            asker,
            share_bytes: u64::MAX,
            unkept: Vec::new(),
            error: None,
            completed: None,
            trailers: None,
            commits: 0,
            fill,
            is_storing: true,
            turn: None,
            awaits_turn: false,
            timer: None,
        }
    }

    /// Applies an event to the core, and collects the orders and wake-ups that follow.
    pub(super) fn step(&mut self, now: Tick, event: Event<BodyHead>, orders: &mut Orders<F>) {
        if matches!(event, Event::Stored(..) | Event::StoredPart(..)) {
            self.turn = None;
        }
        let mut actions = Actions::new();
        self.core.on(now, event, &mut actions);
        for action in actions {
            let writes = matches!(action, Action::Store(..) | Action::StorePart { .. } | Action::CommitHead { .. });
            if writes && orders.late.is_none() {
                orders.late = self.asker.means.begin_late_commit();
            }
            self.apply(action, orders);
        }
    }

    fn apply(&mut self, action: Action, orders: &mut Orders<F>) {
        match action {
            Action::Promise(id) => {
                let run = self.core.awaited_run(id);
                let continued = self.runs.iter().find(|slot| Some(slot.id) == run).and_then(|slot| slot.continued);
                self.tell(id, orders, |slot| {
                    slot.is_promised = true;
                    slot.continued = continued;
                });
            }
            Action::Wake(id) => self.tell(id, orders, |slot| slot.is_waiting = false),
            Action::End(id, end) => self.tell(id, orders, |slot| slot.end = Some(end)),
            Action::Ask(id, ask) => {
                let control = self.add_run(id, None);
                orders.push(Order::Ask { run: id, ask, control, asker: self.asker.clone() });
            }
            Action::Pause(id) => self.order(id, RunOrder::Pause, orders),
            Action::Resume(id) => self.order(id, RunOrder::Go, orders),
            Action::Stop(id) => {
                self.order(id, RunOrder::Stop, orders);
                self.remove_run(id);
            }
            Action::Other(id) => {
                self.remove_run(id);
                orders.push(Order::Forget);
            }
            Action::Probe(chunk) => orders.push(Order::Probe(chunk)),
            Action::Read(range) => orders.push(Order::Read(range)),
            Action::Store(chunk, pieces) => orders.push(Order::Store { chunk, pieces: pieces.into_vec() }),
            Action::StorePart { chunk, start, pieces } => {
                orders.push(Order::StorePart { chunk, start, pieces: pieces.into_vec() });
            }
            Action::CommitHead { is_whole } => orders.push(Order::CommitHead { is_whole }),
            Action::Timer(tick) => orders.push(Order::Timer(tick)),
            Action::GivenUp => {
                self.is_storing = false;
                self.turn = None;
                orders.push(Order::GivenUp);
            }
        }
    }

    /// Returns whether the body should wait for a turn, the permission to exceed its memory share until a chunk is
    /// complete.
    pub(super) fn needs_turn(&self) -> bool {
        self.is_storing && self.turn.is_none() && !self.awaits_turn && !self.core.is_at_rest()
    }

    /// Ends the turn (the permission to exceed the memory share) whose time is over at `end`. While the store is still
    /// writing, the turn stays until the write has ended.
    pub(super) fn end_turn(&mut self, end: Instant) {
        let is_writing = self.core.is_writing();
        self.turn = self.turn.take().filter(|turn| turn.end != end || is_writing);
    }

    /// Adds a response, and returns the control of its task. `continued` says how the response continues the body, if
    /// its head has arrived.
    pub(super) fn add_run(&mut self, id: RunId, continued: Option<ContinuedBody>) -> Arc<RunControl> {
        let control = Arc::<RunControl>::default();
        self.runs.push(RunSlot { id, control: Arc::clone(&control), continued });
        control
    }

    /// Records how a response, whose head has just arrived, continues the body.
    pub(super) fn note_continued(&mut self, id: RunId, continued: ContinuedBody) {
        if let Some(slot) = self.runs.iter_mut().find(|slot| slot.id == id) {
            slot.continued = Some(continued);
        }
    }

    /// Removes a response that has ended.
    pub(super) fn remove_run(&mut self, id: RunId) {
        self.runs.retain(|slot| slot.id != id);
    }

    fn order(&self, id: RunId, order: RunOrder, orders: &mut Orders<F>) {
        if let Some(slot) = self.runs.iter().find(|slot| slot.id == id) {
            orders.wakers.extend(slot.control.set(order));
        }
    }

    fn tell(&mut self, id: CursorId, orders: &mut Orders<F>, change: impl FnOnce(&mut CursorSlot)) {
        if let Some(slot) = self.cursors.get_mut(&id) {
            change(slot);
            orders.wakers.extend(slot.waker.take());
        }
    }

    /// Adds a client, and returns its number.
    pub(super) fn add_cursor(&mut self) -> CursorId {
        self.last_cursor += 1;
        let id = CursorId(self.last_cursor);
        self.cursors.insert(id, CursorSlot::default());
        id
    }

    /// Returns a client that has not been removed.
    pub(super) fn cursor(&mut self, id: CursorId) -> &mut CursorSlot {
        self.cursors.get_mut(&id).expect("the client has not left")
    }

    /// Removes a client that no longer reads.
    pub(super) fn remove_cursor(&mut self, id: CursorId) {
        self.cursors.remove(&id);
    }

    /// Returns whether no client reads the body.
    pub(super) fn is_unread(&self) -> bool {
        self.cursors.is_empty()
    }

    /// Returns whether nothing is arriving or being stored, and no head is being stored. Clients may still read.
    pub(super) fn is_at_rest(&self) -> bool {
        self.core.is_at_rest() && self.commits == 0
    }
}
