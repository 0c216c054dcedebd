//! Coarse deadlines for connections: one list per worker, scanned once a second.
//!
//! Owns: the worker's tick count and the list of watched connections. The owner of a connection arms and disarms its
//! deadline. Invariant: a connection whose deadline has passed is woken and finds [`WatchOrder::Expire`]. The same
//! happens to the connection that is missed least when there is no room for a new one. Cost: arming is two plain
//! stores. There are no timers, so a request that meets its deadlines costs nothing more. (The HTTP library's own timer
//! for heads costs 0.6 us per request.)

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

use crate::ground::handed::ClientConnection;

/// The deadlines of one worker's connections.
#[derive(Default)]
pub(crate) struct WorkerDeadlines {
    /// Number of seconds since the worker started.
    tick: AtomicU32,
    /// Whether each response must be the last of its connection, because another process is about to take over.
    says_goodbye: AtomicBool,
    /// Whether the next process accepts connections that are handed over.
    has_successor: AtomicBool,
    successor: Mutex<Option<Sender<ClientConnection>>>,
    watched: Mutex<Slab<Arc<ConnectionDeadline>>>,
    /// The index at which the next search for a connection to close begins.
    search_from: AtomicUsize,
}

/// The deadline, phase and order of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionDeadline {
    deadline_tick: AtomicU32,
    /// The tick (seconds since the worker started) at which the deadline was last set: the time of the connection's
    /// last progress.
    moved_tick: AtomicU32,
    phase: AtomicU8,
    order: AtomicU8,
    waker: Mutex<Option<Waker>>,
}

/// The activity of a connection. It decides whether the connection may be closed to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionPhase {
    /// The connection is never closed to make room: it leads to an origin, or carries bytes other than HTTP.
    Other,
    /// The client's connection waits for a request.
    Idle,
    /// The head of a request is arriving.
    Head,
    /// A request is being answered, and its response has not begun.
    Busy,
    /// A response is being sent.
    Sending,
}

/// The action that a watched connection must take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchOrder {
    /// Continue as usual.
    Run,
    /// Finish the current exchange, then move to the next process, or close if that is impossible.
    ///
    /// A connection that was opened during the handover and cannot move may send its first request.
    Leave,
    /// Finish the current exchange, then close.
    Drain,
    /// Close now, because the deadline has passed.
    Expire,
}

/// A connection's entry in its worker's list. The entry is removed when this is dropped.
pub(crate) struct WatchedConnection {
    watch: Arc<ConnectionDeadline>,
    index: usize,
    watches: Arc<WorkerDeadlines>,
}

impl WorkerDeadlines {
    /// Adds a connection to the worker's list, without a deadline.
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

    /// Advances the tick by one second, and wakes every connection whose deadline has passed.
    pub(crate) fn advance(&self) {
        let tick = self.tick.load(Relaxed).saturating_add(1).min(PAUSED - 1);
        self.tick.store(tick, Relaxed);
        for (_, watch) in self.lock().iter() {
            if watch.deadline_tick.load(Relaxed) < tick {
                watch.give(WatchOrder::Expire);
            }
        }
    }

    /// Closes the client connection that matters least, to make room for a new one. Returns false if there is no
    /// candidate.
    ///
    /// The candidate is the connection that has waited longest for a request. If no connection waits for a request, the
    /// candidate is one whose client has not accepted more of its response for [`STILL_TICKS`] seconds. Each call
    /// compares only some of the connections, in turn, so that a flood of new ones costs little.
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

    /// Gives `order` to every connection on the worker's list.
    pub(crate) fn give_all(&self, order: WatchOrder) {
        for (_, watch) in self.lock().iter() {
            watch.give(order);
        }
    }

    /// Starts or stops making each response the last of its connection.
    pub(crate) fn say_goodbye(&self, says: bool) {
        self.says_goodbye.store(says, Relaxed);
    }

    /// Returns whether each response must be the last of its connection.
    pub(crate) fn says_goodbye(&self) -> bool {
        self.says_goodbye.load(Relaxed)
    }

