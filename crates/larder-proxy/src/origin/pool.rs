//! A worker's connections to origins: keeping, reusing and returning them.
//!
//! Owns: the unused connections of HTTP/1.1, last in first out; the shared connections of HTTP/2; and the rules of the
//! one retry. Invariant: a request reaches the origin once. It is sent again, without a body, only if the origin did
//! not process it (RFC 9113 8.7), or if it is safe to repeat and its kept connection died before the response.

use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use http::{Request, Response, header::HOST};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;

use crate::{
    errors::Failure,
    origin::{
        connect::{self, NewLink},
        expectation::{Expectation, ExpectationRefusal},
        fault::FaultReport,
        group::OriginChoice,
        origins::OriginRouter,
        parent,
        request_body::{BodyFate, BodyFault, RequestBody},
        room::{OriginRoom, RoomEntry, RoomPlace, RoomTurn},
        shared::{SharedConnection, SharedStream},
        status_line::RequestCount,
        stream::OriginStream,
        target::Origin,
    },
    watch::{WatchOrder, WatchedConnection},
};

/// A worker's connections that can take another request.
#[derive(Default)]
pub(crate) struct ConnectionPool {
    idle: Mutex<IdleConnections>,
}

/// Unused connections by origin, their number, and the shared ones.
#[derive(Default)]
struct IdleConnections {
    kept: HashMap<Origin, Vec<OwnConnection>>,
    count: usize,
    shared: HashMap<Origin, Vec<SharedConnection>>,
}

/// A connection of HTTP/1.1 to an origin, in use or kept.
pub(crate) struct OwnConnection {
    room: Arc<OriginRoom<OwnConnection>>,
    sender: SendRequest<RequestBody>,
    watched: Arc<WatchedConnection>,
    requests: Arc<RequestCount>,
}

/// A connection on which a request can be sent.
pub(super) enum PooledConnection {
    Own(OwnConnection),
    Shared(SharedStream),
}

/// A connection whose response is being read. Dropped early, the connection closes, or the stream is reset.
pub(crate) struct Lease {
    connection: PooledConnection,
    origin: Origin,
    origins: Arc<OriginRouter>,
    /// Set if the origin did not read the body that the connection still owes it.
    refusal: Option<ExpectationRefusal>,
}

/// A request that can be made again, should it have to be.
pub(crate) struct ReplayableRequest<M> {
    /// The request's destination.
    pub(crate) origin: Origin,
    /// The choice of another origin, if there are several.
    pub(crate) choice: Option<OriginChoice>,
    /// The key of the resource, by which one of several parents is chosen.
    pub(crate) key: Option<Arc<[u8]>>,
    pub(crate) repeat: RetryRule,
    /// Makes it. Called again only if `repeat` allows it.
    pub(crate) make: M,
}

/// When a request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryRule {
    /// The request may be repeated: its method is idempotent (RFC 9110 9.2.2) and it has no body.
    Safe,
    /// The request has no body, so it may be repeated if the origin did not process it.
    IfUnprocessed,
    /// The request has a body, which is gone once it was sent.
    Never,
}

/// Why an attempt came to nothing.
pub(super) struct SendFailure {
    pub(super) failure: Failure,
    /// The request, if it never left.
    pub(super) unsent: Option<Request<RequestBody>>,
    /// Whether the origin says that it did not process the request.
    pub(super) unprocessed: bool,
    /// Set if bytes of a response came, but no valid ones.
    pub(super) answered: bool,
}

