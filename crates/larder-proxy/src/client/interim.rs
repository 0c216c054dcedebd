//! Interim responses on their way to a client (RFC 9110 15.2, RFC 8297).
//!
//! The HTTP library sends only 100, so these are written directly to the socket: when the library flushes, and before
//! anything else is written. Owns: the queued responses, and their exchange. Invariants: only the present exchange adds
//! interim responses, and only until its final response is handed over. So none of them lands inside or after a final
//! response. Memory: [`WAITING_BYTES_MAX`] per connection. Cost: one plain load per write and flush while there are
//! none.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use http::{HeaderMap, StatusCode, Version, header::CONTENT_LENGTH};
use larder_http::{fields::strip_hop_by_hop, interim::goes_on};
use tokio::io::AsyncWrite;

use crate::client::peer::Client;

/// The queue of one connection.
#[derive(Default)]
pub(crate) struct InterimQueue {
    waiting: AtomicBool,
    state: Mutex<InterimState>,
}

#[derive(Default)]
struct InterimState {
    /// The exchange that may add, if one may.
    open: Option<u64>,
    exchange_count: u64,
    bytes: Vec<u8>,
}

/// Adds interim responses to the queue, for one exchange.
pub(crate) struct InterimSink {
    client: Weak<Client>,
    exchange: u64,
    version: Version,
}

impl InterimQueue {
    /// Takes interim responses for an exchange that begins.
    pub(crate) fn open(client: &Arc<Client>, version: Version) -> InterimSink {
        let mut state = client.interim.lock();
        state.exchange_count += 1;
        state.open = Some(state.exchange_count);
        InterimSink { client: Arc::downgrade(client), exchange: state.exchange_count, version }
    }

    /// Closes the queue, because the final response has come.
    pub(crate) fn close(&self) {
        self.lock().open = None;
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InterimSink {
    /// Returns whether interim responses can reach the client. HTTP/1.0 has none, and over HTTP/2 the HTTP library
    /// sends none.
    pub(crate) fn is_of_use(&self) -> bool {
        self.version == Version::HTTP_11
    }

    /// Passes one on, if it is for this client and its exchange is still waiting.
    pub(crate) fn push(&self, status: StatusCode, fields: &HeaderMap) {
        let Some(client) = self.client.upgrade() else { return };
        // The HTTP library answers an expectation when the request's body is read.
        if !goes_on(status, self.version, false) {
            return;
        }
        let mut state = client.interim.lock();
        let head = head(status, fields);
        if state.open != Some(self.exchange) || state.bytes.len() + head.len() > WAITING_BYTES_MAX {
            return;
        }
        state.bytes.extend_from_slice(&head);
        client.interim.waiting.store(true, Relaxed);
        drop(state);
        client.wake();
    }
}

/// Returns the encoded head.
fn head(status: StatusCode, fields: &HeaderMap) -> Vec<u8> {
    let mut fields = fields.clone();
    strip_hop_by_hop(&mut fields);
    // A 1xx has no content, and says nothing of its length (RFC 9110 8.6).
    fields.remove(CONTENT_LENGTH);
    let reason = status.canonical_reason().unwrap_or("Interim");
    let mut text = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).into_bytes();
    for (name, value) in &fields {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"\r\n");
    text
}

/// Largest number of queued bytes for one client; further interim responses are dropped.
const WAITING_BYTES_MAX: usize = 64 << 10;
