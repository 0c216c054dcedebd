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
    errors::Failure,
    origin::{
        connect::{self, NewLink},
        expectation::ExpectationRefusal,
        fault::FaultReport,
        group::OriginChoice,
        http1::{Http1Connection, InterimTaker, SwitchedStream},
        origins::OriginRouter,
        proxy_header::ClientEnds,
        request_body::RequestBody,
        room::{OriginRoom, RoomEntry, RoomPlace, RoomTurn},
        shared::{SharedConnection, SharedStream},
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

/// Unused HTTP/1.1 connections by origin, their number, and the shared HTTP/2 connections.
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
    /// The connection's place in the origin's limit. A connection for an upgrade has none.
    place: Option<RoomPlace<OwnConnection>>,
}

/// A connection on which a request can be sent.
pub(super) enum PooledConnection {
    Own(OwnConnection),
    Shared(SharedStream),
}

/// A connection whose response is being read. If the lease is dropped before the end, the connection closes, or the
/// stream is reset.
pub(crate) struct Lease {
    pub(super) connection: PooledConnection,
    pub(super) origin: Origin,
    pub(super) origins: Arc<OriginRouter>,
    /// Set if the origin responded without reading the body that its request announced.
    pub(super) refusal: Option<ExpectationRefusal>,
}

/// A request that can be created again for a retry.
pub(crate) struct ReplayableRequest<M> {
    /// The request's destination.
    pub(crate) origin: Origin,
    /// The choice of another origin, if there are several.
    pub(crate) choice: Option<OriginChoice>,
    /// The key of the resource, which selects one of several parents.
    pub(crate) key: Option<Arc<[u8]>>,
    pub(crate) repeat: RetryRule,
    pub(crate) client: Option<Box<AskingClient>>,
    /// Creates the request. Called again only if `repeat` allows it.
    pub(crate) make: M,
}

/// The client of a request, as far as an origin and its connection must know it. Boxed, because otherwise the future of
/// each fetch would reserve space for it.
pub(crate) struct AskingClient {
    /// The ends of the client's connection, if the origin wants to know them.
    pub(crate) ends: Option<ClientEnds>,
    /// The recipient of interim responses.
    pub(crate) interim: Option<InterimTaker>,
}

/// A request being sent. Boxed, because otherwise the future of each step would reserve space for it.
pub(super) type OutgoingRequest = Box<Request<RequestBody>>;

/// When a request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryRule {
    /// The request may be repeated: its method is idempotent (RFC 9110 9.2.2) and it has no body.
    Safe,
    /// The request has no body, so it may be repeated if the origin did not process it.
    IfUnprocessed,
    /// The request has a body, which can be sent only once.
    Never,
}

/// Why an attempt failed.
pub(super) struct SendFailure {
    pub(super) failure: Failure,
    /// The request, if none of it was sent.
    pub(super) unsent: Option<OutgoingRequest>,
    /// Whether the origin reported that it did not process the request.
    pub(super) unprocessed: bool,
    /// Whether bytes of an invalid response arrived.
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

    /// Returns a stream of a connection of HTTP/2.
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
        self.idle.lock().ignore_poison()
    }
}

impl OwnConnection {
    /// Returns a connection on which nothing was sent yet.
    pub(super) fn new(
        origins: &OriginRouter,
        room: Arc<OriginRoom<Self>>,
        stream: OriginStream,
        (watched, place): (Arc<WatchedConnection>, Option<RoomPlace<Self>>),
    ) -> Self {
        Self { room, connection: Box::new(Http1Connection::new(stream, origins.shared.heads)), watched, place }
    }

    /// Returns whether another request can be sent.
    fn is_free(&mut self) -> bool {
        self.connection.is_free()
    }

    /// Returns whether an unused connection can be dropped.
    fn is_over(&mut self) -> bool {
        self.watched.order() == WatchOrder::Expire || !self.is_free()
    }
}

impl Lease {
    /// Returns the connection to the pool after its response has been read to the end.
    pub(crate) fn release(self) {
        let Self { connection, origin, origins, refusal } = self;
        // The PROXY header of a connection names one client. Another client's request must not follow it.
        if refusal.is_some() || origin.sends_proxy_header {
            return;
        }
        // A stream ends with its response, so only HTTP/1.1 connections are returned.
        let PooledConnection::Own(mut connection) = connection else { return };
        connection.watched.disarm();
        if connection.connection.is_reusable() {
            connection.watched.forget_task();
            origins.pool.put(&origins, origin, connection);
        } else {
            connection.connection.finish_sending(connection.place);
        }
    }

    /// Returns the HTTP/1.1 connection, if the response arrives on one.
    pub(super) fn http1(&mut self) -> Option<&mut Http1Connection> {
        match &mut self.connection {
            PooledConnection::Own(own) => Some(&mut own.connection),
            PooledConnection::Shared(_) => None,
        }
    }

    /// Starts the origin's deadline, because its bytes are being waited for.
    pub(crate) fn await_origin(&self, context: &Context<'_>) {
        self.watched().remember(context);
        if !self.watched().is_armed() {
            self.watched().arm(self.origins.policy.limits.origin_response);
        }
    }

    /// Stops the origin's deadline, because nothing is expected from it at the moment.
    pub(crate) fn origin_delivered(&self) {
        self.watched().disarm();
    }

    /// Returns whether the origin was silent for too long.
    pub(crate) fn timed_out(&self) -> bool {
        self.watched().order() == WatchOrder::Expire
    }

    /// Returns a connection that no longer carries HTTP, and its deadline, which is now a tunnel's. `after` are the
    /// octets that arrived after the head of the 101.
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

/// Opens a connection, or waits for one that another request returns if the limit is reached. Returns whether the
/// connection is reused. `ends`: the client, for an origin that wants to know it.
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
            // The time limit of a slow origin, because a waiting client sees no difference.
            let waited = tokio::time::timeout(limits.origin_response, turn).await;
            waited.ok().and_then(Result::ok).ok_or(Failure::Overloaded)?
        }
        RoomEntry::Full => return Err(Failure::Overloaded),
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

/// Most unused connections that a worker keeps, over all origins.
const IDLE_COUNT_MAX: usize = 4096;