/// Sends a request to leave HTTP, on a connection of its own (RFC 9110 7.8).
pub(crate) async fn send_upgrade(
    origins: &Arc<OriginRouter>,
    origin: &Origin,
    request: Request<RequestBody>,
) -> Result<(Response<Incoming>, Lease), Failure> {
    let sent = async {
        // A connection that leaves HTTP is not given to waiting requests.
        let NewLink { stream, watched, requests, .. } = connect::connect(origins, origin, false).await?;
        let (sender, connection) = handshake(origins, origin, stream.into_tunnel()).await?;
        let (connection, place) = (connection.with_upgrades(), None);
        tokio::spawn(PooledTask { connection, watched: Arc::clone(&watched), started: false, _place: place });
        let own = OwnConnection { room: origins.shared.rooms.of(origin), sender, watched, requests };
        attempt(origins, origin, PooledConnection::Own(own), request).await.map_err(|failed| failed.failure)
    };
    let sent = sent.await;
    origins.shared.note(origin, sent.as_ref());
    sent
}

impl ConnectionPool {
    pub(super) fn take(&self, origin: &Origin) -> Option<PooledConnection> {
        let idle = &mut *self.lock();
        if let Some(shared) = idle.shared.get_mut(origin) {
            shared.retain(SharedConnection::is_open);
            if let Some(stream) = shared.iter().find_map(SharedConnection::open_stream) {
                return Some(PooledConnection::Shared(stream));
            }
        }
        let kept = idle.kept.get_mut(origin)?;
        while let Some(connection) = kept.pop() {
            idle.count -= 1;
            if connection.sender.is_ready() && connection.watched.order() == WatchOrder::Run {
                connection.watched.disarm();
                return Some(PooledConnection::Own(connection));
            }
        }
        idle.kept.remove(origin);
        None
    }

    fn put(&self, origins: &OriginRouter, origin: Origin, connection: OwnConnection) {
        let limits = &origins.shared.limits;
        let room = Arc::clone(&connection.room);
        let Some(connection) = room.offer(origins.worker, connection) else { return };
        connection.watched.arm(limits.origin_idle);
        let idle = &mut *self.lock();
        if idle.count >= IDLE_COUNT_MAX {
            return;
        }
        let kept = idle.kept.entry(origin).or_default();
        if kept.len() < limits.origin_idle_count_max {
            kept.push(connection);
            idle.count += 1;
        }
    }

    fn share(&self, origin: &Origin, connection: SharedConnection) {
        self.lock().shared.entry(origin.clone()).or_default().push(connection);
    }

