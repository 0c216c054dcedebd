//! Connections of HTTP/2 to an origin, which a worker's requests share.
//!
//! Owns: the number of streams on a connection, and each stream's deadline. Retries are decided elsewhere. Invariants:
//! a stream that is silent for too long ends alone, but its connection takes no new ones, because others may be
//! affected too. A connection without streams ends when it has been idle for long enough.

use std::{
    error::Error as _,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{
    HeaderValue, Request, Response, Uri, Version,
    header::{EXPECT, HOST, TE, TRANSFER_ENCODING},
    uri::Scheme,
};
use hyper::{
    body::Incoming,
    client::conn::http2::{Builder, Connection, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::{
    origin::{
        origins::OriginRouter, pool::OwnConnection, request_body::RequestBody, room::RoomPlace, stream::OriginStream,
    },
    watch::{OrderWatch, WatchOrder, WatchedConnection, WorkerDeadlines},
};

/// A connection that takes several requests at once.
#[derive(Clone)]
pub(crate) struct SharedConnection {
    sender: SendRequest<RequestBody>,
    state: Arc<SharedState>,
}

struct SharedState {
    watched: Arc<WatchedConnection>,
    watches: Arc<WorkerDeadlines>,
    stream_count: AtomicUsize,
    /// The origin's limit, as far as it is known.
    stream_count_max: AtomicUsize,
    /// Set if the connection takes no new streams.
    retired: AtomicBool,
    idle: Duration,
    secure: bool,
}

/// A request's place on a connection.
pub(crate) struct SharedStream {
    connection: SharedConnection,
    deadline: Arc<WatchedConnection>,
}

/// Why a request got no response.
pub(crate) struct StreamRefusal {
    pub(crate) error: hyper::Error,
    /// The request, if it never left.
    pub(crate) unsent: Option<Request<RequestBody>>,
    /// Whether the origin reported that it did not process the request (RFC 9113 8.7).
    pub(crate) unprocessed: bool,
}

impl SharedConnection {
    /// Begins HTTP/2 on a connection.
    pub(crate) async fn start(
        origins: &Arc<OriginRouter>,
        stream: OriginStream,
        watched: Arc<WatchedConnection>,
        place: RoomPlace<OwnConnection>,
    ) -> Result<Self, hyper::Error> {
        let limits = &origins.shared.limits;
        let secure = stream.is_tls();
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX));
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        let state = Arc::new(SharedState {
            watched,
            watches: Arc::clone(&origins.watches),
            stream_count: AtomicUsize::new(0),
            stream_count_max: AtomicUsize::new(STREAM_COUNT_MAX),
            retired: AtomicBool::new(false),
            idle: limits.origin_idle,
            secure,
        });
        tokio::spawn(SharedConnectionTask { connection, state: Arc::clone(&state), started: false, _place: place });
        Ok(Self { sender, state })
    }

    /// Returns whether the connection can take new streams at all.
    pub(crate) fn is_open(&self) -> bool {
        !self.sender.is_closed() && !self.state.retired.load(Relaxed) && self.state.watched.order() == WatchOrder::Run
    }

    /// Permits no further streams. The connection closes with its last stream.
    pub(crate) fn retire(&self) {
        self.state.retired.store(true, Relaxed);
    }

    /// Opens a stream, if there is room for one.
    pub(crate) fn open_stream(&self) -> Option<SharedStream> {
        let max = self.state.stream_count_max.load(Relaxed).clamp(1, STREAM_COUNT_MAX);
        if !self.is_open() || self.state.stream_count.load(Relaxed) >= max {
            return None;
        }
        self.state.stream_count.fetch_add(1, Relaxed);
        self.state.watched.disarm();
        Some(SharedStream { connection: self.clone(), deadline: Arc::new(self.state.watches.register()) })
    }
}

impl SharedStream {
    /// Sends a request and waits for the head of its response. Returns `None` if the origin was silent for too long.
    pub(crate) async fn send(
        &mut self,
        request: Request<RequestBody>,
        patience: Duration,
    ) -> Option<Result<Response<Incoming>, StreamRefusal>> {
        self.deadline.arm(patience);
        let request = to_http2(request, self.connection.state.secure);
        let request = request.map(|body| body.with_deadline(&self.deadline, patience));
        let sending = self.connection.sender.try_send_request(request);
        match OrderWatch::new(sending, &self.deadline, &[WatchOrder::Expire]).await {
            Some(Ok(response)) => {
                self.deadline.disarm();
                Some(Ok(response))
            }
            Some(Err(mut failed)) => {
                let unsent = failed.take_message().map(to_http1);
                let error = failed.into_error();
                Some(Err(StreamRefusal { unprocessed: is_unprocessed(&error), error, unsent }))
            }
            None => {
                self.connection.retire();
                None
            }
        }
    }

    pub(crate) fn deadline(&self) -> &Arc<WatchedConnection> {
        &self.deadline
    }
}

impl Drop for SharedStream {
    fn drop(&mut self) {
        let state = &self.connection.state;
        if self.deadline.order() == WatchOrder::Expire {
            state.retired.store(true, Relaxed);
        }
        if state.stream_count.fetch_sub(1, Relaxed) == 1 {
            // A retired connection takes no more requests, so it closes at once.
            state.watched.arm(if state.retired.load(Relaxed) { Duration::ZERO } else { state.idle });
        }
    }
}

/// A connection's own task: drives it, and closes it when its deadline has passed.
struct SharedConnectionTask {
    connection: Connection<TokioIo<OriginStream>, RequestBody, TokioExecutor>,
    state: Arc<SharedState>,
    started: bool,
    /// The connection's place in the origin's limit.
    _place: RoomPlace<OwnConnection>,
}

impl Future for SharedConnectionTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if !self.started {
            self.started = true;
            self.state.watched.remember(context);
        }
        if self.state.watched.order() == WatchOrder::Expire {
            return Poll::Ready(());
        }
        self.state.stream_count_max.store(self.connection.current_max_send_streams(), Relaxed);
        // Each request's own future reports errors.
        Pin::new(&mut self.connection).poll(context).map(|_| ())
    }
}

