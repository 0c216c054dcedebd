//! Sends interim responses to a client (RFC 9110 15.2, RFC 8297).
//!
//! Over HTTP/2 they are sent on the stream, over HTTP/1.1 before any other output of their exchange. Owns: the queued
//! responses, and the exchange they belong to. Invariant: only the current exchange adds interim responses, and only
//! until its final response is handed over, so none is written inside or after a final response. Memory:
//! [`WAITING_BYTES_MAX`] per connection. Cost: one plain load per response while the queue is empty.

use larder_device::IgnorePoison;
use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Request, StatusCode, Version};
use larder_http::interim::{forwarded_fields, goes_on};
use larder_wire::push_interim_head;
use tokio::io::AsyncWrite;

use crate::{client::peer::Client, http2::reply::StreamReply, received_body::IncomingBody, siblings::PEER_FIELD};

/// The queued interim responses of one connection.
#[derive(Default)]
pub(crate) struct InterimQueue {
    waiting: AtomicBool,
    state: Mutex<InterimState>,
}

#[derive(Default)]
struct InterimState {
    /// The exchange that may add to the queue, if any.
    open: Option<u64>,
    exchange_count: u64,
    bytes: Vec<u8>,
}

/// The way of one exchange's interim responses to its client.
#[derive(Clone)]
pub(crate) enum InterimSink {
    /// The queue of the connection.
    Queue { client: Weak<Client>, exchange: u64, version: Version },
    /// The stream of the exchange.
    Stream(Arc<StreamReply>),
}

impl InterimQueue {
    /// Opens the queue for an exchange that begins.
    fn open(client: &Arc<Client>, version: Version) -> InterimSink {
        let mut state = client.interim.lock();
        state.exchange_count += 1;
        state.open = Some(state.exchange_count);
        InterimSink::Queue { client: Arc::downgrade(client), exchange: state.exchange_count, version }
    }

    /// Closes the queue, because the final response has arrived.
    pub(crate) fn close(&self) {
        self.lock().open = None;
    }

    /// Queues a 100, because the exchange wants the request's body.
    pub(super) fn push_continue(&self) {
        push_interim_head(&mut self.lock().bytes, StatusCode::CONTINUE, &HeaderMap::new());
        self.waiting.store(true, Relaxed);
    }

    /// Writes the queued responses. Ready at once if there are none.
    pub(crate) fn poll_write(
        &self,
        mut socket: Pin<&mut impl AsyncWrite>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.waiting.load(Relaxed) {
            return Poll::Ready(Ok(()));
        }
        let mut state = self.lock();
        while !state.bytes.is_empty() {
            match ready!(socket.as_mut().poll_write(context, &state.bytes))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => drop(state.bytes.drain(..written)),
            }
        }
        self.waiting.store(false, Relaxed);
        Poll::Ready(Ok(()))
    }

    fn lock(&self) -> MutexGuard<'_, InterimState> {
        self.state.lock().ignore_poison()
    }
}

impl InterimSink {
    /// Returns the way of the interim responses to a client's request.
    pub(crate) fn of(client: &Arc<Client>, request: &Request<IncomingBody>) -> Self {
        match request.body().reply() {
            Some(reply) => Self::Stream(Arc::clone(reply)),
            None => InterimQueue::open(client, request.version()),
        }
    }

    /// Returns whether interim responses can reach the client. HTTP/1.0 has none.
    pub(crate) fn is_of_use(&self) -> bool {
        match self {
            Self::Queue { version, .. } => *version == Version::HTTP_11,
            Self::Stream(_) => true,
        }
    }

    /// Forwards an interim response of the origin. Returns whether the exchange is still waiting.
    pub(crate) fn forward(&self, status: StatusCode, fields: &HeaderMap) -> bool {
        self.push(status, &forwarded_fields(fields))
    }

    /// Queues an interim response with these fields, if this client may receive it and its exchange is still waiting.
    /// Returns whether the exchange still waits.
    fn push(&self, status: StatusCode, fields: &HeaderMap) -> bool {
        let (client, exchange, version) = match self {
            Self::Stream(reply) => {
                return goes_on(status, Version::HTTP_2, false) && reply.send_interim(status, fields);
            }
            Self::Queue { client, exchange, version } => (client, *exchange, *version),
        };
        let Some(client) = client.upgrade() else { return false };
        // An expectation is answered when the request's body is read.
        if !goes_on(status, version, false) {
            return false;
        }
        let mut state = client.interim.lock();
        if state.open != Some(exchange) {
            return false;
        }
        let mut head = Vec::new();
        push_interim_head(&mut head, status, fields);
        if state.bytes.len() + head.len() > WAITING_BYTES_MAX {
            return true;
        }
        state.bytes.extend_from_slice(&head);
        client.interim.waiting.store(true, Relaxed);
        drop(state);
        client.wake();
        true
    }

    /// Shows another node, at once and again and again, that this one is alive, until it gets its response. A node that
    /// is frozen shows nothing. The field tells such a sign from a 102 of the origin, and is never forwarded.
    pub(crate) fn show_life(&self) {
        let sink = self.clone();
        let sign = HeaderMap::from_iter([(PEER_FIELD.clone(), HeaderValue::from_static("alive"))]);
        if !sink.push(StatusCode::PROCESSING, &sign) {
            return;
        }
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LIFE_INTERVAL).await;
                if !sink.push(StatusCode::PROCESSING, &sign) {
                    return;
                }
            }
        });
    }
}

/// Interval between the signs of life for another node, a fraction of its patience.
const LIFE_INTERVAL: Duration = Duration::from_millis(500);
/// Most bytes queued for one client. Interim responses beyond it are dropped.
const WAITING_BYTES_MAX: usize = 64 << 10;