    /// Drops connections that have closed, and origins without any.
    pub(crate) fn sweep(&self) {
        let idle = &mut *self.lock();
        idle.kept.retain(|_, kept| {
            kept.retain(|connection| !connection.sender.is_closed());
            !kept.is_empty()
        });
        idle.count = idle.kept.values().map(Vec::len).sum();
        idle.shared.retain(|_, shared| {
            shared.retain(SharedConnection::is_open);
            !shared.is_empty()
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, IdleConnections> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// Says that the response has been read to its end: the connection is kept for the next request.
    pub(crate) fn release(self) {
        let Self { connection, origin, origins, refusal } = self;
        if refusal.is_some() {
            return;
        }
        // A stream ends with its response.
        let PooledConnection::Own(mut connection) = connection else { return };
        connection.watched.disarm();
        if connection.sender.is_closed() {
        } else if connection.sender.is_ready() {
            origins.pool.put(&origins, origin, connection);
        } else {
            // The connection's own task has not yet noticed the end of the response.
            tokio::spawn(async move {
                if connection.sender.ready().await.is_ok() {
                    origins.pool.put(&origins, origin, connection);
                }
            });
        }
    }

    /// Says that bytes are being waited for: from now on the origin's silence counts.
    pub(crate) fn await_origin(&self, context: &Context<'_>) {
        if let PooledConnection::Shared(stream) = &self.connection {
            stream.deadline().remember(context);
        }
        if !self.watched().is_armed() {
            self.watched().arm(self.origins.shared.limits.origin_response);
        }
    }

    /// Notes that nothing is expected from the origin at the moment.
    pub(crate) fn origin_delivered(&self) {
        self.watched().disarm();
    }

    /// Returns whether the origin was silent for too long.
    pub(crate) fn timed_out(&self) -> bool {
        self.watched().order() == WatchOrder::Expire
    }

    /// Returns the deadline of a connection that no longer carries HTTP.
    pub(crate) fn into_watched(self) -> Option<Arc<WatchedConnection>> {
        match self.connection {
            PooledConnection::Own(own) => Some(own.watched),
            PooledConnection::Shared(_) => None,
        }
    }

    fn watched(&self) -> &Arc<WatchedConnection> {
        match &self.connection {
            PooledConnection::Own(own) => &own.watched,
            PooledConnection::Shared(stream) => stream.deadline(),
        }
    }
}

pub(super) async fn attempt(
    origins: &Arc<OriginRouter>,
    origin: &Origin,
    connection: PooledConnection,
    mut request: Request<RequestBody>,
) -> Result<(Response<Incoming>, Lease), SendFailure> {
    if let Some(host) = &origin.host_field {
        request.headers_mut().insert(HOST, host.clone());
    }
    let parent = parent::address(origins.shared.parent_of(origin), origin, &mut request);
    let fate = request.body().fate();
    let expectation = request.body().expectation();
    let leased = |connection| {
        let refusal = expectation.as_ref().and_then(Expectation::refuse);
        Lease { connection, origin: origin.clone(), origins: Arc::clone(origins), refusal }
    };
    let patience = origins.shared.limits.origin_response;
    match connection {
        PooledConnection::Own(mut own) => {
            own.watched.arm(patience);
            let request = request.map(|body| body.with_deadline(&own.watched, patience));
            own.requests.note();
            match own.sender.try_send_request(request).await {
                Ok(response) => {
                    note_answered(fate.as_ref());
                    own.watched.disarm();
                    if let Some(failure) = parent.and_then(|parent| parent::refusal(response.status(), parent)) {
                        return Err(SendFailure { failure, unsent: None, unprocessed: false, answered: true });
                    }
                    Ok((response, leased(PooledConnection::Own(own))))
                }
                Err(mut failed) => {
                    let unsent = failed.take_message();
                    let failure = if own.watched.order() == WatchOrder::Expire {
                        Failure::Timeout { host: origin.to_string() }
                    } else {
                        failure_of(origin, failed.error(), fate.as_ref())
                    };
                    Err(SendFailure { failure, unsent, unprocessed: false, answered: failed.error().is_parse() })
                }
            }
        }
        PooledConnection::Shared(mut stream) => {
            // The HTTP library shows no interim response of HTTP/2: none can be waited for.
            if let Some(expectation) = &expectation {
                expectation.grant();
            }
            match stream.send(request, patience).await {
                Some(Ok(response)) => {
                    note_answered(fate.as_ref());
                    Ok((response, leased(PooledConnection::Shared(stream))))
                }
                Some(Err(refused)) => {
                    let failure = failure_of(origin, &refused.error, fate.as_ref());
                    let (unsent, unprocessed) = (refused.unsent, refused.unprocessed);
                    Err(SendFailure { failure, unsent, unprocessed, answered: false })
                }
                None => {
                    let failure = Failure::Timeout { host: origin.to_string() };
                    Err(SendFailure { failure, unsent: None, unprocessed: false, answered: false })
                }
            }
        }
    }
}

/// Returns the failure of an exchange: the origin's fault, unless the client's own body did not arrive.
fn failure_of(origin: &Origin, error: &hyper::Error, fate: Option<&Arc<BodyFate>>) -> Failure {
    match fate.and_then(|fate| fate.fault()) {
        Some(fault @ (BodyFault::BrokenOff | BodyFault::TooSlow)) => fault.into(),
        Some(BodyFault::NotWanted) | None => {
            Failure::Unusable { host: origin.to_string(), fault: FaultReport::of_http(error) }
        }
    }
}

fn note_answered(fate: Option<&Arc<BodyFate>>) {
    if let Some(fate) = fate {
        fate.note_answered();
    }
}

/// Opens a connection, or waits for one that is given back if there is no room. Returns whether it is such a reused
/// one.
pub(super) async fn obtain(origins: &Arc<OriginRouter>, origin: &Origin) -> Result<(PooledConnection, bool), Failure> {
    let room = origins.shared.rooms.of(origin);
    let turn = match room.enter(origins.worker) {
        RoomEntry::Now(place) => RoomTurn::Open(place),
        RoomEntry::Wait(turn) => {
            origins.metrics.origin_waits.add(1);
            let limits = &origins.shared.limits;
            origins.shared.complaints.note_full(origin, limits.origin_connection_count_max);
            // The same limit as for a slow origin: a waiting client sees no difference.
            let waited = tokio::time::timeout(limits.origin_response, turn).await;
            waited.ok().and_then(Result::ok).ok_or(Failure::Overloaded)?
        }
        RoomEntry::Full => return Err(Failure::Overloaded),
    };
    match turn {
        RoomTurn::Open(place) => Ok((connect(origins, origin, room, place).await?, false)),
        RoomTurn::Kept(own) => {
            own.watched.disarm();
            Ok((PooledConnection::Own(own), true))
        }
    }
}

async fn connect(
    origins: &Arc<OriginRouter>,
    origin: &Origin,
    room: Arc<OriginRoom<OwnConnection>>,
    place: RoomPlace<OwnConnection>,
) -> Result<PooledConnection, Failure> {
    let NewLink { stream, watched, requests, http2 } = connect::connect(origins, origin, origins.shared.http2).await?;
    if http2 {
        let connection = SharedConnection::start(origins, stream, watched, place).await;
        let connection = connection.map_err(|error| failure_of(origin, &error, None))?;
        let stream = connection.open_stream();
        origins.pool.share(origin, connection);
        let refused = || Failure::Broken { host: origin.to_string(), why: "it takes no requests".into() };
        return stream.map(PooledConnection::Shared).ok_or_else(refused);
    }
    let (sender, connection) = handshake(origins, origin, stream).await?;
    tokio::spawn(PooledTask { connection, watched: Arc::clone(&watched), started: false, _place: Some(place) });
    Ok(PooledConnection::Own(OwnConnection { room, sender, watched, requests }))
}

type Handshaken = (SendRequest<RequestBody>, http1::Connection<TokioIo<OriginStream>, RequestBody>);

async fn handshake(origins: &OriginRouter, origin: &Origin, stream: OriginStream) -> Result<Handshaken, Failure> {
    let limits = &origins.shared.limits;
    let handshake = http1::Builder::new()
        .max_headers(limits.header_count_max)
        .max_header_size(limits.header_bytes_max)
        .max_buf_size(ORIGIN_BUFFER_BYTES_MAX.max(limits.header_bytes_max))
        .handshake(TokioIo::new(stream));
    handshake.await.map_err(|error| Failure::Unusable { host: origin.to_string(), fault: FaultReport::of_http(&error) })
}

/// A connection's own task: drives it, and closes it when its deadline has passed.
struct PooledTask<C> {
    connection: C,
    watched: Arc<WatchedConnection>,
    started: bool,
    /// The connection's place in the origin's limit, while it has one.
    _place: Option<RoomPlace<OwnConnection>>,
}

impl<C: Future + Unpin> Future for PooledTask<C> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if !self.started {
            self.started = true;
            self.watched.remember(context);
        }
        if self.watched.order() == WatchOrder::Expire {
            return Poll::Ready(());
        }
        // The request's own future reports errors.
        Pin::new(&mut self.connection).poll(context).map(|_| ())
    }
}

/// Read buffer per connection; larger pieces make long bodies cheaper, and cost memory per fetch.
const ORIGIN_BUFFER_BYTES_MAX: usize = 256 << 10;
/// Most unused connections a worker keeps, to all origins together.
const IDLE_COUNT_MAX: usize = 4096;
