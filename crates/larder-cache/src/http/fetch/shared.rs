//! One request to an origin and the client requests that wait for its response.
//!
//! Owns: the stage of the request, and the tasks to wake. `task` talks to the origin; the body is a
//! [`LongBody`](crate::http::body::long_body::LongBody). Cost: a short lock for each request that joins or leaves.

use larder_device::IgnorePoison;
use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
};

use http::StatusCode;
use larder_http::StoredHead;
use slab::Slab;

use super::stage::{Audience, FetchStage, OpenHead, PrivateResponse};
use crate::http::{body::cursor::BodyCursor, fetcher::Fetcher, work::ResourceWork};

/// A flight: a request to an origin, and the clients' requests that share its response.
pub struct Flight<F: Fetcher> {
    /// Shows whether the resource was invalidated since the flight began.
    pub work: ResourceWork,
    /// Whether the request that started the flight is a reload, which accepts only a response that is requested after
    /// it arrived.
    is_reload: bool,
    /// Whether the flight's request to the origin may already have been sent.
    left: AtomicBool,
    state: Mutex<FlightState<F>>,
}

struct FlightState<F: Fetcher> {
    stage: FetchStage<F>,
    private: Option<Box<PrivateResponse<F>>>,
    /// Whether the response is a 304 to a condition of the first requester.
    answered_condition: bool,
    /// Whether no more requests may join the flight.
    closed: bool,
    readers: ReaderTable,
    /// A cursor that keeps the first bytes of the body in memory until the requests that wait now have begun to read
    /// them.
    guard: Option<BodyCursor<F>>,
}

/// The requests that wait for a flight, each with its waker while its task sleeps. Most flights have a single one,
/// which needs no allocation.
#[derive(Default)]
struct ReaderTable {
    first: Option<Option<Waker>>,
    others: Slab<Option<Waker>>,
}

impl<F: Fetcher> Flight<F> {
    /// Creates a flight (a shared fetch) that has no response yet.
    pub fn new(work: ResourceWork, is_reload: bool) -> Self {
        let state = FlightState {
            stage: FetchStage::Waiting,
            private: None,
            answered_condition: false,
            closed: false,
            readers: ReaderTable::default(),
            guard: None,
        };
        Self { work, is_reload, left: AtomicBool::new(false), state: Mutex::new(state) }
    }

    /// Records that the flight's request is being sent. Reloads that arrive from now on do not join the flight.
    pub(super) fn leave(&self) {
        self.left.store(true, SeqCst);
    }

    pub(super) fn has_left(&self) -> bool {
        self.left.load(SeqCst)
    }

    pub(super) fn is_reload(&self) -> bool {
        self.is_reload
    }

    /// Returns the head of the response. `None` if it has not arrived, or if the response is not shared.
    pub fn head(&self) -> Option<StoredHead> {
        self.open().map(|open| StoredHead::clone(&open.head))
    }

    /// Announces a stage to the waiting requests. If the stage is for the first requester alone, no more requests may
    /// join.
    pub(super) fn set_stage(&self, stage: FetchStage<F>) {
        let mut state = self.lock();
        state.closed |= stage.audience() == Audience::FirstAsker;
        state.stage = stage;
        state.wake_readers();
    }

    /// Announces a stage with a body. `guard` is a cursor that keeps the first bytes in memory until the requests that
    /// wait now have begun to read them.
    pub(super) fn set_stage_with(&self, stage: FetchStage<F>, guard: BodyCursor<F>) {
        let mut state = self.lock();
        let unneeded = if state.readers.is_empty() { Some(guard) } else { state.guard.replace(guard) };
        drop(state);
        drop(unneeded);
        self.set_stage(stage);
    }

    /// Announces a response that is for the first requester alone.
    pub(super) fn set_private(&self, response: PrivateResponse<F>) {
        let mut state = self.lock();
        state.answered_condition = response.status == StatusCode::NOT_MODIFIED;
        state.private = Some(Box::new(response));
        drop(state);
        self.set_stage(FetchStage::Private);
    }

    /// Takes the response that is for the first requester alone. Only the first call returns the response.
    pub fn take_private(&self) -> Option<Box<PrivateResponse<F>>> {
        self.lock().private.take()
    }

    /// Returns whether the response is a 304 to a condition of the first requester.
    pub fn answered_a_condition(&self) -> bool {
        self.lock().answered_condition
    }

    /// Returns whether the response is shared, and its whole body has arrived.
    pub fn is_complete(&self) -> bool {
        self.open().is_some_and(|open| open.body.is_complete())
    }

    /// Returns the shared response. `None` until its head has arrived, or if the response is not shared.
    fn open(&self) -> Option<Arc<OpenHead<F>>> {
        match &self.lock().stage {
            FetchStage::Open(open) => Some(Arc::clone(open)),
            _ => None,
        }
    }

    /// Closes the flight if its fetch was aborted, and wakes the waiting requests. If the head has not arrived, the
    /// flight fails with `failure`.
    pub(super) fn abandon_if_unfinished(&self, failure: impl FnOnce() -> F::Failure) {
        let is_complete = self.is_complete();
        let mut state = self.lock();
        state.closed |= !is_complete && !matches!(state.stage, FetchStage::Confirmed(_) | FetchStage::Part(_));
        if matches!(state.stage, FetchStage::Waiting) {
            state.stage = FetchStage::Failed(failure());
        }
        state.wake_readers();
    }

    /// Adds a waiting request, and returns its index. `None` if no more requests may join.
    pub(super) fn add_reader(&self) -> Option<usize> {
        let is_broken = self.open().is_some_and(|open| open.body.has_failed());
        let mut state = self.lock();
        if state.closed || is_broken {
            return None;
        }
        Some(state.readers.add())
    }

    pub(super) fn remove_reader(&self, index: usize) {
        let mut state = self.lock();
        state.readers.remove(index);
        let guard = if state.readers.is_empty() { state.guard.take() } else { None };
        drop(state);
        drop(guard);
    }

    /// Waits until the head of the response has arrived or the fetch has failed, and returns that stage.
    pub(super) fn poll_stage(&self, index: usize, context: &Context<'_>) -> Poll<FetchStage<F>> {
        let mut state = self.lock();
        if matches!(state.stage, FetchStage::Waiting) {
            *state.readers.waker(index) = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(state.stage.clone())
    }

    fn lock(&self) -> MutexGuard<'_, FlightState<F>> {
        self.state.lock().ignore_poison()
    }
}

impl<F: Fetcher> FlightState<F> {
    fn wake_readers(&mut self) {
        self.readers.wakers().filter_map(Option::take).for_each(Waker::wake);
    }
}

impl ReaderTable {
    /// Adds a request, and returns its index.
    fn add(&mut self) -> usize {
        if self.first.is_none() {
            self.first = Some(None);
            return 0;
        }
        self.others.insert(None) + 1
    }

    fn remove(&mut self, index: usize) {
        match index.checked_sub(1) {
            None => self.first = None,
            Some(other) => _ = self.others.remove(other),
        }
    }

    /// Returns the place for the waker of a waiting request.
    ///
    /// # Panics
    /// If no request has this index.
    fn waker(&mut self, index: usize) -> &mut Option<Waker> {
        match index.checked_sub(1) {
            None => self.first.as_mut().expect("a request waits until it is removed"),
            Some(other) => &mut self.others[other],
        }
    }

    fn wakers(&mut self) -> impl Iterator<Item = &mut Option<Waker>> {
        self.first.iter_mut().chain(self.others.iter_mut().map(|(_, waker)| waker))
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.others.is_empty()
    }
}
