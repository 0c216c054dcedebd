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
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use http::{Request, Response};
use hyper::{
    body::Incoming,
    server::conn::http1::{self, UpgradeableConnection},
    service::Service,
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::{
    client::{
        interim::Interim, raw_head::Fault, raw_requests::RawRequests, response_body::ResponseBody, stream::ClientStream,
    },
    exchange,
    watch::{Order, Watched},
    worker::Worker,
};

/// A client connection, as its requests see it.
pub(crate) struct Client {
    pub(crate) worker: Arc<Worker>,
    pub(crate) peer: SocketAddr,
    /// Whether the client's address is outside the networks that are served.
    pub(crate) denied: bool,
    phase: AtomicU8,
    raw: Mutex<RawRequests>,
    watched: Watched,
    /// What goes out before the final response.
    pub(crate) interim: Interim,
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

/// Serves an accepted connection until it ends.
pub(crate) async fn serve(worker: Arc<Worker>, socket: TcpStream, peer: SocketAddr) {
    let config = &worker.shared.config;
    let canonical = peer.ip().to_canonical();
    let denied = !config.clients.is_empty() && !config.clients.iter().any(|network| network.contains(&canonical));
    let watched = worker.watches.register();
    watched.arm(config.limits.idle);
    let phase = AtomicU8::new(Phase::Idle as u8);
    let client = Arc::new(Client {
        worker: Arc::clone(&worker),
        peer,
        denied,
        phase,
        raw: Mutex::default(),
        watched,
        interim: Interim::default(),
    });
    let stream = TokioIo::new(ClientStream::new(socket, Arc::clone(&client)));
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_headers(config.limits.header_count_max)
        .max_header_size(config.limits.header_bytes_max)
        .max_buf_size(config.limits.header_bytes_max)
        .serve_connection(stream, Answering(Arc::clone(&client)))
        .with_upgrades();
    Serving { connection, client, started: false, draining: false }.await;
}

impl Client {
    /// A request's head is there; tells what is wrong with it, if anything is.
    pub(crate) fn begin(&self) -> Option<Fault> {
        self.phase.store(Phase::Busy as u8, Relaxed);
        self.watched.arm(self.worker.shared.config.limits.stall);
        self.raw().take()
    }

    /// The response has been handed over to the end.
    pub(crate) fn end(&self) {
        self.phase.store(Phase::Idle as u8, Relaxed);
        self.watched.arm(self.worker.shared.config.limits.idle);
    }

    /// Bytes came in; tells how many of them may go on, see [`RawRequests::push`].
    pub(crate) fn note_received(&self, bytes: &[u8]) -> usize {
        let limits = &self.worker.shared.config.limits;
        let phase = self.phase.load(Relaxed);
        if phase == Phase::Idle as u8 {
            self.phase.store(Phase::Head as u8, Relaxed);
            self.watched.arm(limits.header);
        } else if phase == Phase::Busy as u8 {
            self.watched.arm(limits.stall);
        }
        self.raw().push(bytes, limits.header_bytes_max)
    }

    /// What is wrong with the body of the request that is being answered, if anything is.
    pub(crate) fn body_fault(&self) -> Option<Fault> {
        self.raw().body_fault()
    }

    /// What comes from now on is no longer requests.
    pub(crate) fn note_opaque(&self) {
        self.raw().stop();
    }

    /// Bytes went out.
    pub(crate) fn note_sent(&self) {
        if self.phase.load(Relaxed) == Phase::Busy as u8 {
            self.watched.arm(self.worker.shared.config.limits.stall);
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

/// What the HTTP library calls for each request.
struct Answering(Arc<Client>);

impl Service<Request<Incoming>> for Answering {
    type Response = Response<ResponseBody>;
    type Error = std::convert::Infallible;
    type Future = Answer;

    fn call(&self, request: Request<Incoming>) -> Answer {
        match self.0.begin() {
            None => exchange::answer(&self.0, request),
            Some(fault) => exchange::refuse(&self.0, &request, fault),
        }
    }
}

/// An answer that is there already, or one that takes its time.
pub(crate) enum Answer {
    /// There; taken at the first poll.
    Ready(Option<Response<ResponseBody>>),
    /// Being worked on.
    Later(Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>),
}

impl Future for Answer {
    type Output = Result<Response<ResponseBody>, std::convert::Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Ready(response) => response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response))),
            Self::Later(future) => future.as_mut().poll(context).map(Ok),
        }
    }
}

/// The connection's task.
struct Serving {
    connection: UpgradeableConnection<TokioIo<ClientStream>, Answering>,
    client: Arc<Client>,
    started: bool,
    draining: bool,
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
            Order::Expire => return Poll::Ready(()),
            Order::Drain if self.draining => {}
            Order::Drain => {
                self.draining = true;
                Pin::new(&mut self.connection).graceful_shutdown();
            }
        }
        Pin::new(&mut self.connection).poll(context).map(|ended| {
            if let Err(error) = ended {
                tracing::debug!(%error, peer = %self.client.peer, "client connection ended");
            }
        })
    }
}
