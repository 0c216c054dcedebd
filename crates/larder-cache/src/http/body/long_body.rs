//! One long or arriving body.
//!
//! Owns: the lock around the body's state, and the execution of the core's orders. `state` translates them, `storage`
//! probes, reads and writes, and `receiving` talks to the origin. Invariant: no lock is held while a task is polled or
//! woken. Cost: one short lock for each piece that arrives, is stored, or is sent to a client.

use larder_device::IgnorePoison;
use std::{
    future::Future,
    ops::Range,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::object::{Core, Event, ReadEnd, RunId, Sizes, Tick};
use larder_http::framing::{BodyMeter, CompletedBody, EndMark};
use tokio::{runtime::Handle, sync::Notify, time::Instant};

use super::{
    fill::{Fill, FillPlan},
    head::BodyHead,
    hold_up::HoldUp,
    orders::{Order, Orders},
    run_control::RunControl,
    state::{Asker, BodyState},
};
use crate::http::{
    body_budget::{BodyBudget, SHARE_BYTES_MAX, SHARE_BYTES_MIN},
    chunks::{BodyKeys, ChunkedBody},
    entry::{CHUNK_BYTES, CachedEntry, EntryBody},
    fetcher::{ClientRequest as _, Fetcher},
};

/// A long or arriving body. All its clients share it.
pub struct LongBody<F: Fetcher> {
    /// The keys, the length and the chunks of the body.
    pub chunks: Arc<ChunkedBody>,
    pub(super) means: Arc<F>,
    state: Mutex<BodyState<F>>,
    /// Measures for how long the store has delayed the clients.
    pub(super) hold_up: HoldUp,
    /// Wakes the tasks that wait in [`LongBody::settled`].
    rest: Notify,
    created: Instant,
}

/// The part of a body that a response brings, and how it is stored.
pub(crate) struct ArrivingPart {
    /// Length of the whole body in bytes. `None` if the response does not announce it.
    pub len: Option<u64>,
    /// Range of the body that the response brings. Its end is `u64::MAX` if the body's length is unknown.
    pub span: Range<u64>,
    /// Whether the response is a 200 with the whole body, not a 206.
    pub is_whole: bool,
    /// Whether the body is offered to the store, which may still refuse it.
    pub is_stored: bool,
    /// Whether this node of a fleet stores the part. If not, another node does.
    pub is_kept: bool,
    /// Whether bytes that this response does not bring may be requested.
    pub may_continue: bool,
}

/// A body whose first response is about to be received, and what its receiver needs.
pub(crate) struct BegunBody<F: Fetcher> {
    /// The body, to which clients can attach at once.
    pub body: Arc<LongBody<F>>,
    /// The number of the response in the core (the state machine of the body).
    pub run: RunId,
    /// Tells the receiving task to go on, pause or stop.
    pub control: Arc<RunControl>,
    /// The range of the whole body that the response brings.
    pub span: Range<u64>,
}

impl<F: Fetcher> LongBody<F> {
    /// Returns the body of a stored response, which other clients may be reading. `None` if the body is not in chunks,
    /// or if its resource has no key.
    pub fn of_stored(means: &Arc<F>, asked: &Arc<F::Asked>, key: &Arc<[u8]>, entry: &CachedEntry) -> Option<Arc<Self>> {
        let EntryBody::Chunks { len, representation } = entry.body else { return None };
        let primary = asked.key()?;
        Some(means.bodies().find_or_begin(representation, || {
            let keys = BodyKeys { primary: Arc::clone(primary), key: Arc::clone(key), representation };
            let chunks = ChunkedBody::new(means.cache(), keys, &entry.head, Some(len));
            // A digest can only be checked on the whole body.
            let is_checked = asked.names_digest() || entry.head.freshness().is_verified;
            let chunks = Arc::new(if is_checked { chunks.without_rest() } else { chunks });
            let sizes = sizes(&**means, asked, &chunks);
            let core = Core::stored(sizes, head_of(&chunks));
            let asker = Asker { asked: Arc::clone(asked), means: Arc::clone(means) };
            Self::with(chunks, means, BodyState::new(core, asker, None))
        }))
    }

    /// Creates a body whose first response is about to be received.
    pub(crate) fn begin(
        means: &Arc<F>,
        asked: &Arc<F::Asked>,
        keys: BodyKeys,
        plan: FillPlan,
        part: ArrivingPart,
    ) -> BegunBody<F> {
        let ArrivingPart { len, span, is_whole, is_stored, is_kept, may_continue } = part;
        let representation = keys.representation;
        let chunks = ChunkedBody::new(means.cache(), keys, &plan.head, len);
        let chunks = Arc::new(if may_continue { chunks } else { chunks.without_rest() });
        let mut fill = Fill::new(plan);
        let is_stored =
            is_stored && (Fill::is_short(len) || len.is_none_or(|len| fill.admits_chunks(means.cache(), len)));
        let sizes = sizes(&**means, asked, &chunks);
        let (core, run) = Core::arriving(sizes, head_of(&chunks), span.clone(), is_whole, is_stored);
        let asker = Asker { asked: Arc::clone(asked), means: Arc::clone(means) };
        let mut state = BodyState::new(core, asker, Some(fill));
        state.is_storing = is_stored;
        if !is_kept {
            state.unkept.push(span.clone());
        }
        let control = state.add_run(run, None);
        let body = means.bodies().find_or_begin(representation, || Self::with(chunks, means, state));
        BegunBody { body, run, control, span }
    }

    fn with(chunks: Arc<ChunkedBody>, means: &Arc<F>, state: BodyState<F>) -> Self {
        let means = Arc::clone(means);
        Self {
            chunks,
            means,
            state: Mutex::new(state),
            hold_up: HoldUp::default(),
            rest: Notify::new(),
            created: Instant::now(),
        }
    }

    /// Returns whether all bytes are in memory or in the store, and the end of the body is proved.
    pub fn is_complete(&self) -> bool {
        self.lock().core.is_complete()
    }

    /// Returns whether a response broke off, nothing more is arriving or being stored, and the body is incomplete.
    pub fn has_failed(&self) -> bool {
        let state = self.lock();
        state.error.is_some() && state.core.is_at_rest() && !state.core.is_complete()
    }

    /// Waits until nothing is arriving or being stored any more. A client may cause new requests later.
    pub async fn settled(&self) {
        loop {
            let rest = self.rest.notified();
            if self.lock().is_at_rest() {
                return;
            }
            rest.await;
        }
    }

    /// Returns the proof that the body is complete. `None` while it is not.
    pub(super) fn completed(state: &mut BodyState<F>) -> Option<CompletedBody> {
        state.completed.take().or_else(|| {
            let len = state.core.len().filter(|_| state.core.is_complete())?;
            let mut meter = BodyMeter::of_len(len);
            meter.take(len);
            meter.end(EndMark::Length).ok()
        })
    }
}

/// Applies events to the body's state, and executes the orders that follow from them.
impl<F: Fetcher> LongBody<F> {
    /// Applies an event to the body's state, and executes the orders that follow from it.
    pub(super) fn on(self: &Arc<Self>, event: Event<BodyHead>) {
        let mut orders = Orders::default();
        match event {
            Event::Read(range, ReadEnd::Absent) => self.report_absent(range, &mut orders),
            event => self.step(event, &mut orders),
        }
        self.execute(orders);
    }

    /// Applies an event. Before that, tells the core (the state machine of the body) how much memory the body may use
    /// now.
    fn step(&self, event: Event<BodyHead>, orders: &mut Orders<F>) {
        let mut state = self.lock();
        self.update_share(&mut state, orders);
        let had_turn = state.turn.is_some();
        state.step(self.now(), event, orders);
        if had_turn && state.turn.is_none() {
            // What the turn permitted leaves at once: a body whose client stands still has no later event.
            self.update_share(&mut state, orders);
        }
    }

    /// Calls `change` with the body's state, and executes the orders that follow from it.
    pub(super) fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut BodyState<F>, Tick, &mut Orders<F>) -> T) -> T {
        let mut orders = Orders::default();
        let result = {
            let mut state = self.lock();
            self.update_share(&mut state, &mut orders);
            change(&mut state, self.now(), &mut orders)
        };
        self.execute(orders);
        result
    }

    pub(super) fn execute(self: &Arc<Self>, mut orders: Orders<F>) {
        while let Some(order) = orders.next() {
            match self.begin_order(order) {
                Some(Event::Read(range, ReadEnd::Absent)) => self.report_absent(range, &mut orders),
                Some(event) => self.step(event, &mut orders),
                None => {}
            }
        }
        self.note_rest();
    }

    /// Wakes the tasks that wait in [`LongBody::settled`], so that they check again.
    pub(super) fn note_rest(&self) {
        self.rest.notify_waiters();
    }

    /// Begins to execute an order. Returns the result as an event if it is available at once.
    fn begin_order(self: &Arc<Self>, order: Order<F>) -> Option<Event<BodyHead>> {
        match order {
            Order::Ask { run, ask, control, asker } => {
                let requesting = Arc::clone(self).request((run, ask), control, asker);
                self.spawn(requesting, Event::Came(run, crate::object::Arrival::Broken))
            }
            Order::Probe(chunk) => self.begin_probe(chunk),
            Order::Read(range) => self.begin_read(range),
            Order::Store { chunk, pieces } => self.begin_store(chunk, pieces),
            Order::StorePart { chunk, start, pieces } => self.begin_store_part(chunk, (start, pieces)),
            Order::CommitHead { is_whole } => self.begin_commit(is_whole),
            Order::Forget => self.begin_forget(),
            Order::Timer(tick) => self.begin_timer(tick),
            Order::GivenUp => self.note_given_up(),
            Order::TakeTurn => self.begin_turn(),
        }
    }

    /// Tells the core that a chunk is not in the store, and that the stored chunks after it may be gone, too.
    ///
    /// Chunks of a body are often evicted together. If the core knows, it can request them all at once.
    fn report_absent(&self, range: Range<u64>, orders: &mut Orders<F>) {
        let mut state = self.lock();
        let chunk = range.start / CHUNK_BYTES;
        let behind = (chunk + 1..).take_while(|&next| state.core.is_in_store(next) && !self.chunks.was_seen(next));
        let doubted: Vec<u64> = behind.take(DOUBTED_MAX).collect();
        for next in doubted {
            state.step(self.now(), Event::Unsure(next), orders);
        }
        state.step(self.now(), Event::Read(range, ReadEnd::Absent), orders);
    }

    /// Polls `work` once, and returns its result if it is available at once. Otherwise a new task continues `work` and
    /// reports the result.
    ///
    /// If the task is dropped before it ends, it reports `lost` instead.
    pub(super) fn start(
        self: &Arc<Self>,
        work: impl Future<Output = Event<BodyHead>> + Send + 'static,
        lost: Event<BodyHead>,
    ) -> Option<Event<BodyHead>> {
        if Handle::try_current().is_err() {
            return Some(lost);
        }
        let mut work = Box::pin(work);
        if let Poll::Ready(event) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(event);
        }
        let late = self.means.begin_late_commit();
        let body = Arc::clone(self);
        let work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            let mut report = LostReport { body, event: Some(lost) };
            report.event = Some(work.await);
            drop((report, late));
        });
        tokio::spawn(work);
        None
    }

    /// Starts a task. If the runtime has ended, returns `lost` instead.
    fn spawn(
        self: &Arc<Self>,
        work: impl Future<Output = ()> + Send + 'static,
        lost: Event<BodyHead>,
    ) -> Option<Event<BodyHead>> {
        if Handle::try_current().is_err() {
            return Some(lost);
        }
        tokio::spawn(Box::pin(work));
        None
    }

    /// Sets the timer: reports [`Event::Tick`] at `tick`. Cancels the timer that was set before, which was for a later
    /// time.
    fn begin_timer(self: &Arc<Self>, tick: Tick) -> Option<Event<BodyHead>> {
        let runtime = Handle::try_current().ok()?;
        let body = Arc::downgrade(self);
        let end = self.created + Duration::from_millis(tick.0);
        let timer = runtime.spawn(async move {
            tokio::time::sleep_until(end).await;
            if let Some(body) = Weak::upgrade(&body) {
                body.on(Event::Tick);
            }
        });
        if let Some(earlier) = self.lock().timer.replace(timer.abort_handle()) {
            earlier.abort();
        }
        None
    }

    /// Starts a task that waits for a turn: the permission to have a whole chunk of this body in memory although memory
    /// is short.
    ///
    /// Without turns, each body could hold a part of a chunk, and no memory would be left to complete any of them.
    fn begin_turn(self: &Arc<Self>) -> Option<Event<BodyHead>> {
        let runtime = Handle::try_current().ok()?;
        let budget = Arc::clone(self.budget());
        let body = Arc::downgrade(self);
        runtime.spawn(async move {
            let turn = budget.take_turn().await;
            let end = turn.as_ref().map(|turn| turn.end);
            let Some(found) = Weak::upgrade(&body) else { return };
            found.change(|state, _, _| {
                state.awaits_turn = false;
                state.turn = turn.filter(|_| state.needs_turn());
            });
            found.on(Event::Tick);
            drop(found);
            let Some(end) = end else { return };
            tokio::time::sleep_until(end).await;
            if let Some(found) = Weak::upgrade(&body) {
                found.change(|state, _, _| state.end_turn(end));
                found.on(Event::Tick);
            }
        });
        None
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BodyState<F>> {
        self.state.lock().ignore_poison()
    }

    pub(super) fn now(&self) -> Tick {
        Tick(u64::try_from(self.created.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn budget(&self) -> &Arc<BodyBudget> {
        &self.means.cache().shared.bodies
    }

    /// Tells the core how many bytes of the body may be in memory, if that number has doubled or halved. Orders a turn
    /// (permission to complete a chunk) if it is too small for a chunk.
    pub(super) fn update_share(&self, state: &mut BodyState<F>, orders: &mut Orders<F>) {
        let share = self.budget().share_bytes(state.core.held_bytes());
        let has_turn = state.turn.is_some();
        if share < FILLING_BYTES && state.core.held_bytes() >= share / 2 && state.needs_turn() {
            state.awaits_turn = true;
            orders.push(Order::TakeTurn);
        }
        // A step per doubling, because each event costs a plan.
        let share = if share.is_power_of_two() { share } else { share.next_power_of_two() / 2 };
        let share = if has_turn { share.max(FILLING_BYTES) } else { share };
        if share != state.share_bytes {
            state.share_bytes = share;
            state.step(self.now(), Event::Budget(share), orders);
        }
    }
}

impl<F: Fetcher> Drop for LongBody<F> {
    fn drop(&mut self) {
        if let Some(timer) = self.lock().timer.take() {
            timer.abort();
        }
        self.means.bodies().remove(self.chunks.place.representation);
    }
}

/// A guard that reports its event to the body when it is dropped.
struct LostReport<F: Fetcher> {
    body: Arc<LongBody<F>>,
    event: Option<Event<BodyHead>>,
}

impl<F: Fetcher> Drop for LostReport<F> {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            self.body.on(event);
        }
    }
}

fn head_of(chunks: &ChunkedBody) -> BodyHead {
    let budget = Arc::clone(&chunks.cache.shared.bodies);
    BodyHead { validator: chunks.validator.clone(), len: chunks.body_len(), budget }
}

fn sizes<F: Fetcher>(means: &F, asked: &F::Asked, chunks: &ChunkedBody) -> Sizes {
    let cut = means.piece_len(asked, chunks).unwrap_or(u64::MAX);
    Sizes {
        chunk: CHUNK_BYTES,
        block: SHARE_BYTES_MIN,
        cut,
        ahead: AHEAD_BYTES,
        lead: LEAD_BYTES,
        gap: GAP_BYTES,
        kept: SHARE_BYTES_MAX,
        least: SHARE_BYTES_MIN,
    }
}

/// Memory in bytes that a body needs to complete a chunk: the chunk itself, and what arrives together with its end.
const FILLING_BYTES: u64 = CHUNK_BYTES + (128 << 10);
/// Maximum number of chunks that are probed again when a chunk before them is absent.
const DOUBTED_MAX: usize = 64;
/// Maximum distance in bytes for which a client waits for a response: from the response's next byte to the client's. A
/// client further ahead gets a request of its own.
const AHEAD_BYTES: u64 = 8 << 20;
/// Maximum number of bytes by which a response may be ahead of its fastest client, and reads of the store ahead of
/// their client.
const LEAD_BYTES: u64 = 4 << 20;
/// Minimum number of present bytes between two gaps for which each gap gets a request of its own.
const GAP_BYTES: u64 = 256 << 10;
