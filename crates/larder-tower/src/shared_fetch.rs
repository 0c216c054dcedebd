//! Fetches that are shared: requests for a response that is being fetched wait for it, instead of fetching it, too.
//!
//! Owns: the fetches in progress, and the requests that wait for each. Invariants: a fetch without a client and without
//! waiting requests is not in the table. Among the requests that wait, one drives the body, so that none depends on the
//! client of the first. No request waits for a body without an announced length for longer than [`ENDLESS_AFTER`],
//! because such a body may never end. A key is a hash: two resources with the same hash only make a request wait in
//! vain, because it looks its response up afterwards.

use crate::unshared_keys::UnsharedKeys;
use larder_cache::IgnorePoison;
use larder_http::StoredHead;
use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

/// Time for which requests wait for a body without an announced length. Chunked pages end long before; an event stream
/// does not.
const ENDLESS_AFTER: Duration = Duration::from_secs(5);

/// The end of a fetch, for the requests that wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchEnd {
    /// The response was stored, or the stored one was confirmed.
    Stored,
    /// The response is for its request alone.
    Unshared,
    /// There is no response: the fetch failed, or its client went away before the response had a head.
    Failed,
}

/// A response that is being stored while its body arrives.
pub(crate) trait DriveFill: Send + Sync {
    /// Reads on until the response is stored, or cannot be any more.
    fn poll_drive(&self, context: &mut Context<'_>) -> Poll<FetchEnd>;

    /// Returns whether the body has announced its length.
    fn has_length(&self) -> bool;
}

/// The fetches in progress.
#[derive(Default)]
pub(crate) struct SharedFetches {
    running: Mutex<HashMap<u64, Weak<SharedFetch>>>,
    unshared: UnsharedKeys,
    /// Number of fetches that have ended.
    ended_count: AtomicU64,
    /// Number of requests that were divided into groups.
    divided_count: AtomicU64,
    /// The fetches whose waiting requests will have waited long enough, to the thread that tells them. It is started
    /// for the first of them.
    deadlines: OnceLock<Option<mpsc::Sender<WaitDeadline>>>,
}

/// The time at which the requests that wait for a fetch ask the origin themselves.
struct WaitDeadline {
    at: Instant,
    fetch: Weak<SharedFetch>,
}

/// A fetch in progress.
pub(crate) struct SharedFetch {
    fetches: Arc<SharedFetches>,
    /// The key in the table: that of the response, or of a group of the requests for it.
    place: u64,
    state: Mutex<FetchState>,
}

struct FetchState {
    stage: FetchStage,
    /// The requests that wait, by number.
    waiting: Vec<(u64, Waker)>,
    last_number: u64,
    /// The waiting request that drives the body.
    driver: Option<u64>,
    /// Whether requests wait for a body without an announced length.
    has_deadline: bool,
    /// Whether that body has taken too long.
    is_endless: bool,
}

enum FetchStage {
    /// The response has no head yet.
    Asking,
    Filling {
        head: Box<StoredHead>,
        fill: Arc<dyn DriveFill>,
    },
    Ended(FetchEnd),
}

/// The part of a request in a fetch.
pub(crate) enum FetchRole {
    Lead(FetchLead),
    Wait(FetchWait),
}

/// The right to fetch. Others wait until it ends, or is dropped.
pub(crate) struct FetchLead {
    fetches: Arc<SharedFetches>,
    key: u64,
    /// `None` if no request waits for this one, because the last response of the key could not be shared.
    shared: Option<Arc<SharedFetch>>,
}

/// A wait for another request's fetch.
pub(crate) struct FetchWait {
    shared: Arc<SharedFetch>,
    number: u64,
}

impl SharedFetches {
    /// Returns the number of fetches that have ended. If it has changed since a lookup, the response may be stored now.
    pub(crate) fn ended_count(&self) -> u64 {
        self.ended_count.load(Ordering::Acquire)
    }

    /// Joins the fetch of `key`, or begins one. If the requests for the key are divided into several groups, each group
    /// has a fetch of its own.
    pub(crate) fn join(self: &Arc<Self>, key: u64, group_count: u64) -> FetchRole {
        let group = match group_count {
            1 => 0,
            count => self.divided_count.fetch_add(1, Ordering::Relaxed) % count,
        };
        let place = key.wrapping_add(group);
        if self.unshared.contains(key) {
            return FetchRole::Lead(FetchLead { fetches: Arc::clone(self), key, shared: None });
        }
        let mut running = self.lock();
        let found = running.get(&place).and_then(Weak::upgrade);
        if let Some(number) = found.as_ref().and_then(|shared| shared.begin_waiting()) {
            drop(running);
            let shared = found.expect("it was found above");
            return FetchRole::Wait(FetchWait { shared, number });
        }
        let state = FetchState {
            stage: FetchStage::Asking,
            waiting: Vec::new(),
            last_number: 0,
            driver: None,
            has_deadline: false,
            is_endless: false,
        };
        let shared = Arc::new(SharedFetch { fetches: Arc::clone(self), place, state: Mutex::new(state) });
        running.insert(place, Arc::downgrade(&shared));
        drop(running);
        // Dropped after the table is unlocked, because its drop locks the table.
        drop(found);
        FetchRole::Lead(FetchLead { fetches: Arc::clone(self), key, shared: Some(shared) })
    }

