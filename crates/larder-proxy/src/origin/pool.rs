//! A worker's connections to origins: keeping, reusing and returning them.
//!
//! Owns: the unused connections of HTTP/1.1, last in first out; the shared connections of HTTP/2; and the rules of the
//! one retry. Invariant: a request reaches the origin once. It is sent again, without a body, only if the origin did
//! not process it (RFC 9113 8.7), or if it is safe to repeat and its kept connection died before the response.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    task::Context,
};

use http::Request;
use hyper::client::conn::http1::SendRequest;

use crate::{
    errors::Failure,
    origin::{
        connect::{self, NewLink},
        expectation::ExpectationRefusal,
        fault::FaultReport,
        group::OriginChoice,
        http1::{Http1Connection, head::HeadLimits},
        origins::OriginRouter,
        request_body::RequestBody,
        room::{OriginRoom, RoomEntry, RoomPlace, RoomTurn},
        shared::{SharedConnection, SharedStream},
        status_line::RequestCount,
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
    pub(super) room: Arc<OriginRoom<OwnConnection>>,
    pub(super) speaker: Http1Speaker,
    pub(super) watched: Arc<WatchedConnection>,
    pub(super) requests: Arc<RequestCount>,
}

/// The part of the program that speaks HTTP/1.1 on a connection.
pub(super) enum Http1Speaker {
    /// Our own, with the connection's place in the origin's limit.
    Own { connection: Box<Http1Connection>, place: RoomPlace<OwnConnection> },
    /// The HTTP library, in a task of its own, which has the place.
    Library(SendRequest<RequestBody>),
    /// Nobody: the library could not take the connection over, and it is closed.
    Nobody,
}

/// A connection on which a request can be sent.
pub(super) enum PooledConnection {
    Own(OwnConnection),
    Shared(SharedStream),
}

/// A connection whose response is being read. Dropped early, the connection closes, or the stream is reset.
pub(crate) struct Lease {
    pub(super) connection: PooledConnection,
    pub(super) origin: Origin,
    pub(super) origins: Arc<OriginRouter>,
    /// Set if the origin did not read the body that the connection still owes it.
    pub(super) refusal: Option<ExpectationRefusal>,
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

/// A request on its way. Boxed, because each step of sending would otherwise have room for it while it waits.
pub(super) type OutgoingRequest = Box<Request<RequestBody>>;

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
    pub(super) unsent: Option<OutgoingRequest>,
    /// Whether the origin says that it did not process the request.
    pub(super) unprocessed: bool,
    /// Set if bytes of a response came, but no valid ones.
    pub(super) answered: bool,
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
        while let Some(mut connection) = kept.pop() {
            idle.count -= 1;
            if connection.is_free() && connection.watched.order() == WatchOrder::Run {
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
            kept.retain_mut(|connection| !connection.is_over());
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

impl OwnConnection {
    /// Returns whether another request can be sent.
    fn is_free(&mut self) -> bool {
        match &mut self.speaker {
            Http1Speaker::Own { connection, .. } => connection.is_free(),
            Http1Speaker::Library(sender) => sender.is_ready(),
            Http1Speaker::Nobody => false,
        }
    }

    /// Returns whether an unused connection need not be kept any longer.
    fn is_over(&mut self) -> bool {
        match &mut self.speaker {
            // The library's task closes its connection when the deadline has passed. Ours is closed by being dropped.
            Http1Speaker::Own { connection, .. } => self.watched.order() == WatchOrder::Expire || !connection.is_free(),
            Http1Speaker::Library(sender) => sender.is_closed(),
            Http1Speaker::Nobody => true,
        }
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
        match &mut connection.speaker {
            Http1Speaker::Own { connection: own, .. } => {
                if own.is_reusable() {
                    connection.watched.forget_task();
                    origins.pool.put(&origins, origin, connection);
                }
            }
            Http1Speaker::Nobody => {}
            Http1Speaker::Library(sender) if sender.is_closed() => {}
            Http1Speaker::Library(sender) if sender.is_ready() => origins.pool.put(&origins, origin, connection),
            Http1Speaker::Library(_) => {
                // The connection's own task has not yet noticed the end of the response.
                tokio::spawn(async move {
                    let Http1Speaker::Library(sender) = &mut connection.speaker else { return };
                    if sender.ready().await.is_ok() {
                        origins.pool.put(&origins, origin, connection);
                    }
                });
            }
        }
    }

    /// Returns our own connection of HTTP/1.1, if the response comes over one.
    pub(super) fn http1(&mut self) -> Option<&mut Http1Connection> {
        match &mut self.connection {
            PooledConnection::Own(OwnConnection { speaker: Http1Speaker::Own { connection, .. }, .. }) => {
                Some(connection)
            }
            PooledConnection::Own(_) | PooledConnection::Shared(_) => None,
        }
    }

    /// Says that bytes are being waited for: from now on the origin's silence counts.
    pub(crate) fn await_origin(&self, context: &Context<'_>) {
        match &self.connection {
            PooledConnection::Shared(stream) => stream.deadline().remember(context),
            PooledConnection::Own(OwnConnection { speaker: Http1Speaker::Own { .. }, watched, .. }) => {
                watched.remember(context);
            }
            // The library's own task is woken.
            PooledConnection::Own(_) => {}
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
        let broken = |error| Failure::Unusable { host: origin.to_string(), fault: FaultReport::of_http(&error) };
        let connection = connection.map_err(broken)?;
        let stream = connection.open_stream();
        origins.pool.share(origin, connection);
        let refused = || Failure::Broken { host: origin.to_string(), why: "it takes no requests".into() };
        return stream.map(PooledConnection::Shared).ok_or_else(refused);
    }
    let limits = &origins.shared.limits;
    let limits = HeadLimits { bytes_max: limits.header_bytes_max, field_count_max: limits.header_count_max };
    let speaker = Http1Speaker::Own { connection: Box::new(Http1Connection::new(stream, limits)), place };
    Ok(PooledConnection::Own(OwnConnection { room, speaker, watched, requests }))
}

/// Most unused connections a worker keeps, to all origins together.
const IDLE_COUNT_MAX: usize = 4096;
