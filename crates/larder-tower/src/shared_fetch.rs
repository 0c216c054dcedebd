//! Fetches that are shared: requests for a response that is being fetched wait for it, instead of fetching it, too.
//!
//! Owns: the fetches in progress, and the requests that wait for each. Invariants: a fetch without a client and without
//! waiting requests is not in the table. Among the requests that wait, one drives the body, so that none depends on the
//! client of the first. A key is a hash: two resources with the same hash only make a request wait in vain, because it
//! looks its response up afterwards.

use crate::unshared_keys::UnsharedKeys;
use larder_http::StoredHead;
use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

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
}

/// The fetches in progress.
#[derive(Default)]
pub(crate) struct SharedFetches {
    running: Mutex<HashMap<u64, Weak<SharedFetch>>>,
    unshared: UnsharedKeys,
    /// Number of fetches that have ended.
    ended_count: AtomicU64,
}

/// A fetch in progress.
pub(crate) struct SharedFetch {
    fetches: Arc<SharedFetches>,
    key: u64,
    state: Mutex<FetchState>,
}

struct FetchState {
    stage: FetchStage,
    /// The requests that wait, by number.
    waiting: Vec<(u64, Waker)>,
    last_number: u64,
    /// The waiting request that drives the body.
    driver: Option<u64>,
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

    /// Joins the fetch of `key`, or begins one.
    pub(crate) fn join(self: &Arc<Self>, key: u64) -> FetchRole {
        if self.unshared.contains(key) {
            return FetchRole::Lead(FetchLead { fetches: Arc::clone(self), key, shared: None });
        }
        let mut running = self.lock();
        let found = running.get(&key).and_then(Weak::upgrade);
        if let Some(number) = found.as_ref().and_then(|shared| shared.begin_waiting()) {
            drop(running);
            let shared = found.expect("it was found above");
            return FetchRole::Wait(FetchWait { shared, number });
        }
        let state = FetchState { stage: FetchStage::Asking, waiting: Vec::new(), last_number: 0, driver: None };
        let shared = Arc::new(SharedFetch { fetches: Arc::clone(self), key, state: Mutex::new(state) });
        running.insert(key, Arc::downgrade(&shared));
        drop(running);
        // Dropped after the table is unlocked, because its drop locks the table.
        drop(found);
        FetchRole::Lead(FetchLead { fetches: Arc::clone(self), key, shared: Some(shared) })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Weak<SharedFetch>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SharedFetch {
    fn drop(&mut self) {
        self.fetches.ended_count.fetch_add(1, Ordering::Release);
        let mut running = self.fetches.lock();
        if running.get(&self.key).is_some_and(|other| std::ptr::eq(other.as_ptr(), self)) {
            running.remove(&self.key);
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
