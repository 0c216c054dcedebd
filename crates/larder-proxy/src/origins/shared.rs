//! Connections of HTTP/2 to an origin, which a worker's requests share.
//!
//! Owns: the number of streams on a connection, and each stream's deadline. Retries are decided elsewhere. Invariants:
//! a stream that is silent for too long ends alone, but its connection takes no new ones, because others may be
//! affected too. A connection without streams ends when it has been idle for long enough.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::Bytes;
use h2::{
    Ping, PingPong, Reason, RecvStream, SendStream,
    client::{Builder, Connection, ResponseFuture, SendRequest},
};
use http::{
    HeaderValue, Method, Request, Response, Uri, Version,
    header::{CONTENT_LENGTH, EXPECT, HOST, TE},
    uri::Scheme,
};
use http_body::Body as _;

use crate::{
    ground::{
        http2::{SEND_BYTES_MAX, sending::Http2Sending, strip_connection_fields},
        watch::{OrderWatch, WatchOrder, WatchedConnection, WorkerDeadlines},
    },
    origins::{
        access::OriginRouter,
        http1::{INTERIM_COUNT_MAX, InterimTaker},
        pool::OwnConnection,
        request_body::RequestBody,
        room::RoomPlace,
        stream::OriginStream,
    },
};

/// An HTTP/2 connection, which several requests use at once.
#[derive(Clone)]
pub(crate) struct SharedConnection(Arc<SharedState>);

struct SharedState {
    sender: SendRequest<Bytes>,
    /// Sends PINGs. The reply to a PING proves that the origin's settings arrived before it.
    ping: tokio::sync::Mutex<PingPong>,
    watched: Arc<WatchedConnection>,
    watches: Arc<WorkerDeadlines>,
    stream_count: AtomicUsize,
    /// Maximum number of streams that the origin permits. A default until the origin has sent its limit.
    stream_count_max: AtomicUsize,
    /// Whether the connection accepts no new streams.
    retired: AtomicBool,
    idle: Duration,
    secure: bool,
}

/// One stream of a connection, with its own deadline.
pub(crate) struct SharedStream {
    connection: SharedConnection,
    deadline: Arc<WatchedConnection>,
}

/// Why a stream brought no response.
pub(crate) struct StreamRefusal {
    pub(crate) error: h2::Error,
    /// The request, to be sent again. `None` if a part of it was sent.
    pub(crate) unsent: Option<Request<RequestBody>>,
    /// Whether the origin reported that it did not process the request (RFC 9113 8.7).
    pub(crate) unprocessed: bool,
}

impl SharedConnection {
    /// Starts HTTP/2 on a connection to an origin.
    pub(crate) async fn start(
        origins: &Arc<OriginRouter>,
        stream: OriginStream,
        watched: Arc<WatchedConnection>,
        place: RoomPlace<OwnConnection>,
    ) -> Result<Self, h2::Error> {
        let secure = stream.is_tls();
        let (sender, mut connection) = Builder::new()
            .enable_push(false)
            .initial_max_send_streams(FIRST_STREAM_COUNT_MAX)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(u32::try_from(origins.shared.heads.bytes_max).unwrap_or(u32::MAX))
            .max_send_buffer_size(SEND_BYTES_MAX)
            .handshake(stream)
            .await?;
        let ping = connection.ping_pong().expect("it is taken once");
        let state = Arc::new(SharedState {
            sender,
            ping: tokio::sync::Mutex::new(ping),
            watched,
            watches: Arc::clone(&origins.watches),
            stream_count: AtomicUsize::new(0),
            stream_count_max: AtomicUsize::new(STREAM_COUNT_MAX),
            retired: AtomicBool::new(false),
            idle: origins.policy.limits.origin_idle,
            secure,
        });
        tokio::spawn(SharedConnectionTask { connection, state: Arc::clone(&state), started: false, _place: place });
        Ok(Self(state))
    }

    /// Returns whether the connection may accept new streams, regardless of how many are open.
    pub(crate) fn is_open(&self) -> bool {
        !self.0.is_over() && self.0.watched.order() == WatchOrder::Run
    }

    /// Makes the connection accept no further streams. It closes after its last stream.
    pub(crate) fn retire(&self) {
        self.0.retired.store(true, Relaxed);
    }

