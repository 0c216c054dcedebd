//! A worker's connections to origins: keeps, reuses and returns them.
//!
//! Owns: the unused connections of HTTP/1.1, last in first out; the shared connections of HTTP/2; and the rules of the
//! one retry. Invariant: a request reaches the origin once. It is sent again, without a body, only if the origin did
//! not process it (RFC 9113 8.7), or if it is safe to repeat and its kept connection died before the response.

use larder_device::IgnorePoison;
use std::{
    sync::{Arc, Mutex},
    task::Context,
};

use bytes::Bytes;
use foldhash::HashMap;
use http::Request;

use crate::{
    ground::{
        errors::Failure,
        fault::FaultReport,
        overload::Shortage,
        target::Origin,
        watch::{WatchOrder, WatchedConnection},
    },
    origins::{
        access::OriginRouter,
        connect::{self, NewLink},
        expectation::ExpectationRefusal,
        group::OriginChoice,
        http1::{Http1Connection, InterimTaker, SwitchedStream},
        proxy_header::ClientEnds,
        request_body::RequestBody,
        room::{OriginRoom, RoomEntry, RoomPlace, RoomTurn},
        shared::{SharedConnection, SharedStream},
        stream::OriginStream,
    },
};

/// The connections of a worker to origins. Each is kept while it can take another request.
#[derive(Default)]
pub(crate) struct ConnectionPool {
    idle: Mutex<IdleConnections>,
}

/// The unused HTTP/1.1 connections by origin, their number, and the shared HTTP/2 connections.
#[derive(Default)]
struct IdleConnections {
    kept: HashMap<Origin, Vec<OwnConnection>>,
    count: usize,
    shared: HashMap<Origin, Vec<SharedConnection>>,
}

/// An HTTP/1.1 connection to an origin, in use or unused.
pub(crate) struct OwnConnection {
    pub(super) room: Arc<OriginRoom<OwnConnection>>,
    pub(super) connection: Box<Http1Connection>,
    pub(super) watched: Arc<WatchedConnection>,
    /// The connection's share of the limit on connections to its origin. Connections for upgrades do not count.
    place: Option<RoomPlace<OwnConnection>>,
}

/// A connection that can take a request now.
pub(super) enum PooledConnection {
    Own(OwnConnection),
    Shared(SharedStream),
}

/// A connection while its response is being read.
///
/// If the lease is dropped before the end of the response, the connection closes, or its stream is reset.
pub(crate) struct Lease {
    pub(super) connection: PooledConnection,
    pub(super) origin: Origin,
    pub(super) origins: Arc<OriginRouter>,
    /// Set if the origin sent its final response without wanting the body that the request announced.
    pub(super) refusal: Option<ExpectationRefusal>,
}

/// A request that can be created again for a retry.
pub(crate) struct ReplayableRequest<'a, M> {
    /// The origin to send the request to.
    pub(crate) origin: Origin,
    /// The further origins that can be tried. `None` if there is only one.
    pub(crate) choice: Option<OriginChoice>,
    /// The cache key of the resource, by which one of several parents is selected.
    pub(crate) key: Option<Arc<[u8]>>,
    pub(crate) repeat: RetryRule,
    /// The client for which the request is made, if there is one.
    pub(crate) client: Option<&'a AskingClient>,
    /// A function that creates the request. Called again only if `repeat` permits a retry.
    pub(crate) make: M,
}

/// Facts about a request's client that its origin and the connection need.
pub(crate) struct AskingClient {
    /// The addresses of the client's connection, if the origin wants a PROXY header.
    pub(crate) ends: Option<ClientEnds>,
    /// A function that receives the interim responses. `None` if the client accepts none.
    pub(crate) interim: Option<InterimTaker>,
}

/// A request that is being sent. Boxed, because otherwise the future of each step would reserve space for it.
pub(super) type OutgoingRequest = Box<Request<RequestBody>>;

/// Whether a request may be sent again after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryRule {
    /// The method is idempotent (RFC 9110 9.2.2) and there is no body, so the request may be repeated.
    Safe,
    /// There is no body, so the request may be repeated if the origin did not process it.
    IfUnprocessed,
    /// The request has a body, which can be sent only once.
    Never,
}

/// Why an attempt to send a request failed, and what is known of its effect.
pub(super) struct SendFailure {
    pub(super) failure: Failure,
    /// The request, to be sent again. `None` if a part of it was sent.
    pub(super) unsent: Option<OutgoingRequest>,
    /// Whether the origin reported that it did not process the request.
    pub(super) unprocessed: bool,
    /// Whether bytes of a response arrived, so that the origin has received the request.
    pub(super) answered: bool,
}

impl ConnectionPool {
    pub(super) fn take(&self, origin: &Origin) -> Option<PooledConnection> {
        if let Some(stream) = self.take_shared(origin) {
            return Some(PooledConnection::Shared(stream));
        }
        let idle = &mut *self.lock();
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

    /// Opens a stream on one of an origin's HTTP/2 connections. `None` if none has room.
    pub(super) fn take_shared(&self, origin: &Origin) -> Option<SharedStream> {
        let idle = &mut *self.lock();
        let shared = idle.shared.get_mut(origin)?;
        shared.retain(SharedConnection::is_open);
        shared.iter().find_map(SharedConnection::open_stream)
    }

    fn put(&self, origins: &OriginRouter, origin: Origin, connection: OwnConnection) {
        let limits = &origins.policy.limits;
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

    /// Removes connections that have closed, and origins that have no connections.
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
        self.idle.lock().ignore_poison()
    }
}

impl OwnConnection {
    /// Creates an HTTP/1.1 connection on which nothing was sent yet.
    pub(super) fn new(
        origins: &OriginRouter,
        room: Arc<OriginRoom<Self>>,
        stream: OriginStream,
        (watched, place): (Arc<WatchedConnection>, Option<RoomPlace<Self>>),
    ) -> Self {
        Self { room, connection: Box::new(Http1Connection::new(stream, origins.shared.heads)), watched, place }
    }