    /// Lets requests wait for a body without an announced length for a limited time only. Returns `false` if the thread
    /// for that cannot be started.
    fn limit_waiting(&self, fetch: &Arc<SharedFetch>) -> bool {
        let deadline = WaitDeadline { at: Instant::now() + ENDLESS_AFTER, fetch: Arc::downgrade(fetch) };
        let sender = self.deadlines.get_or_init(|| {
            let (sender, deadlines) = mpsc::channel();
            let started = thread::Builder::new().name("larder-waits".to_owned()).spawn(move || end_waits(&deadlines));
            started.ok().map(|_| sender)
        });
        sender.as_ref().is_some_and(|sender| sender.send(deadline).is_ok())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Weak<SharedFetch>>> {
        self.running.lock().ignore_poison()
    }
}

impl SharedFetch {
    /// Ends the fetch, unless it has ended.
    pub(crate) fn end(&self, end: FetchEnd) {
        let mut state = self.lock();
        if matches!(state.stage, FetchStage::Ended(_)) {
            return;
        }
        let stage = std::mem::replace(&mut state.stage, FetchStage::Ended(end));
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.fetches.ended_count.fetch_add(1, Ordering::Release);
        drop(stage);
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Ends the waiting of all requests, if the body has not ended. They ask the origin themselves.
    fn end_waiting(&self) {
        let mut state = self.lock();
        state.is_endless = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Returns the number of a new request that waits, or `None` if the fetch has ended.
    fn begin_waiting(&self) -> Option<u64> {
        let mut state = self.lock();
        if matches!(state.stage, FetchStage::Ended(_)) {
            return None;
        }
        state.last_number += 1;
        Some(state.last_number)
    }

    fn lock(&self) -> MutexGuard<'_, FetchState> {
        self.state.lock().ignore_poison()
    }
}

/// Ends waits at their deadlines, which come in order, until there are no fetches any more.
fn end_waits(deadlines: &mpsc::Receiver<WaitDeadline>) {
    while let Ok(WaitDeadline { at, fetch }) = deadlines.recv() {
        thread::sleep(at.saturating_duration_since(Instant::now()));
        if let Some(fetch) = fetch.upgrade() {
            fetch.end_waiting();
        }
    }
}

impl Drop for SharedFetch {
    fn drop(&mut self) {
        self.fetches.ended_count.fetch_add(1, Ordering::Release);
        let mut running = self.fetches.lock();
        if running.get(&self.place).is_some_and(|other| std::ptr::eq(other.as_ptr(), self)) {
            running.remove(&self.place);
        }
    }
}

impl FetchState {
    /// Sets the waker of a request that waits.
    fn note_waiting(&mut self, number: u64, waker: &Waker) {
        match self.waiting.iter_mut().find(|(other, _)| *other == number) {
            Some((_, old)) => old.clone_from(waker),
            None => self.waiting.push((number, waker.clone())),
        }
    }
}

impl FetchLead {
    /// Ends the fetch. An end other than [`FetchEnd::Failed`] decides whether later requests for the key wait.
    pub(crate) fn end(self, end: FetchEnd) {
        match end {
            FetchEnd::Stored => self.fetches.unshared.remove(self.key),
            FetchEnd::Unshared => self.fetches.unshared.insert(self.key),
            FetchEnd::Failed => {}
        }
        if let Some(shared) = &self.shared {
            shared.end(end);
        }
    }

    /// Begins the part of the fetch in which the body arrives. Returns the fetch, which ends at the latest when the
    /// result and all waiting requests are dropped.
    pub(crate) fn begin_filling(mut self, head: StoredHead, fill: Arc<dyn DriveFill>) -> Option<Arc<SharedFetch>> {
        self.fetches.unshared.remove(self.key);
        let shared = self.shared.take()?;
        let mut state = shared.lock();
        assert!(matches!(state.stage, FetchStage::Asking), "a fetch has one response");
        state.stage = FetchStage::Filling { head: Box::new(head), fill };
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
        Some(shared)
    }
}

impl Drop for FetchLead {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.end(FetchEnd::Failed);
        }
    }
}

impl FetchWait {
    /// Waits for the end of the fetch. A response that does not match the request is one that is not shared.
    pub(crate) async fn end(self, matches: impl Fn(&StoredHead) -> bool) -> FetchEnd {
        poll_fn(|context| self.poll_end(context, &matches)).await
    }

    fn poll_end(&self, context: &mut Context<'_>, matches: &impl Fn(&StoredHead) -> bool) -> Poll<FetchEnd> {
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        if state.is_endless {
            return Poll::Ready(FetchEnd::Unshared);
        }
        if let FetchStage::Filling { fill, .. } = &state.stage
            && !state.has_deadline
            && !fill.has_length()
        {
            state.has_deadline = true;
            state.is_endless = !self.shared.fetches.limit_waiting(&self.shared);
        }
        let fill = match &state.stage {
            FetchStage::Ended(end) => return Poll::Ready(*end),
            FetchStage::Filling { head, .. } if !matches(head) => return Poll::Ready(FetchEnd::Unshared),
            FetchStage::Filling { fill, .. } if *state.driver.get_or_insert(self.number) == self.number => {
                Some(Arc::clone(fill))
            }
            FetchStage::Filling { .. } | FetchStage::Asking => None,
        };
        state.note_waiting(self.number, context.waker());
        drop(guard);
        // The lock is not held here: the body may do anything when it is polled.
        match fill.map(|fill| fill.poll_drive(context)) {
            Some(Poll::Ready(end)) => {
                self.shared.end(end);
                Poll::Ready(end)
            }
            Some(Poll::Pending) | None => Poll::Pending,
        }
    }
}

impl Drop for FetchWait {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.waiting.retain(|(number, _)| *number != self.number);
        if state.driver != Some(self.number) {
            return;
        }
        state.driver = None;
        // Another request has to drive the body.
        let next = state.waiting.first().map(|(_, waker)| waker.clone());
        drop(state);
        next.into_iter().for_each(Waker::wake);
    }
}
