//! One client connection: its phases, its deadlines, and the HTTP library that serves it.
//!
//! Owns: what is known about the connection. Does not: answer requests, see `exchange`. Invariant: a
//! connection is always in a phase with a deadline, except while it waits for an origin, which has
//! deadlines of its own. Cost: no timers and no allocation per request; whole hits are answered
//! within the call, without a future of their own.

use std::{
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use hyper::{
    body::Incoming,
    server::conn::{
        http1::{self, UpgradeableConnection},
        http2::Connection,
    },
    service::Service,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::{
    client::{
        floods::{Arrived, Floods},
        flushed::Flushed,
        http2,
        interim::Interim,
        opening::{self, Opened, Protocol, Socket},
        raw_head::Fault,
        raw_requests::RawRequests,
        response_body::ResponseBody,
        stream::ClientStream,
    },
    config::Listener,
    exchange,
    routes::host_of,
    watch::{Order, Watched, Watching},
    worker::Worker,
};

/// A client connection, as its requests see it.
pub(crate) struct Client {
    pub(crate) worker: Arc<Worker>,
    pub(crate) peer: SocketAddr,
    /// Whether the client's address is outside the networks that are served.
    pub(crate) denied: bool,
    /// Whether the connection is TLS.
    pub(crate) secure: bool,
    /// The name it asked for, if it is.
    server_name: Option<Box<str>>,
    protocol: Protocol,
    phase: AtomicU8,
    /// Requests that are being answered; over HTTP/1.1 one at most.
    exchange_count: AtomicU32,
    abandoned: Abandoned,
    raw: Mutex<RawRequests>,
    /// What is noted of HTTP/2.
    floods: Option<Box<Floods>>,
    /// Whether a request's head over HTTP/2 is arriving: its deadline is nothing else's to put off.
    in_head: AtomicBool,
    /// Why nothing more is read, once that is so: looked at before every read.
    fatal_fault: OnceLock<Fault>,
    watched: Watched,
    /// What goes out before the final response.
    pub(crate) interim: Interim,
    /// How often all that was written has gone out.
    pub(crate) flushed: Flushed,
}

/// What a connection is doing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waiting for a request.
    Idle,
    /// A request's head is arriving.
    Head,
    /// A request is being answered.
    Busy,
}

/// How many requests a client gave up of late. Opening streams and resetting them at once costs a client nothing and us
/// a request each ("rapid reset").
#[derive(Default)]
struct Abandoned {
    since_tick: AtomicU32,
    count: AtomicU32,
}

/// Serves an accepted connection until it ends.
pub(crate) async fn serve(worker: &Arc<Worker>, socket: TcpStream, peer: SocketAddr, listener: &Listener) {
    let config = &worker.shared.config;
    let watched = worker.watches.register();
    // A handshake is due at once; the first request has time.
    watched.arm(if listener.tls || !listener.proxied_by.is_empty() {
        config.limits.header
    } else {
        config.limits.idle
    });
    let opening = opening::open(worker, listener, (socket, peer));
    let Opened { peer, socket, first, protocol } =
        match Watching::new(opening, &watched, &[Order::Drain, Order::Expire]).await {
            Some(Ok(Some(opened))) => opened,
            Some(Err(error)) => return tracing::debug!(%error, %peer, "client connection was not opened"),
            Some(Ok(None)) | None => return,
        };
    watched.arm(config.limits.idle);
    let canonical = peer.ip().to_canonical();
    let denied = !config.clients.is_empty() && !config.clients.iter().any(|network| network.contains(&canonical));
    let client = Arc::new(Client {
        worker: Arc::clone(worker),
        peer,
        denied,
        secure: matches!(socket, Socket::Tls(_)),
        server_name: socket.server_name().map(Into::into),
        protocol,
        phase: AtomicU8::new(Phase::Idle as u8),
        exchange_count: AtomicU32::new(0),
        abandoned: Abandoned::default(),
        raw: Mutex::default(),
        floods: (protocol == Protocol::Http2).then(Box::default),
        in_head: AtomicBool::new(false),
        fatal_fault: OnceLock::new(),
        watched,
        interim: Interim::default(),
        flushed: Flushed::default(),
    });
    let stream = TokioIo::new(ClientStream::new(socket, first, Arc::clone(&client)));
    let connection = match protocol {
        Protocol::Http1 => {
            let connection = http1::Builder::new()
                .header_read_timeout(None)
                .max_headers(config.limits.header_count_max)
                .max_header_size(config.limits.header_bytes_max)
                .max_buf_size(config.limits.header_bytes_max)
                .serve_connection(stream, Answering(Arc::clone(&client)))
                .with_upgrades();
            Connected::Http1(connection)
        }
        Protocol::Http2 => {
            let connection = http2::builder(&config.limits).serve_connection(stream, Answering(Arc::clone(&client)));
            Connected::Http2(Box::new(connection))
        }
    };
    Serving { connection, client, started: false, draining: false }.await;
}

impl Client {
    /// A request's head is there; tells what is wrong with it, if anything is.
    pub(crate) fn begin(&self) -> Option<Fault> {
        self.exchange_count.fetch_add(1, Relaxed);
        self.phase.store(Phase::Busy as u8, Relaxed);
        self.arm(self.worker.shared.config.limits.stall);
        match &self.floods {
            Some(floods) => {
                floods.note_begun();
                None
            }
            None => self.raw().take(),
        }
    }

    /// A response has been handed over to the end, or its client gave it up.
    pub(crate) fn end(&self, abandoned: bool) {
        let limits = &self.worker.shared.config.limits;
        if self.exchange_count.fetch_sub(1, Relaxed) == 1 {
            self.phase.store(Phase::Idle as u8, Relaxed);
            self.arm(limits.idle);
        }
        if abandoned && self.is_http2() && self.abandoned.count(self.worker.watches.tick()) > limits.abandoned_count_max
        {
            tracing::debug!(peer = %self.peer, "client gave up too many requests, closing its connection");
            self.watched.expire();
        }
    }

    /// Whether a request to this authority, as one of ours, belongs on a connection for another (RFC 9110 7.4).
    pub(crate) fn is_misdirected(&self, authority: &str) -> bool {
        let Some((name, certificates)) = self.server_name.as_ref().zip(self.worker.shared.certificates.as_ref()) else {
            return false;
        };
        !certificates.speak_for(name, host_of(authority))
    }

    /// Whether several requests may be answered at once.
    pub(crate) fn is_http2(&self) -> bool {
        self.protocol == Protocol::Http2
    }

    /// What a client means that connects here and names no scheme.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }

    /// Bytes came in; tells how many of them may go on, see [`RawRequests::push`].
    pub(crate) fn note_received(&self, bytes: &mut [u8]) -> usize {
        let limits = &self.worker.shared.config.limits;
        if let Some(floods) = &self.floods {
            return self.note_frames(floods.push(bytes, self.worker.watches.tick(), limits), bytes.len());
        }
        let phase = self.phase.load(Relaxed);
        if phase == Phase::Busy as u8 {
            self.watched.arm(limits.stall);
        } else if phase == Phase::Idle as u8 {
            self.phase.store(Phase::Head as u8, Relaxed);
            self.watched.arm(limits.header);
        }
        let mut raw = self.raw();
        let accepted = raw.push(bytes, limits.header_bytes_max);
        if let Some(fault) = raw.fatal_fault().filter(|_| accepted < bytes.len()) {
            self.fatal_fault.get_or_init(|| fault);
        }
        accepted
    }

    /// Frames of HTTP/2 came in; tells how many of their bytes may go on. Those that are no request keep no connection open.
    fn note_frames(&self, Arrived { in_head, flood }: Arrived, count: usize) -> usize {
        let limits = &self.worker.shared.config.limits;
        let is_busy = self.phase.load(Relaxed) == Phase::Busy as u8;
        match (self.in_head.swap(in_head, Relaxed), in_head) {
            (false, true) => self.watched.arm(limits.header),
            (true, true) => {}
            (_, false) if is_busy => self.watched.arm(limits.stall),
            (true, false) => self.watched.arm(limits.idle),
            (false, false) => {}
        }
        let Some(flood) = flood else { return count };
        tracing::debug!(peer = %self.peer, flood, "closing a client's connection");
        self.fatal_fault.get_or_init(|| flood);
        0
    }

    /// Why nothing more is read, if that is so: something is wrong with the body of the request that is being answered, or
    /// the connection began with no request, or floods us.
    pub(crate) fn fatal_fault(&self) -> Option<Fault> {
        self.fatal_fault.get().copied()
    }

    /// Whether the request that is being answered, over HTTP/1.1, asks about a server as a whole (RFC 9112 3.2.4).
    pub(crate) fn asks_server(&self) -> bool {
        self.raw().asks_server()
    }

    /// What comes from now on is no longer requests.
    pub(crate) fn note_opaque(&self) {
        self.raw().stop();
    }

    /// Bytes went out.
    pub(crate) fn note_sent(&self, bytes: usize) {
        if let Some(floods) = &self.floods {
            floods.note_sent(bytes);
        }
        if self.phase.load(Relaxed) == Phase::Busy as u8 {
            self.arm(self.worker.shared.config.limits.stall);
        }
    }

    /// Puts the deadline off.
    fn arm(&self, after: Duration) {
        if !self.in_head.load(Relaxed) {
            self.watched.arm(after);
        }
    }

    /// Has the connection's task look for what there is to write.
    pub(crate) fn wake(&self) {
        self.watched.wake();
    }

    fn raw(&self) -> MutexGuard<'_, RawRequests> {
        self.raw.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Abandoned {
    /// Counts one more; gives back how many they are in this stretch of time.
    fn count(&self, tick: u32) -> u32 {
        if tick.saturating_sub(self.since_tick.load(Relaxed)) >= ABANDONED_TICKS {
            self.since_tick.store(tick, Relaxed);
            self.count.store(0, Relaxed);
        }
        self.count.fetch_add(1, Relaxed) + 1
    }
}

/// What the HTTP library calls for each request.
struct Answering(Arc<Client>);

impl Service<Request<Incoming>> for Answering {
    type Response = Response<ResponseBody>;
    type Error = h2::Error;
    type Future = Answer;

    fn call(&self, request: Request<Incoming>) -> Answer {
        let fault = self.0.begin();
        if self.0.is_http2() && http2::is_malformed(&request) {
            self.0.end(true);
            return Answer::Reset;
        }
        match fault {
            None => exchange::answer(&self.0, request),
            Some(fault) => exchange::refuse(&self.0, &request, fault),
        }
    }
}

/// An answer that is there already, or one that takes its time.
pub(crate) enum Answer {
    /// There; taken at the first poll.
    Ready(Option<Response<ResponseBody>>),
    /// None: the stream is reset, for its request is malformed (RFC 9113 8.1.1).
    Reset,
    /// Being worked on.
    Later(Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>),
}

impl Future for Answer {
    type Output = Result<Response<ResponseBody>, h2::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Ready(response) => response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response))),
            Self::Reset => Poll::Ready(Err(h2::Reason::PROTOCOL_ERROR.into())),
            Self::Later(future) => future.as_mut().poll(context).map(Ok),
        }
    }
}