    /// Returns whether the connection can take a request now.
    fn is_free(&mut self) -> bool {
        self.connection.is_free()
    }

    /// Returns whether this unused connection must be closed.
    fn is_over(&mut self) -> bool {
        self.watched.order() == WatchOrder::Expire || !self.is_free()
    }
}

impl Lease {
    /// Returns the connection to the pool. Call it when the response was read to its end.
    pub(crate) fn release(self) {
        let Self { connection, origin, origins, refusal } = self;
        // A PROXY header names one client, so another client's request must not follow it. After a refused body, the
        // origin would take the next request for the body.
        if refusal.is_some() || origin.sends_proxy_header {
            return;
        }
        // A stream of HTTP/2 ends with its response, so only HTTP/1.1 connections are returned.
        let PooledConnection::Own(mut connection) = connection else { return };
        connection.watched.disarm();
        if connection.connection.is_reusable() {
            connection.watched.forget_task();
            origins.pool.put(&origins, origin, connection);
        } else {
            connection.connection.finish_sending(connection.place);
        }
    }

    /// Returns the HTTP/1.1 connection on which the response arrives, or `None` for HTTP/2.
    pub(super) fn http1(&mut self) -> Option<&mut Http1Connection> {
        match &mut self.connection {
            PooledConnection::Own(own) => Some(&mut own.connection),
            PooledConnection::Shared(_) => None,
        }
    }

    /// Starts the origin's deadline, because a reader waits for its bytes.
    pub(crate) fn await_origin(&self, context: &Context<'_>) {
        self.watched().remember(context);
        if !self.watched().is_armed() {
            self.watched().arm(self.origins.policy.limits.origin_response);
        }
    }

    /// Stops the origin's deadline, because no reader waits for its bytes now.
    pub(crate) fn origin_delivered(&self) {
        self.watched().disarm();
    }

    /// Returns whether the origin let its deadline pass.
    pub(crate) fn timed_out(&self) -> bool {
        self.watched().order() == WatchOrder::Expire
    }

    /// Turns the connection into a byte stream after a 101. Returns the stream and its deadline.
    ///
    /// `after` are the octets behind the head of the 101. Returns `None` if the connection cannot switch.
    pub(crate) fn into_switched(self, after: Bytes) -> Option<(SwitchedStream, Arc<WatchedConnection>)> {
        match self.connection {
            PooledConnection::Own(mut own) => {
                own.connection.set_patience(self.origins.policy.limits.stall);
                Some((own.connection.into_switched(after)?, own.watched))
            }
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

/// Opens a connection. If the limit is reached, waits until another request returns or closes its connection.
///
/// Also returns whether the connection was used before. `ends` is the client's connection, for an origin that wants a
/// PROXY header.
pub(super) async fn obtain(
    origins: &Arc<OriginRouter>,
    origin: &Origin,
    ends: Option<ClientEnds>,
) -> Result<(PooledConnection, bool), Failure> {
    let room = origins.shared.rooms.of(origin);
    let limits = &origins.policy.limits;
    let turn = match room.enter(origins.worker, limits.origin_connection_count_max) {
        RoomEntry::Now(place) => RoomTurn::Open(place),
        RoomEntry::Wait(turn) => {
            origins.metrics.origin_waits.add(1);
            origins.shared.complaints.note_full(origin, limits.origin_connection_count_max);
            // The wait is limited like that for a response, because to the client both are a slow origin.
            let waited = tokio::time::timeout(limits.origin_response, turn).await;
            waited.ok().and_then(Result::ok).ok_or(Failure::Overloaded(Shortage::Origin))?
        }
        RoomEntry::Full => return Err(Failure::Overloaded(Shortage::Origin)),
    };
    match turn {
        RoomTurn::Open(place) => Ok((connect(origins, origin, ends, (room, place)).await?, false)),
        RoomTurn::Kept(own) => {
            own.watched.disarm();
            Ok((PooledConnection::Own(own), true))
        }
    }
}

async fn connect(
    origins: &Arc<OriginRouter>,
    origin: &Origin,
    ends: Option<ClientEnds>,
    (room, place): (Arc<OriginRoom<OwnConnection>>, RoomPlace<OwnConnection>),
) -> Result<PooledConnection, Failure> {
    let opened = connect::connect(origins, origin, origins.shared.http2, ends).await?;
    let NewLink { stream, watched, http2 } = opened;
    if http2 {
        let connection = SharedConnection::start(origins, stream, watched, place).await;
        let broken = |error| Failure::Unusable { host: origin.to_string(), fault: FaultReport::of_http2(&error) };
        let connection = connection.map_err(broken)?;
        let stream = connection.open_stream();
        if origin.sends_proxy_header {
            connection.retire();
        } else {
            origins.pool.share(origin, connection);
        }
        let refused = || Failure::Broken { host: origin.to_string(), why: "it accepts no requests".into() };
        return stream.map(PooledConnection::Shared).ok_or_else(refused);
    }
    Ok(PooledConnection::Own(OwnConnection::new(origins, room, stream, (watched, Some(place)))))
}

/// Maximum number of unused connections that a worker keeps, over all origins.
const IDLE_COUNT_MAX: usize = 4096;