    /// Opens a stream, or returns `None` if the connection has no room for one.
    pub(crate) fn open_stream(&self) -> Option<SharedStream> {
        let state = &self.0;
        let max = state.stream_count_max.load(Relaxed).clamp(1, STREAM_COUNT_MAX);
        if !self.is_open() || state.stream_count.load(Relaxed) >= max {
            return None;
        }
        state.stream_count.fetch_add(1, Relaxed);
        state.watched.disarm();
        Some(SharedStream { connection: self.clone(), deadline: Arc::new(state.watches.register()) })
    }
}

impl SharedState {
    /// Returns whether the connection accepts no new streams: it was retired, closed, or the origin sent GOAWAY.
    fn is_over(&self) -> bool {
        let is_ready = || self.sender.clone().poll_ready(&mut Context::from_waker(Waker::noop()));
        self.retired.load(Relaxed) || !matches!(is_ready(), Poll::Ready(Ok(())))
    }
}

impl SharedStream {
    /// Sends a request and waits for the head of its response. `interim` receives its interim responses.
    ///
    /// Returns `None` if the origin was silent for `patience`.
    pub(crate) async fn send(
        &mut self,
        request: Request<RequestBody>,
        patience: Duration,
        interim: Option<InterimTaker>,
    ) -> Option<Result<Response<RecvStream>, StreamRefusal>> {
        let state = &self.connection.0;
        let mut sender = state.sender.clone();
        if let Err(error) = poll_fn(|context| sender.poll_ready(context)).await {
            return Some(Err(StreamRefusal { error, unsent: Some(request), unprocessed: true }));
        }
        self.deadline.arm(patience);
        let (head, body) = to_http2(request, state.secure).into_parts();
        let is_whole = body.is_end_stream();
        let (response, stream) = match sender.send_request(Request::from_parts(head, ()), is_whole) {
            Ok(sent) => sent,
            Err(error) => return Some(Err(StreamRefusal::of(error))),
        };
        let body = body.with_deadline(&self.deadline, patience);
        let sending = (!is_whole).then(|| Http2Sending::new(stream, body, Reason::CANCEL));
        let answered = self.answered(StreamExchange { response, sending, interim, interim_count: 0 }).await?;
        Some(answered.map_err(StreamRefusal::of))
    }

    /// Returns whether the origin supports extended CONNECT (RFC 8441 3). May wait for its settings.
    pub(crate) async fn takes_other_protocols(&self, patience: Duration) -> bool {
        let state = &self.connection.0;
        if !state.sender.is_extended_connect_protocol_enabled() {
            // The settings of a new connection may still be on their way. They arrive before the reply to a PING.
            let asked = async { state.ping.lock().await.ping(Ping::opaque()).await };
            _ = tokio::time::timeout(patience, asked).await;
        }
        state.sender.is_extended_connect_protocol_enabled()
    }

    /// Sends an extended CONNECT and waits for the head of its response. After a success, the stream carries bytes.
    ///
    /// Returns `None` if the origin was silent for `patience`.
    pub(crate) async fn open(
        &mut self,
        request: Request<()>,
        patience: Duration,
    ) -> Option<Result<(Response<RecvStream>, SendStream<Bytes>), h2::Error>> {
        let mut sender = self.connection.0.sender.clone();
        if let Err(error) = poll_fn(|context| sender.poll_ready(context)).await {
            return Some(Err(error));
        }
        self.deadline.arm(patience);
        let (response, stream) = match sender.send_request(request, false) {
            Ok(sent) => sent,
            Err(error) => return Some(Err(error)),
        };
        let exchange = StreamExchange { response, sending: None, interim: None, interim_count: 0 };
        let answered = self.answered(exchange).await?;
        Some(answered.map(|response| (response, stream)))
    }

    /// Waits for the head of a response. Returns `None` if the deadline passes first.
    async fn answered(&self, exchange: StreamExchange) -> Option<Result<Response<RecvStream>, h2::Error>> {
        match OrderWatch::new(exchange, &self.deadline, &[WatchOrder::Expire]).await {
            Some(answered) => {
                if answered.is_ok() {
                    self.deadline.disarm();
                }
                Some(answered)
            }
            None => {
                self.connection.retire();
                None
            }
        }
    }

