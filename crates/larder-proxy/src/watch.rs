//! Coarse deadlines for connections: one list per worker, scanned once a second.
//!
//! Owns: the worker's tick count and the list of watched connections. The owner of a connection arms and disarms its
//! deadline. Invariant: a connection whose deadline has passed is woken and finds [`WatchOrder::Expire`]. So does
//! the one that is missed least when there is no room for another. Cost: arming is two plain stores. There are no
//! timers, so a request that meets its deadlines costs nothing more. (The HTTP library's own timer for heads costs 0.6
//! us per request.)

use larder_device::IgnorePoison;
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering::Relaxed},
        mpsc::Sender,
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use slab::Slab;

use crate::client::handed::ClientConnection;

/// The deadlines of one worker.
#[derive(Default)]
pub(crate) struct WorkerDeadlines {
    /// Seconds since the worker started.
    tick: AtomicU32,
    /// Whether another proxy is about to take over.
    says_goodbye: AtomicBool,
    /// Whether connections can be handed over to that proxy.
    has_successor: AtomicBool,
    successor: Mutex<Option<Sender<ClientConnection>>>,
    watched: Mutex<Slab<Arc<ConnectionDeadline>>>,
    /// The start of the next search for a connection to close.
    search_from: AtomicUsize,
}

/// The deadline of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionDeadline {
    deadline_tick: AtomicU32,
    /// When the deadline was last set: the last progress of the connection.
    moved_tick: AtomicU32,
    phase: AtomicU8,
    order: AtomicU8,
    waker: Mutex<Option<Waker>>,
}

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionPhase {
    /// No client's connection, or one that carries other bytes than HTTP.
    Other,
    /// Waiting for a request.
    Idle,
    /// A request's head is arriving.
    Head,
    /// A request is being answered, whose response has not begun.
    Busy,
    /// A response is being sent.
    Sending,
}

/// An order to a watched connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchOrder {
    /// Continue.
    Run,
    /// Finish the current exchange, then move to the other process, or close if that is impossible.
    ///
    /// A connection that was opened during the handover and cannot move may send its first request.
    Leave,
    /// Finish the current exchange, then close.
    Drain,
    /// Close now, because the deadline has passed.
    Expire,
}

/// Keeps a connection on its worker's list.
pub(crate) struct WatchedConnection {
    watch: Arc<ConnectionDeadline>,
    index: usize,
    watches: Arc<WorkerDeadlines>,
}

impl WorkerDeadlines {
    /// Adds a connection to the list, without a deadline.
    pub(crate) fn register(self: &Arc<Self>) -> WatchedConnection {
        let watch = Arc::new(ConnectionDeadline {
            deadline_tick: AtomicU32::new(NEVER),
            moved_tick: AtomicU32::new(self.tick()),
            phase: AtomicU8::new(ConnectionPhase::Other as u8),
            order: AtomicU8::new(WatchOrder::Run as u8),
            waker: Mutex::new(None),
        });
        let index = self.lock().insert(Arc::clone(&watch));
        WatchedConnection { watch, index, watches: Arc::clone(self) }
    }

    /// Counts one second and wakes every connection whose deadline has passed.
    pub(crate) fn advance(&self) {
        let tick = self.tick.load(Relaxed).saturating_add(1).min(PAUSED - 1);
        self.tick.store(tick, Relaxed);
        for (_, watch) in self.lock().iter() {
            if watch.deadline_tick.load(Relaxed) < tick {
                watch.give(WatchOrder::Expire);
            }
        }
    }

    /// Closes a client's connection, because there is no room for another: the one that has waited longest for a
    /// request. If there is none, one whose client has long taken nothing of its response. Returns whether there was
    /// one.
    ///
    /// Looks at some of the connections only, in turn, so that a flood of new ones costs little each.
    pub(crate) fn close_stillest(&self) -> bool {
        let watched = self.lock();
        let tick = self.tick();
        let slots = watched.capacity().max(1);
        let from = self.search_from.load(Relaxed) % slots;
        let searched =
            (0..slots).map(|step| (from + step) % slots).filter_map(|index| Some((index, watched.get(index)?)));
        let candidates =
            searched.take(SEARCH_COUNT_MAX).inspect(|(index, _)| self.search_from.store(index + 1, Relaxed));
        let stillest =
            candidates.filter_map(|(_, watch)| Some((watch.rank(tick)?, watch))).min_by_key(|(rank, _)| *rank);
        stillest.map(|(_, watch)| watch.give(WatchOrder::Expire)).is_some()
    }

    /// Sends `order` to every connection on the list.
    pub(crate) fn give_all(&self, order: WatchOrder) {
        for (_, watch) in self.lock().iter() {
            watch.give(order);
        }
    }

    /// Starts or stops making every response the last of its connection.
    pub(crate) fn say_goodbye(&self, says: bool) {
        self.says_goodbye.store(says, Relaxed);
    }

