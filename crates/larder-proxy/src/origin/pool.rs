//! A worker's connections to origins: opening, keeping, reusing, giving back.
//!
//! Owns: the unused connections, last in first out, and the rules of one retry. Does not: know what is
//! fetched. Invariant: a request reaches the origin once; it is sent again only if it is safe to
//! repeat, had no body, and went to a kept connection that died before any byte of the answer.
//! Cost: a kept connection costs one map lookup; there are no timers, see `watch`.

use std::{
    collections::HashMap,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::{
    config::TargetRules,
    errors::Failure,
    origin::{
        request_body::RequestBody,
        stream::{OriginStream, Transport},
        target::Origin,
    },
    watch::{Order, Watched},
    worker::Worker,
};

/// A worker's unused connections.
#[derive(Default)]
pub(crate) struct Pool {
    idle: Mutex<Idle>,
}

/// Unused connections by origin, and how many they are.
#[derive(Default)]
struct Idle {
    kept: HashMap<Origin, Vec<Connection>>,
    count: usize,
}

/// One connection to an origin, in use or kept.
struct Connection {
    sender: SendRequest<RequestBody>,
    watched: Arc<Watched>,
}

/// A connection whose response is being read. Dropped early, the connection closes.
pub(crate) struct Lease {
    connection: Connection,
    origin: Origin,
    worker: Arc<Worker>,
}

/// A request that can be made again, should it have to be.
pub(crate) struct Outgoing<M> {
    /// Where to.
    pub(crate) origin: Origin,
    /// Whether the request may be repeated: its method is idempotent (RFC 9110 9.2.2) and it has no body.
    pub(crate) repeatable: bool,
    /// Makes it. Called again only if `repeatable`, or if the first was never sent.
    pub(crate) make: M,
}

/// Sends a request and waits for the head of its response.
pub(crate) async fn send<M>(
    worker: &Arc<Worker>,
    mut outgoing: Outgoing<M>,
) -> Result<(Response<Incoming>, Lease), Failure>
where
    M: FnMut() -> Request<RequestBody> + Send,
{
    let mut request = (outgoing.make)();
    while let Some(connection) = worker.pool.take(&outgoing.origin) {
        let (error, unsent) = match attempt(worker, &outgoing.origin, connection, request).await {
            Ok(answered) => return Ok(answered),
            Err(failed) => failed,
        };
        request = match unsent {
            Some(request) => request,
            None if outgoing.repeatable && !matches!(error, Failure::Timeout { .. }) => {
                let fresh = connect(worker, &outgoing.origin).await?;
                let last = attempt(worker, &outgoing.origin, fresh, (outgoing.make)()).await;
                return last.map_err(|(error, _)| error);
            }
            None => return Err(error),
        };
    }
    let fresh = connect(worker, &outgoing.origin).await?;
    attempt(worker, &outgoing.origin, fresh, request).await.map_err(|(error, _)| error)
}

/// Opens a connection to one of the origin's addresses that the rules allow.
pub(crate) async fn open(worker: &Arc<Worker>, origin: &Origin) -> Result<TcpStream, Failure> {
    let limit = worker.shared.config.limits.origin_connect;
    let connecting = async {
        let mut addresses = worker.dns.resolve(origin).await?;
        if !origin.trusted {
            keep_allowed(&worker.shared.config.targets, origin, &mut addresses)?;
        }
        connect_first(worker, origin, &addresses).await
    };
    match tokio::time::timeout(limit, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(Failure::Timeout { host: origin.to_string() }),
    }
}

impl Pool {
    fn take(&self, origin: &Origin) -> Option<Connection> {
        let idle = &mut *self.lock();
        let kept = idle.kept.get_mut(origin)?;
        while let Some(connection) = kept.pop() {
            idle.count -= 1;
            if connection.sender.is_ready() && connection.watched.order() == Order::Run {
                connection.watched.disarm();
                return Some(connection);
            }
        }
        idle.kept.remove(origin);
        None
    }

    fn put(&self, worker: &Worker, origin: Origin, connection: Connection) {
        let limits = &worker.shared.config.limits;
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

    /// Drops connections that closed meanwhile, and origins without any.
    pub(crate) fn sweep(&self) {
        let idle = &mut *self.lock();
        idle.kept.retain(|_, kept| {
            kept.retain(|connection| !connection.sender.is_closed());
            !kept.is_empty()
        });
        idle.count = idle.kept.values().map(Vec::len).sum();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// Says that the response has been read to its end: the connection is kept for the next request.
    pub(crate) fn release(self) {
        let Self { mut connection, origin, worker } = self;
        connection.watched.disarm();
        if connection.sender.is_closed() {
        } else if connection.sender.is_ready() {
            worker.pool.put(&worker, origin, connection);
        } else {
            // The connection's own task has not yet noticed the end of the response.
            tokio::spawn(async move {
                if connection.sender.ready().await.is_ok() {
                    worker.pool.put(&worker, origin, connection);
                }
            });
        }
    }

    /// Says that bytes are being waited for: from now on the origin's silence counts.
    pub(crate) fn await_origin(&self) {
        if !self.connection.watched.is_armed() {
            self.connection.watched.arm(self.worker.shared.config.limits.origin_response);
        }
    }

    /// Says that the origin owes nothing at the moment.
    pub(crate) fn origin_delivered(&self) {
        self.connection.watched.disarm();
    }

    /// Whether the connection was closed for the origin's silence.
    pub(crate) fn timed_out(&self) -> bool {
        self.connection.watched.order() == Order::Expire
    }
}

type Attempt = Result<(Response<Incoming>, Lease), (Failure, Option<Request<RequestBody>>)>;

async fn attempt(
    worker: &Arc<Worker>,
    origin: &Origin,
    mut connection: Connection,
    request: Request<RequestBody>,
) -> Attempt {
    connection.watched.arm(worker.shared.config.limits.origin_response);
    match connection.sender.try_send_request(request).await {
        Ok(response) => {
            connection.watched.disarm();
            Ok((response, Lease { connection, origin: origin.clone(), worker: Arc::clone(worker) }))
        }
        Err(mut failed) => {
            let unsent = failed.take_message();
            let failure = if connection.watched.order() == Order::Expire {
                Failure::Timeout { host: origin.to_string() }
            } else if is_of_client(failed.error()) {
                Failure::BadRequest("its body broke off")
            } else {
                Failure::Broken { host: origin.to_string(), why: failed.into_error().to_string() }
            };
            Err((failure, unsent))
        }
    }
}

/// Whether an exchange with an origin failed because the client's own body did.
fn is_of_client(error: &hyper::Error) -> bool {
    error.is_user() && std::error::Error::source(error).is_some_and(|cause| cause.is::<hyper::Error>())
}

async fn connect(worker: &Arc<Worker>, origin: &Origin) -> Result<Connection, Failure> {
    let broken = |why: String| Failure::Connect { host: origin.to_string(), why };
    let stream = open(worker, origin).await?;
    let limits = &worker.shared.config.limits;
    let transport = if origin.https {
        let extra_ca = worker.shared.config.origin_ca_file.as_deref();
        let handshake = worker.shared.tls.connect(stream, &origin.host, extra_ca);
        match tokio::time::timeout(limits.origin_connect, handshake).await {
            Ok(Ok(stream)) => Transport::Tls(Box::new(stream)),
            Ok(Err(error)) => return Err(broken(format!("TLS: {error}"))),
            Err(_) => return Err(Failure::Timeout { host: origin.to_string() }),
        }
    } else {
        Transport::Plain(stream)
    };
    let watched = Arc::new(worker.watches.register());
    let stream = OriginStream::new(transport, Arc::clone(&watched), limits.origin_response);
    let handshake = http1::Builder::new()
        .max_headers(limits.header_count_max)
        .max_header_size(limits.header_bytes_max)
        .max_buf_size(ORIGIN_BUFFER_BYTES_MAX.max(limits.header_bytes_max))
        .handshake(TokioIo::new(stream));
    let (sender, connection) = handshake.await.map_err(|error| broken(error.to_string()))?;
    worker.metrics.origin_connections.add(1);
    tokio::spawn(Driven { connection, watched: Arc::clone(&watched), started: false });
    Ok(Connection { sender, watched })
}

/// Keeps the addresses that the rules allow; none left is a refusal.
fn keep_allowed(rules: &TargetRules, origin: &Origin, addresses: &mut Vec<SocketAddr>) -> Result<(), Failure> {
    let mut refused = None;
    addresses.retain(|address| match rules.check(address.ip()) {
        Ok(()) => true,
        Err(why) => {
            refused.get_or_insert((address.ip(), why));
            false
        }
    });
    match refused {
        Some((address, why)) if addresses.is_empty() => {
            Err(Failure::TargetDenied { host: origin.host.to_string(), address, why })
        }
        _ => Ok(()),
    }
}

async fn connect_first(worker: &Worker, origin: &Origin, addresses: &[SocketAddr]) -> Result<TcpStream, Failure> {
    let mut why = String::from("it has no address");
    for address in addresses {
        match tokio::time::timeout(ADDRESS_PATIENCE, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                if leads_to_us(worker, &stream) {
                    return Err(Failure::Loop);
                }
                // Small requests are to leave at once; a socket that refuses the option still works.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => why = format!("{error} ({address})"),
            Err(_) => why = format!("no answer within {} s ({address})", ADDRESS_PATIENCE.as_secs()),
        }
    }
    Err(Failure::Connect { host: origin.to_string(), why })
}

/// Whether a connection ends at one of our own listeners: both its ends are on this machine, and the
/// far one is an address we listen on. Checked on the connection itself, so no name or address
/// notation slips past.
fn leads_to_us(worker: &Worker, stream: &TcpStream) -> bool {
    let (Ok(local), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else { return true };
    worker.shared.own_addresses().iter().any(|own| {
        own.port() == peer.port()
            && local.ip().to_canonical() == peer.ip().to_canonical()
            && (own.ip().is_unspecified() || own.ip().to_canonical() == peer.ip().to_canonical())
    })
}

/// The connection's own task: drives it, and closes it when its deadline has passed.
struct Driven {
    connection: http1::Connection<TokioIo<OriginStream>, RequestBody>,
    watched: Arc<Watched>,
    started: bool,
}

impl Future for Driven {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if !self.started {
            self.started = true;
            self.watched.remember(context);
        }
        if self.watched.order() == Order::Expire {
            return Poll::Ready(());
        }
        // The request's own future reports what went wrong.
        Pin::new(&mut self.connection).poll(context).map(|_| ())
    }
}

/// Read buffer per connection; larger pieces make long bodies cheaper, and cost memory per fetch.
const ORIGIN_BUFFER_BYTES_MAX: usize = 256 << 10;
/// Most unused connections a worker keeps, to all origins together.
const IDLE_COUNT_MAX: usize = 4096;
/// How long one of several addresses is waited for.
const ADDRESS_PATIENCE: std::time::Duration = std::time::Duration::from_secs(4);