    /// Returns whether the connection uses TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.connection.0.secure
    }

    pub(crate) fn deadline(&self) -> &Arc<WatchedConnection> {
        &self.deadline
    }
}

impl StreamRefusal {
    /// Describes the failure of a request that was sent.
    fn of(error: h2::Error) -> Self {
        Self { unprocessed: is_unprocessed(&error), error, unsent: None }
    }
}

impl Drop for SharedStream {
    fn drop(&mut self) {
        let state = &self.connection.0;
        if self.deadline.order() == WatchOrder::Expire {
            state.retired.store(true, Relaxed);
        }
        if state.stream_count.fetch_sub(1, Relaxed) == 1 {
            // A connection that accepts no more requests closes at once.
            state.watched.arm(if state.is_over() { Duration::ZERO } else { state.idle });
        }
    }
}

/// A request that was sent and has no response yet.
struct StreamExchange {
    response: ResponseFuture,
    /// The remainder of the request's body. `None` when all of it was sent.
    sending: Option<Http2Sending<RequestBody>>,
    interim: Option<InterimTaker>,
    interim_count: usize,
}

impl Future for StreamExchange {
    type Output = Result<Response<RecvStream>, h2::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let exchange = &mut *self;
        if exchange.sending.as_mut().is_some_and(|sending| sending.poll(context).is_ready()) {
            exchange.sending = None;
        }
        // h2 reports an error here and again with the response, where it is handled.
        while let Poll::Ready(Some(Ok(arrived))) = exchange.response.poll_informational(context) {
            exchange.interim_count += 1;
            if exchange.interim_count > INTERIM_COUNT_MAX {
                return Poll::Ready(Err(Reason::ENHANCE_YOUR_CALM.into()));
            }
            if let Some(interim) = &exchange.interim {
                interim(arrived.status(), arrived.headers());
            }
        }
        let answered = ready!(Pin::new(&mut exchange.response).poll(context));
        if let (Ok(_), Some(mut sending)) = (&answered, exchange.sending.take()) {
            // The origin may respond before the client has sent everything, so a task sends the remainder of the body.
            tokio::spawn(async move { poll_fn(|context| sending.poll(context)).await });
        }
        Poll::Ready(answered)
    }
}

/// The task of an HTTP/2 connection. Drives it, and closes it when its deadline has passed.
struct SharedConnectionTask {
    connection: Connection<OriginStream, Bytes>,
    state: Arc<SharedState>,
    started: bool,
    /// The connection's share of the limit on connections to its origin.
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
        self.state.stream_count_max.store(self.connection.max_concurrent_send_streams(), Relaxed);
        // The future of each request reports the error.
        Pin::new(&mut self.connection).poll(context).map(|_| ())
    }
}

/// Converts a request to HTTP/2: its target becomes absolute, and fields of HTTP/1.1's framing are removed (RFC 9113
/// 8.2.2, 8.3.1).
pub(super) fn to_http2(mut request: Request<RequestBody>, secure: bool) -> Request<RequestBody> {
    let body_len = request.body().size_hint().exact();
    let has_body = matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH);
    let fields = request.headers_mut();
    strip_connection_fields(fields);
    // Over HTTP/2 the body is sent without waiting for a 100, see `attempt`.
    fields.remove(EXPECT);
    match body_len {
        Some(len) if len > 0 || has_body => _ = fields.insert(CONTENT_LENGTH, HeaderValue::from(len)),
        Some(_) => {}
        None => _ = fields.remove(CONTENT_LENGTH),
    }
    // Trailers are forwarded whether or not the client accepts them, so the origin may send them.
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

/// Returns whether an error says that the origin did not process the request: REFUSED_STREAM, or a GOAWAY that excludes
/// it.
fn is_unprocessed(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM))
}

/// Maximum number of streams on a connection until the origin has sent its own limit. RFC 9113 6.5.2 advises origins to
/// permit at least 100.
const FIRST_STREAM_COUNT_MAX: usize = 100;
/// Maximum number of streams on one connection, whatever the origin permits.
const STREAM_COUNT_MAX: usize = 128;
/// Maximum number of unread bytes that an origin may send on one stream.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// Maximum number of unread bytes that an origin may send on all streams of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