    /// Returns whether every response is to be the last of its connection.
    pub(crate) fn says_goodbye(&self) -> bool {
        self.says_goodbye.load(Relaxed)
    }

    /// Sets the proxy that receives idle connections when they must leave.
    pub(crate) fn lead_to(&self, successor: Option<Sender<ClientConnection>>) {
        self.has_successor.store(successor.is_some(), Relaxed);
        *self.successor.lock().ignore_poison() = successor;
    }

    /// Returns whether another proxy is ready for connections without a request.
    pub(crate) fn has_successor(&self) -> bool {
        self.has_successor.load(Relaxed)
    }

    /// Hands a connection over to the other proxy. If that proxy is gone, the connection closes.
    pub(crate) fn hand_over(&self, connection: ClientConnection) {
        let successor = self.successor.lock().ignore_poison();
        let _ = successor.as_ref().map(|successor| successor.send(connection));
    }

    /// Returns the number of seconds since the worker started.
    pub(crate) fn tick(&self) -> u32 {
        self.tick.load(Relaxed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Slab<Arc<ConnectionDeadline>>> {
        self.watched.lock().ignore_poison()
    }
}

impl WatchedConnection {
    /// Sets the deadline `after` from now. It expires up to a second late, never early.
    pub(crate) fn arm(&self, after: Duration) {
        let after_ticks = u32::try_from(after.as_secs()).unwrap_or(NEVER).saturating_add(1);
        let deadline = self.watches.tick().saturating_add(after_ticks).min(PAUSED - 1);
        self.watch.deadline_tick.store(deadline, Relaxed);
        self.watch.moved_tick.store(self.watches.tick(), Relaxed);
    }

    /// Returns the phase of the connection.
    pub(crate) fn phase(&self) -> ConnectionPhase {
        self.watch.phase()
    }

    /// Sets the phase of the connection.
    pub(crate) fn enter(&self, phase: ConnectionPhase) {
        self.watch.phase.store(phase as u8, Relaxed);
    }

    /// Removes the deadline.
    pub(crate) fn disarm(&self) {
        self.watch.deadline_tick.store(NEVER, Relaxed);
    }

    /// Returns whether there is a deadline, running or paused.
    pub(crate) fn is_armed(&self) -> bool {
        self.watch.deadline_tick.load(Relaxed) != NEVER
    }

    /// Moves a running deadline to `after` from now.
    pub(crate) fn put_off(&self, after: Duration) {
        if !matches!(self.watch.deadline_tick.load(Relaxed), NEVER | PAUSED) {
            self.arm(after);
        }
    }

    /// Pauses a running deadline.
    pub(crate) fn pause(&self) {
        if self.is_armed() {
            self.watch.deadline_tick.store(PAUSED, Relaxed);
        }
    }

    /// Restarts an existing deadline, `after` from now.
    pub(crate) fn resume(&self, after: Duration) {
        if self.is_armed() {
            self.arm(after);
        }
    }

    /// Returns the order for the connection.
    pub(crate) fn order(&self) -> WatchOrder {
        match self.watch.order.load(Relaxed) {
            order if order == WatchOrder::Run as u8 => WatchOrder::Run,
            order if order == WatchOrder::Leave as u8 => WatchOrder::Leave,
            order if order == WatchOrder::Drain as u8 => WatchOrder::Drain,
            _ => WatchOrder::Expire,
        }
    }

    /// Orders the connection to close at once.
    pub(crate) fn expire(&self) {
        self.watch.give(WatchOrder::Expire);
    }

    /// Withdraws the order to close until the next deadline.
    pub(crate) fn pardon(&self) {
        self.watch.order.store(WatchOrder::Drain as u8, Relaxed);
    }

    /// Wakes the task.
    pub(crate) fn wake(&self) {
        self.watch.wake();
    }

    /// Forgets the task, so that the memory of one that has ended is not kept.
    pub(crate) fn forget_task(&self) {
        *self.watch.waker.lock().ignore_poison() = None;
    }

    /// Registers the task to wake when an order arrives. Must be called at the task's first poll. A task's waker never
    /// changes.
    pub(crate) fn remember(&self, context: &Context<'_>) {
        *self.watch.waker.lock().ignore_poison() = Some(context.waker().clone());
    }
}

impl Drop for WatchedConnection {
    fn drop(&mut self) {
        self.watches.lock().remove(self.index);
    }
}

/// A future that ends early with `None` when one of certain orders arrives.
pub(crate) struct OrderWatch<'a, F> {
    inner: Pin<Box<F>>,
    watched: &'a WatchedConnection,
    ends_on: &'static [WatchOrder],
    started: bool,
}

impl<'a, F: Future> OrderWatch<'a, F> {
    pub(crate) fn new(inner: F, watched: &'a WatchedConnection, ends_on: &'static [WatchOrder]) -> Self {
        Self { inner: Box::pin(inner), watched, ends_on, started: false }
    }
}

impl<F: Future> Future for OrderWatch<'_, F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.started {
            self.started = true;
            self.watched.remember(context);
        }
        if self.ends_on.contains(&self.watched.order()) {
            return Poll::Ready(None);
        }
        self.inner.as_mut().poll(context).map(Some)
    }
}

