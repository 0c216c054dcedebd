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

/// A request to an origin, and the requests that wait for its response.
pub struct Flight<F: Fetcher> {
    /// The work on the resource, to detect invalidations since the flight began.
    pub work: ResourceWork,
    /// Whether the request that started the flight demands a response no older than itself.
    is_reload: bool,
    /// Whether the request may have been sent to the origin.
    left: AtomicBool,
    state: Mutex<FlightState<F>>,
}

struct FlightState<F: Fetcher> {
    stage: FetchStage<F>,
    private: Option<Box<PrivateResponse<F>>>,
    /// Whether the response is a 304 to the first requester's condition.
    answered_condition: bool,
    /// Whether the flight is closed to new readers.
    closed: bool,
    readers: Slab<Option<Waker>>,
    /// Keeps the first bytes of the body in memory until the requests that wait now have begun to read them.
    guard: Option<BodyCursor<F>>,
}

impl<F: Fetcher> Flight<F> {
    /// Creates a flight that has no response yet.
    pub fn new(work: ResourceWork, is_reload: bool) -> Self {
        let state = FlightState {
            stage: FetchStage::Waiting,
            private: None,
            answered_condition: false,
            closed: false,
            readers: Slab::new(),
            guard: None,
        };
        Self { work, is_reload, left: AtomicBool::new(false), state: Mutex::new(state) }
    }

    /// Marks the request as sent. Reloads that arrive later do not share this flight.
    pub(super) fn leave(&self) {
        self.left.store(true, SeqCst);
    }

    pub(super) fn has_left(&self) -> bool {
        self.left.load(SeqCst)
    }

    pub(super) fn is_reload(&self) -> bool {
        self.is_reload
    }

    /// Returns the head of the response, once it has arrived and is shared.
    pub fn head(&self) -> Option<StoredHead> {
        self.open().map(|open| StoredHead::clone(&open.head))
    }

    /// Announces the stage to the readers. Nobody may join a flight whose response is for its first requester alone.
    pub(super) fn set_stage(&self, stage: FetchStage<F>) {
        let mut state = self.lock();
        state.closed |= stage.audience() == Audience::FirstAsker;
        state.stage = stage;
        state.wake_readers();
    }

    /// Announces a stage with a body. `guard` keeps the first bytes in memory until the requests that wait now have
    /// begun to read them.
    pub(super) fn set_stage_with(&self, stage: FetchStage<F>, guard: BodyCursor<F>) {
        let mut state = self.lock();
        let unneeded = if state.readers.is_empty() { Some(guard) } else { state.guard.replace(guard) };
        drop(state);
        drop(unneeded);
        self.set_stage(stage);
    }

    /// Announces a response for the first requester alone.
    pub(super) fn set_private(&self, response: PrivateResponse<F>) {
        let mut state = self.lock();
        state.answered_condition = response.status == StatusCode::NOT_MODIFIED;
        state.private = Some(Box::new(response));
        drop(state);
        self.set_stage(FetchStage::Private);
    }

    /// Takes the response that is for the first requester alone. Only the first call returns it.
    pub fn take_private(&self) -> Option<Box<PrivateResponse<F>>> {
        self.lock().private.take()
    }

    /// Returns whether the response was a 304 to the first requester's condition.
    pub fn answered_a_condition(&self) -> bool {
        self.lock().answered_condition
    }

    /// Returns whether the whole body has arrived.
    pub fn is_complete(&self) -> bool {
        self.open().is_some_and(|open| open.body.is_complete())
    }

    /// Returns the response, once its head has arrived and is shared.
    fn open(&self) -> Option<Arc<OpenHead<F>>> {
        match &self.lock().stage {
            FetchStage::Open(open) => Some(Arc::clone(open)),
            _ => None,
        }
    }

    /// Ends an unfinished flight with `failure`, because its fetch was aborted.
    pub(super) fn abandon_if_unfinished(&self, failure: impl FnOnce() -> F::Failure) {
        let is_complete = self.is_complete();
        let mut state = self.lock();
        state.closed |= !is_complete && !matches!(state.stage, FetchStage::Confirmed(_) | FetchStage::Part(_));
        if matches!(state.stage, FetchStage::Waiting) {
            state.stage = FetchStage::Failed(failure());
        }
        state.wake_readers();
    }

    /// Adds a reader, unless the flight is closed.
    pub(super) fn add_reader(&self) -> Option<usize> {
        let is_broken = self.open().is_some_and(|open| open.body.has_failed());
        let mut state = self.lock();
        if state.closed || is_broken {
            return None;
        }
        Some(state.readers.insert(None))
    }

    pub(super) fn remove_reader(&self, index: usize) {
        let mut state = self.lock();
        state.readers.remove(index);
        let guard = if state.readers.is_empty() { state.guard.take() } else { None };
        drop(state);
        drop(guard);
    }

    /// Waits until the head has arrived or the fetch has failed, and returns its stage.
    pub(super) fn poll_stage(&self, index: usize, context: &Context<'_>) -> Poll<FetchStage<F>> {
        let mut state = self.lock();
        if matches!(state.stage, FetchStage::Waiting) {
            state.readers[index] = Some(context.waker().clone());
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
        for (_, waker) in &mut self.readers {
            if let Some(waker) = waker.take() {
                waker.wake();
            }
        }
    }
}