/// The connection's task.
struct Serving {
    connection: Connected,
    client: Arc<Client>,
    started: bool,
    draining: bool,
}

/// The HTTP library's connection.
#[expect(clippy::large_enum_variant, reason = "it lives in its task, and the larger one is the usual one")]
enum Connected {
    Http1(UpgradeableConnection<TokioIo<ClientStream>, Answering>),
    Http2(Box<Connection<TokioIo<ClientStream>, Answering, TokioExecutor>>),
}

impl Future for Serving {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if !self.started {
            self.started = true;
            self.client.watched.remember(context);
        }
        match self.client.watched.order() {
            Order::Run => {}
            Order::Expire if !self.is_idle_http2() || self.draining => return Poll::Ready(()),
            Order::Expire => {
                // Said before it is done, so that no request is lost on its way (RFC 9113 9.1).
                self.client.watched.pardon();
                self.client.watched.arm(GOODBYE);
                self.drain();
            }
            Order::Drain if self.draining => {}
            Order::Drain => self.drain(),
        }
        let ended = match &mut self.connection {
            Connected::Http1(connection) => Pin::new(connection).poll(context),
            Connected::Http2(connection) => Pin::new(connection).poll(context),
        };
        ended.map(|ended| {
            if let Err(error) = ended {
                tracing::debug!(%error, peer = %self.client.peer, "client connection ended");
            }
        })
    }
}

impl Serving {
    fn drain(&mut self) {
        self.draining = true;
        match &mut self.connection {
            Connected::Http1(connection) => Pin::new(connection).graceful_shutdown(),
            Connected::Http2(connection) => Pin::new(&mut **connection).graceful_shutdown(),
        }
    }

    fn is_idle_http2(&self) -> bool {
        let client = &self.client;
        client.is_http2() && client.exchange_count.load(Relaxed) == 0 && !client.in_head.load(Relaxed)
    }
}

/// How long a client of HTTP/2 has to close a connection that was idle too long.
const GOODBYE: Duration = Duration::from_secs(2);
/// Seconds over which a client's abandoned requests are counted together.
const ABANDONED_TICKS: u32 = 10;