impl ConnectionDeadline {
    fn phase(&self) -> ConnectionPhase {
        match self.phase.load(Relaxed) {
            phase if phase == ConnectionPhase::Idle as u8 => ConnectionPhase::Idle,
            phase if phase == ConnectionPhase::Head as u8 => ConnectionPhase::Head,
            phase if phase == ConnectionPhase::Busy as u8 => ConnectionPhase::Busy,
            phase if phase == ConnectionPhase::Sending as u8 => ConnectionPhase::Sending,
            _ => ConnectionPhase::Other,
        }
    }

    /// Returns the place of the connection among those that may be closed for others: the least is closed first.
    fn rank(&self, tick: u32) -> Option<(bool, u32)> {
        let moved_tick = self.moved_tick.load(Relaxed);
        let is_sending = match self.phase() {
            ConnectionPhase::Idle | ConnectionPhase::Head => false,
            ConnectionPhase::Sending if moved_tick.saturating_add(STILL_TICKS) < tick => true,
            ConnectionPhase::Sending | ConnectionPhase::Busy | ConnectionPhase::Other => return None,
        };
        (self.order.load(Relaxed) == WatchOrder::Run as u8).then_some((is_sending, moved_tick))
    }

    fn give(&self, order: WatchOrder) {
        self.order.store(order as u8, Relaxed);
        self.wake();
    }

    fn wake(&self) {
        let waker = self.waker.lock().ignore_poison().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Most connections that are compared when one must be closed.
const SEARCH_COUNT_MAX: usize = 256;
/// Seconds without progress from which on a client that takes its response is closed for others.
const STILL_TICKS: u32 = 2;
/// The tick of connections without a deadline.
const NEVER: u32 = u32::MAX;
/// The tick of connections whose deadline is paused.
const PAUSED: u32 = NEVER - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_expires_after_its_deadline_and_not_before() {
        let watches = Arc::new(WorkerDeadlines::default());
        let watched = watches.register();
        watched.arm(Duration::from_secs(2));
        for _ in 0..3 {
            watches.advance();
            assert_eq!(watched.order(), WatchOrder::Run);
        }
        watches.advance();
        assert_eq!(watched.order(), WatchOrder::Expire);
    }

    #[test]
    fn disarmed_connection_never_expires() {
        let watches = Arc::new(WorkerDeadlines::default());
        let watched = watches.register();
        watched.arm(Duration::ZERO);
        watched.disarm();
        for _ in 0..10 {
            watches.advance();
        }
        assert_eq!(watched.order(), WatchOrder::Run);
        assert!(!watched.is_armed());
    }

    #[test]
    fn deadline_that_stands_still_is_there_and_never_passes() {
        let watches = Arc::new(WorkerDeadlines::default());
        let watched = watches.register();
        watched.pause();
        watched.put_off(Duration::ZERO);
        watched.resume(Duration::ZERO);
        assert!(!watched.is_armed(), "there was none");
        watched.arm(Duration::ZERO);
        watched.pause();
        watched.put_off(Duration::ZERO);
        for _ in 0..10 {
            watches.advance();
        }
        assert!(watched.is_armed() && watched.order() == WatchOrder::Run);
        watched.resume(Duration::ZERO);
        watches.advance();
        watches.advance();
        assert_eq!(watched.order(), WatchOrder::Expire);
    }

    #[test]
    fn connection_that_is_missed_least_is_closed_for_another() {
        let watches = Arc::new(WorkerDeadlines::default());
        let [sending, waits_for_origin, first, second, origin] = [(); 5].map(|()| watches.register());
        let closed = || {
            [&sending, &waits_for_origin, &first, &second, &origin].map(|watched| watched.order() != WatchOrder::Run)
        };
        sending.enter(ConnectionPhase::Sending);
        waits_for_origin.enter(ConnectionPhase::Busy);
        assert!(!watches.close_stillest(), "it may still take its response");
        first.enter(ConnectionPhase::Idle);
        second.enter(ConnectionPhase::Head);
        (0..4).for_each(|_| watches.advance());
        first.arm(Duration::from_secs(60));
        assert!(watches.close_stillest());
        assert_eq!(closed(), [false, false, false, true, false]);
        assert!(watches.close_stillest() && watches.close_stillest());
        assert_eq!(closed(), [true, false, true, true, false]);
        assert!(!watches.close_stillest());
    }

    #[test]
    fn dropped_connection_leaves_the_list() {
        let watches = Arc::new(WorkerDeadlines::default());
        drop(watches.register());
        assert!(watches.lock().is_empty());
    }
}
