//! The body of a request of HTTP/1.1, between the connection that receives it and the exchange that reads it.
//!
//! Owns: one piece of the body, and the waker of each end. Invariant: the connection receives a piece only once the
//! exchange wants one, so nothing is buffered. Memory: one piece. Cost: nothing for a request without a body.

use larder_device::IgnorePoison;
use std::{
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::Frame;

use crate::ground::received_body::ReceiveFault;

/// The body of a request, from which the request's exchange reads.
pub(crate) struct LinkedBody {
    link: Option<Arc<BodyLink>>,
    /// Number of bytes still to come. `None` if the request did not announce its length.
    left: Option<u64>,
}

/// Passes a request's body from its connection to its reader, one piece at a time.
pub(crate) struct BodyLink {
    state: Mutex<LinkState>,
    connection: Waker,
}

#[derive(Default)]
struct LinkState {
    is_wanted: bool,
    piece: Option<Result<Frame<Bytes>, ReceiveFault>>,
    /// Whether `piece` is the last.
    has_ended: bool,
    is_dropped: bool,
    reader: Option<Waker>,
}

/// The current activity of a body's reader. It decides whether the connection receives more of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReaderState {
    /// The reader waits for the next piece.
    Waits,
    /// The reader does not want a piece now.
    Idle,
    /// The reader was dropped, so nobody reads the remainder of the body.
    Gone,
}

impl LinkedBody {
    /// Creates an empty body, for a request that has none.
    pub(crate) fn none() -> Self {
        Self { link: None, left: Some(0) }
    }

    /// Creates a request's body and the link through which its connection fills it. `left` is the announced length.
    pub(crate) fn linked(left: Option<u64>, context: &Context<'_>) -> (Self, Arc<BodyLink>) {
        let link = Arc::new(BodyLink { state: Mutex::default(), connection: context.waker().clone() });
        (Self { link: Some(Arc::clone(&link)), left }, link)
    }

    /// Waits for the next piece of the body.
    pub(crate) fn poll_frame(&mut self, context: &Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ReceiveFault>>> {
        let Some(link) = &self.link else { return Poll::Ready(None) };
        let mut state = link.lock();
        if let Some(piece) = state.piece.take() {
            let len = piece.as_ref().ok().and_then(Frame::data_ref).map_or(0, Bytes::len);
            self.left = self.left.map(|left| left.saturating_sub(len as u64));
            return Poll::Ready(Some(piece));
        }
        if state.has_ended {
            return Poll::Ready(None);
        }
        state.reader = Some(context.waker().clone());
        if !std::mem::replace(&mut state.is_wanted, true) {
            drop(state);
            link.connection.wake_by_ref();
        }
        Poll::Pending
    }

    /// Returns whether the body has ended and its last piece was read.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.link.as_ref().is_none_or(|link| {
            let state = link.lock();
            state.has_ended && state.piece.is_none()
        })
    }

    /// Returns the number of bytes still to come. `None` if the request did not announce its length.
    pub(crate) fn left(&self) -> Option<u64> {
        self.left
    }
}

impl Drop for LinkedBody {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            link.lock().is_dropped = true;
            link.connection.wake_by_ref();
        }
    }
}

impl BodyLink {
    /// Returns what the reader of the body is doing.
    pub(crate) fn reader(&self) -> ReaderState {
        let state = self.lock();
        match (state.is_dropped, state.is_wanted) {
            (true, _) => ReaderState::Gone,
            (false, true) => ReaderState::Waits,
            (false, false) => ReaderState::Idle,
        }
    }

    /// Gives the reader a piece of the body. `has_ended` says that it is the last. An error ends the body too.
    pub(crate) fn give(&self, piece: Option<Result<Frame<Bytes>, ReceiveFault>>, has_ended: bool) {
        let mut state = self.lock();
        state.is_wanted = false;
        state.has_ended = has_ended || piece.as_ref().is_none_or(Result::is_err);
        state.piece = piece;
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().ignore_poison()
    }
}