/// Converts a request to HTTP/2: gives it the whole target, and removes the fields of HTTP/1.1's framing (RFC 9113
/// 8.2.2, 8.3.1).
fn to_http2(mut request: Request<RequestBody>, secure: bool) -> Request<RequestBody> {
    let fields = request.headers_mut();
    fields.remove(TRANSFER_ENCODING);
    // The body does not wait for a 100, see `pool`.
    fields.remove(EXPECT);
    // Trailers are forwarded, whether or not the client asked for them.
    fields.insert(TE, HeaderValue::from_static("trailers"));
    let host = fields.remove(HOST);
    let scheme = if secure { Scheme::HTTPS } else { Scheme::HTTP };
    let mut parts = request.uri().clone().into_parts();
    parts.scheme = Some(scheme);
    parts.authority = host.and_then(|host| host.as_bytes().try_into().ok());
    if let Ok(target) = Uri::from_parts(parts) {
        *request.uri_mut() = target;
    }
    *request.version_mut() = Version::HTTP_2;
    request
}

/// Converts the request back to HTTP/1.1.
fn to_http1(mut request: Request<RequestBody>) -> Request<RequestBody> {
    let mut parts = request.uri().clone().into_parts();
    parts.scheme = None;
    if let Some(host) = parts.authority.take().and_then(|host| HeaderValue::try_from(host.as_str()).ok()) {
        request.headers_mut().insert(HOST, host);
    }
    request.headers_mut().remove(TE);
    if let Ok(target) = Uri::from_parts(parts) {
        *request.uri_mut() = target;
    }
    *request.version_mut() = Version::HTTP_11;
    request
}

/// Returns whether this error says that the origin did not process the request: REFUSED_STREAM, or a GOAWAY that
/// excludes it.
fn is_unprocessed(error: &hyper::Error) -> bool {
    let Some(cause) = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>()) else { return false };
    cause.is_remote() && (cause.is_go_away() || cause.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// Most streams on one connection, whatever the origin allows.
const STREAM_COUNT_MAX: usize = 128;
/// Bytes that an origin may send ahead on one stream.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// Bytes that an origin may send ahead on all streams together. This is the most unread data that a connection holds.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