    /// Sets the successor, the next process, to which idle connections are handed over. `None` if there is no
    /// successor.
    pub(crate) fn lead_to(&self, successor: Option<Sender<ClientConnection>>) {
        self.has_successor.store(successor.is_some(), Relaxed);
        *self.successor.lock().ignore_poison() = successor;
    }

    /// Returns whether the next process accepts connections without a request.
    pub(crate) fn has_successor(&self) -> bool {
        self.has_successor.load(Relaxed)
    }

    /// Hands a connection over to the next process. If that process is gone, the connection closes.
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
    /// Sets the connection's deadline to `after` from now. It expires up to a second late, never early.
    pub(crate) fn arm(&self, after: Duration) {
        let after_ticks = u32::try_from(after.as_secs()).unwrap_or(NEVER).saturating_add(1);
        let deadline = self.watches.tick().saturating_add(after_ticks).min(PAUSED - 1);
        self.watch.deadline_tick.store(deadline, Relaxed);
        self.watch.moved_tick.store(self.watches.tick(), Relaxed);
    }

    /// Returns what the connection is doing.
    pub(crate) fn phase(&self) -> ConnectionPhase {
        self.watch.phase()
    }

    /// Sets what the connection is doing.
    pub(crate) fn enter(&self, phase: ConnectionPhase) {
        self.watch.phase.store(phase as u8, Relaxed);
    }

    /// Removes the deadline.
    pub(crate) fn disarm(&self) {
        self.watch.deadline_tick.store(NEVER, Relaxed);
    }

    /// Returns whether a deadline is set, even if it is paused.
    pub(crate) fn is_armed(&self) -> bool {
        self.watch.deadline_tick.load(Relaxed) != NEVER
    }

    /// Moves the deadline to `after` from now, unless it is paused or there is none.
    pub(crate) fn put_off(&self, after: Duration) {
        if !matches!(self.watch.deadline_tick.load(Relaxed), NEVER | PAUSED) {
            self.arm(after);
        }
    }

    /// Pauses the deadline, if there is one.
    pub(crate) fn pause(&self) {
        if self.is_armed() {
            self.watch.deadline_tick.store(PAUSED, Relaxed);
        }
    }

    /// Restarts the deadline at `after` from now, if there is one.
    pub(crate) fn resume(&self, after: Duration) {
        if self.is_armed() {
            self.arm(after);
        }
    }

    /// Returns what the connection must do.
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

    /// Replaces the order to close by [`WatchOrder::Drain`], until the next deadline passes.
    pub(crate) fn pardon(&self) {
        self.watch.order.store(WatchOrder::Drain as u8, Relaxed);
    }

    /// Wakes the connection's task.
    pub(crate) fn wake(&self) {
        self.watch.wake();
    }

    /// Removes the reference to the connection's task, so that the memory of an ended task is freed.
    pub(crate) fn forget_task(&self) {
        *self.watch.waker.lock().ignore_poison() = None;
    }

    /// Registers the task to wake when an order arrives. Call it at the task's first poll; its waker never changes.
    pub(crate) fn remember(&self, context: &Context<'_>) {
        *self.watch.waker.lock().ignore_poison() = Some(context.waker().clone());
    }
}

impl Drop for WatchedConnection {
    fn drop(&mut self) {
        self.watches.lock().remove(self.index);
    }
}

/// A future that ends early, with `None`, when its connection gets one of the orders in `ends_on`.
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

    /// Returns this connection's sort key. The connection with the lowest key is closed first to make room. `None` if
    /// this connection must not be closed.
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

/// Maximum number of connections that one search compares.
const SEARCH_COUNT_MAX: usize = 256;
/// Number of seconds without progress after which a connection that sends a response may be closed to make room.
const STILL_TICKS: u32 = 2;
/// Value of `deadline_tick` without a deadline.
const NEVER: u32 = u32::MAX;
/// Value of `deadline_tick` while the deadline is paused.
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
