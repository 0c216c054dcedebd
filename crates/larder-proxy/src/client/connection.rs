//! One client connection's task, and the HTTP library that serves it.
//!
//! Owns: the order in which it is opened, drained and closed. Does not: keep what is known of the client (see `peer`) or answer
//! requests (see `exchange`). Cost: no timers and no allocation per request; whole hits are answered within the call, without a
//! future of their own.

use std::{
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
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
        answer::Answer,
        flushed::Flushed,
        http2,
        interim::Interim,
        opening::{self, Opened},
        peer::{Abandoned, Client, Phase},
        response_body::ResponseBody,
        socket::{Inside, Protocol, Socket},
        stream::ClientStream,
    },
    config::Listener,
    origin::target::Origin,
    request::exchange,
    session::SessionState,
    watch::{Order, Watched, Watching},
    worker::Worker,
};

/// A listener, and whose it is if not everybody's.
pub(crate) struct Door {
    pub(crate) listener: Listener,
    pub(crate) session: Option<Arc<SessionState>>,
}

/// Serves an accepted connection until it ends.
pub(crate) async fn serve(worker: &Arc<Worker>, socket: TcpStream, peer: SocketAddr, door: &Door) {
    let listener = &door.listener;
    let config = &worker.shared.config;
    let is_fresh = worker.watches.says_goodbye();
    let watched = worker.watches.register();
    // A handshake is due at once; the first request has time.
    watched.arm(if listener.tls || !listener.proxied_by.is_empty() {
        config.limits.header
    } else {
        config.limits.idle
    });
    let opening = opening::open(worker, listener, socket, peer);
    let opened = match Watching::new(opening, &watched, &[Order::Drain, Order::Expire]).await {
        Some(Ok(Some(opened))) => opened,
        Some(Err(error)) => return tracing::debug!(%error, %peer, "client connection was not opened"),
        Some(Ok(None)) | None => return,
    };
    let about = About { inside: None, session: door.session.clone(), watched, listener: listener.address, is_fresh };
    serve_opened(worker, opened, about).await;
}

/// Serves a connection inside a tunnel until it ends.
pub(crate) async fn serve_inside(worker: &Arc<Worker>, inside: Inside) {
    let Inside { stream, peer, listener, origin, session, kept } = inside;
    let protocol = Protocol::agreed(stream.get_ref().1.alpn_protocol());
    let opened = Opened { peer, socket: Socket::Intercepted(stream), first: Bytes::new(), protocol };
    let about = About { inside: Some(origin), session, watched: worker.watches.register(), listener, is_fresh: false };
    serve_opened(worker, opened, about).await;
    drop(kept);
}

/// What is known of a connection besides what came over it.
struct About {
    inside: Option<Origin>,
    session: Option<Arc<SessionState>>,
    watched: Watched,
    listener: SocketAddr,
    /// Whether it was accepted since goodbye is said: then its first answer is its last.
    is_fresh: bool,
}

async fn serve_opened(worker: &Arc<Worker>, opened: Opened, about: About) {
    let Opened { peer, socket, first, protocol } = opened;
    let About { inside, session, watched, listener, is_fresh } = about;
    let config = &worker.shared.config;
    watched.arm(config.limits.idle);
    let client = Arc::new(Client {
        worker: Arc::clone(worker),
        peer,
        listener,
        secure: socket.is_tls(),
        server_name: socket.server_name().map(Into::into),
        protocol,
        inside,
        session,
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
    Serving { connection, client, is_fresh, started: false, draining: false }.await;
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
        exchange::answer(&self.0, request, fault)
    }
}

/// The connection's task.
struct Serving {
    connection: Connected,
    client: Arc<Client>,
    is_fresh: bool,
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
            Order::Leave | Order::Drain if self.draining => {}
            Order::Leave if self.is_fresh && !self.client.is_http2() => {}
            Order::Leave => {
                // A request that is there already is answered.
                if let Poll::Ready(ended) = self.turn(context) {
                    return self.told(ended);
                }
                self.drain();
            }
            Order::Drain => self.drain(),
        }
        match self.turn(context) {
            Poll::Ready(ended) => self.told(ended),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Serving {
    fn turn(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        match &mut self.connection {
            Connected::Http1(connection) => Pin::new(connection).poll(context),
            Connected::Http2(connection) => Pin::new(connection).poll(context),
        }
    }

    fn told(&self, ended: hyper::Result<()>) -> Poll<()> {
        if let Err(error) = ended {
            tracing::debug!(%error, peer = %self.client.peer, "client connection ended");
        }
        Poll::Ready(())
    }

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
