//! An HTTP/1.1 connection that waits for the response to a plain request, without the HTTP library.
//!
//! The library keeps two buffers of 8 KiB and its own state while a request waits for an origin. After a second of
//! waiting, the connection drops that state. When the response arrives, a new instance of the library is created. It
//! reads a short request whose response has the same framing, and is given the response.
//!
//! Owns: detecting a client that leaves. Invariant: the library has read no part of another request. Cost: a response
//! after more than a second costs one more instance of the library.

use std::{
    io,
    sync::Arc,
    task::{Context, Poll},
};

use http::Response;

use crate::{
    client::{held::HeldExchange, response_body::ResponseBody, stream::ClientStream},
    metrics::{CountGuard, WorkerMetrics},
};

/// A connection that waits.
pub(super) struct WaitingConnection {
    stream: ClientStream,
    exchange: HeldExchange,
    _counting: CountGuard,
}

impl WaitingConnection {
    pub(super) fn new(stream: ClientStream, exchange: HeldExchange, metrics: &Arc<WorkerMetrics>) -> Self {
        Self { stream, exchange, _counting: CountGuard::begin(metrics, |metrics| &metrics.exchanges_parked) }
    }

    /// Waits for the response.
    ///
    /// # Errors
    /// The client has left.
    pub(super) fn poll_response(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Response<ResponseBody>>> {
        if let Poll::Ready(Err(error)) = self.stream.poll_interim(context) {
            return Poll::Ready(Err(error));
        }
        if let Poll::Ready(response) = self.exchange.future.as_mut().poll(context) {
            return Poll::Ready(Ok(response));
        }
        self.stream.poll_leaving(context).map(Err)
    }

    /// Returns the stream, on which the library first reads a request of the same shape.
    pub(super) fn into_stream(self, closes: bool) -> ClientStream {
        let request = self.exchange.shape.request(closes);
        self.stream.with_replayed(request)
    }
}
