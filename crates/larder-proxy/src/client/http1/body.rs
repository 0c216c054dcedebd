//! The body of a request of HTTP/1.1, between the connection that receives it and the exchange that reads it.
//!
//! Owns: one piece of the body, and who waits for whom. Invariant: the connection receives a piece only once the
//! exchange wants one, so nothing is buffered. Memory: one piece. Cost: nothing for a request without a body, except one
//! that may switch to another protocol.

use larder_device::IgnorePoison;
use std::{
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::Frame;
use tokio::sync::oneshot;

use crate::{
    client::socket::{ClientSocket, RewoundStream},
    received_body::ReceiveFault,
};

/// A request's body, as its exchange reads it.
pub(crate) struct Http1Body {
    link: Option<Arc<BodyLink>>,
    /// The bytes still to come, if the request announced the length.
    left: Option<u64>,
}

/// The link between the two ends of a body.
pub(crate) struct BodyLink {
    state: Mutex<LinkState>,
    connection: Waker,
}

#[derive(Default)]
struct LinkState {
    is_wanted: bool,
    piece: Option<Result<Frame<Bytes>, ReceiveFault>>,
    /// Whether nothing follows `piece`.
    has_ended: bool,
    is_dropped: bool,
    reader: Option<Waker>,
    /// The recipient of the socket, if the connection switches to another protocol.
    switch: Option<oneshot::Sender<SwitchedSocket>>,
}

/// The socket of a connection that has switched to another protocol, with the bytes that were already read.
pub(crate) type SwitchedSocket = RewoundStream<ClientSocket>;

/// What the reader of a body does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReaderState {
    /// It waits for the next piece.
    Waits,
    /// It has not asked for the next piece yet.
    Idle,
    /// It will read no more.
    Gone,
}

impl Http1Body {
    /// Creates the body of a request that has none.
    pub(super) fn none() -> Self {
        Self { link: None, left: Some(0) }
    }

    /// Creates a body and the connection's end of it. `has_ended` says that the request has no body, but may switch to
    /// another protocol.
    pub(super) fn linked(left: Option<u64>, has_ended: bool, context: &Context<'_>) -> (Self, Arc<BodyLink>) {
        let state = Mutex::new(LinkState { has_ended, ..LinkState::default() });
        let link = Arc::new(BodyLink { state, connection: context.waker().clone() });
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

    /// Returns whether nothing more follows.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.link.as_ref().is_none_or(|link| {
            let state = link.lock();
            state.has_ended && state.piece.is_none()
        })
    }

    /// Returns the bytes still to come, if the request announced the length.
    pub(crate) fn left(&self) -> Option<u64> {
        self.left
    }

    /// Asks for the socket once the response is sent. Returns `None` if the request cannot switch.
    pub(crate) fn expect_switch(&self) -> Option<oneshot::Receiver<SwitchedSocket>> {
        let (sender, receiver) = oneshot::channel();
        self.link.as_ref()?.lock().switch = Some(sender);
        Some(receiver)
    }
}

impl Drop for Http1Body {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            link.lock().is_dropped = true;
            link.connection.wake_by_ref();
        }
    }
}

impl BodyLink {
    /// Returns what the reader does.
    pub(super) fn reader(&self) -> ReaderState {
        let state = self.lock();
        match (state.is_dropped, state.is_wanted) {
            (true, _) => ReaderState::Gone,
            (false, true) => ReaderState::Waits,
            (false, false) => ReaderState::Idle,
        }
    }

    /// Hands over a piece, or an error, after which nothing follows. `has_ended` says that it is the last.
    pub(super) fn give(&self, piece: Option<Result<Frame<Bytes>, ReceiveFault>>, has_ended: bool) {
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

    /// Hands over the socket, if somebody waits for it.
    pub(crate) fn switch(&self, socket: SwitchedSocket) {
        let switch = self.lock().switch.take();
        // If nobody waits for it, the connection closes.
        let _ = switch.map(|switch| switch.send(socket));
    }

    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().ignore_poison()
    }
}
