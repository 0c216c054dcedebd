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

use crate::{
    ground::{http2::reply::StreamReply, received_body::IncomingBody},
    road::client::peer::Client,
    targets::siblings::PEER_FIELD,
};

/// Interim responses (1xx) that wait to be written on one HTTP/1.1 connection.
#[derive(Default)]
pub(crate) struct InterimQueue {
    waiting: AtomicBool,
    state: Mutex<InterimState>,
}

#[derive(Default)]
struct InterimState {
    /// The number of the exchange that may still queue interim responses. `None` once its final response has begun.
    open: Option<u64>,
    exchange_count: u64,
    bytes: Vec<u8>,
}

/// The destination of the interim responses to one request.
#[derive(Clone)]
pub(crate) enum InterimSink {
    /// The queue of an HTTP/1.1 connection.
    Queue { client: Weak<Client>, exchange: u64, version: Version },
    /// The HTTP/2 stream of the request.
    Stream(Arc<StreamReply>),
}

impl InterimQueue {
    /// Opens the queue for a new exchange, and returns the sink for its interim responses.
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

    /// Queues a 100 (Continue), because the request's body is wanted.
    pub(crate) fn push_continue(&self) {
        push_interim_head(&mut self.lock().bytes, StatusCode::CONTINUE, &HeaderMap::new());
        self.waiting.store(true, Relaxed);
    }

    /// Writes the queued responses. Ready when the queue is empty.
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
    /// Returns the sink for interim responses to `request`.
    pub(crate) fn of(client: &Arc<Client>, request: &Request<IncomingBody>) -> Self {
        match request.body().reply() {
            Some(reply) => Self::Stream(Arc::clone(reply)),
            None => InterimQueue::open(client, request.version()),
        }
    }

    /// Returns whether the client can receive interim responses. HTTP/1.0 has none.
    pub(crate) fn is_of_use(&self) -> bool {
        match self {
            Self::Queue { version, .. } => *version == Version::HTTP_11,
            Self::Stream(_) => true,
        }
    }

    /// Forwards an interim response of the origin. Returns false once the exchange has its final response.
    pub(crate) fn forward(&self, status: StatusCode, fields: &HeaderMap) -> bool {
        self.push(status, &forwarded_fields(fields))
    }

    /// Sends an interim response with these fields, if the client may receive this status.
    ///
    /// Returns false once the exchange has its final response.
    fn push(&self, status: StatusCode, fields: &HeaderMap) -> bool {
        let (client, exchange, version) = match self {
            Self::Stream(reply) => {
                return goes_on(status, Version::HTTP_2, false) && reply.send_interim(status, fields);
            }
            Self::Queue { client, exchange, version } => (client, *exchange, *version),
        };
        let Some(client) = client.upgrade() else { return false };
        // A 100 is sent when this proxy reads the request's body, not when the origin sends one.
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

    /// Sends a 102 to another node at once and every [`LIFE_INTERVAL`], until its response begins.
    ///
    /// The other node waits for a slow origin as long as these arrive, but gives up on a frozen node. A field
    /// distinguishes these responses from a 102 of the origin. It is never forwarded.
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

/// Interval between the 102 responses that show another node that this one is alive. Must be well below the time-out of
/// the other node.
const LIFE_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum bytes that wait for one client. Interim responses beyond this limit are dropped.
const WAITING_BYTES_MAX: usize = 64 << 10;
