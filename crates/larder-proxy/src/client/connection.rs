//! The task of one client connection, which drives the HTTP library, or h2.
//!
//! Owns: opening, draining, handover and closing. The client's state is in `peer`; requests are answered in `exchange`.
//! Memory: a connection that has been idle for a second is parked. Only its socket is kept, and the HTTP library's
//! state is created again when bytes arrive. A connection whose exchange has waited for a second does without that
//! state too (see `waiting`). Cost: no timer and no allocation per request. Whole hits are answered
//! within the call, without a separate future.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
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
        answer::ClientAnswer,
        flushed::FlushCounter,
        handed::ClientConnection,
        http2::connection::Http2Connection,
        interim::InterimQueue,
        opening::{self, OpenedConnection, PeerAddress},
        peer::{AbandonedRequests, Client, ConnectionPhase},
        peer_user::NearEnds,
        response_body::ResponseBody,
        shed::{HTTP2_REFUSAL, shed},
        socket::{ClientProtocol, ClientSocket, TunneledConnection},
        stream::ClientStream,
        waiting::WaitingConnection,
    },
    config::Listener,
    exchange_budget::{PlaceUse, StreamMemory},
    metrics::CountGuard,
    origin::target::Origin,
    received_body::IncomingBody,
    request::{accounting, exchange},
    session::SessionState,
    watch::{OrderWatch, WatchOrder, WatchedConnection},
    worker::Worker,
};

/// A listener, and the session whose clients may use it. Without a session, all clients may.
pub(crate) struct ListenerAccess {
    pub(crate) listener: Listener,
    pub(crate) session: Option<Arc<SessionState>>,
}

/// Serves an accepted connection until it ends.
pub(crate) async fn serve(worker: &Arc<Worker>, socket: TcpStream, peer: PeerAddress, door: &ListenerAccess) {
    let listener = &door.listener;
    let config = &worker.shared.config;
    let is_fresh = worker.watches.says_goodbye();
    let watched = worker.watches.register();
    // A handshake must begin at once, but the first request may come later.
    watched.arm(if listener.tls || !listener.proxied_by.is_empty() {
        config.limits.header
    } else {
        config.limits.idle
    });
    if door.session.is_none() && !await_first(&watched, &socket).await {
        if !matches!(watched.order(), WatchOrder::Expire) && worker.watches.has_successor() {
            let client = match peer {
                PeerAddress::Accepted(_) => None,
                PeerAddress::Known(client) => Some(client),
            };
            hand_over(worker, listener.address, client, socket);
        }
        return;
    }
    let near = NearEnds::of(&socket, peer.address());
    let is_stranger = match &door.session {
        Some(session) => !session.admits(near).await,
        None => false,
    };
    // After the first byte, the connection cannot be handed over until it proves to be HTTP/1 without TLS.
    let opening_count = count_unmovable(worker);
    let opening = opening::open(worker, listener, socket, peer);
    let opened = match OrderWatch::new(opening, &watched, &[WatchOrder::Drain, WatchOrder::Expire]).await {
        Some(Ok(Some(opened))) => opened,
        Some(Err(error)) => {
            return tracing::debug!(%error, peer = %peer.address(), "client connection ended during its handshake");
        }
        Some(Ok(None)) | None => return,
    };
    drop(opening_count);
    let about = ConnectionContext {
        inside: None,
        session: door.session.clone(),
        near: near.filter(|_| !opened.is_proxied),
        is_stranger,
        watched,
        listener: listener.address,
        takes_origin_form: listener.origin_form,
        is_node: listener.for_nodes,
        is_fresh,
    };
    serve_opened(worker, opened, about).await;
}

/// Waits for the client's first byte. Returns false if the connection must be handed over or closed before that.
async fn await_first(watched: &WatchedConnection, socket: &TcpStream) -> bool {
    let ends_on: &[WatchOrder] = &[WatchOrder::Leave, WatchOrder::Drain, WatchOrder::Expire];
    let mut first = [0];
    // `readable` is unsuitable, because it completes at once for a newly accepted socket.
    let arrived = OrderWatch::new(socket.peek(&mut first), watched, ends_on).await;
    if let Some(Err(error)) = &arrived {
        tracing::debug!(%error, "client connection ended during its handshake");
    }
    matches!(arrived, Some(Ok(_)))
}

/// Counts a connection that another process cannot continue.
fn count_unmovable(worker: &Worker) -> CountGuard {
    CountGuard::begin(&worker.metrics, |metrics| &metrics.connections_unmovable)
}

/// Hands a connection over to the process that replaces this one.
fn hand_over(worker: &Worker, listener: SocketAddr, client: Option<SocketAddr>, socket: TcpStream) {
    match socket.into_std() {
        Ok(socket) => worker.watches.hand_over(ClientConnection { listener, client, socket }),
        Err(error) => tracing::debug!(%error, "client connection cannot be handed over"),
    }
}

/// Serves a connection inside a tunnel until it ends.
pub(crate) async fn serve_inside(worker: &Arc<Worker>, inside: TunneledConnection) {
    let TunneledConnection { stream, peer, listener, origin, session, kept } = inside;
    let protocol = ClientProtocol::agreed(stream.get_ref().1.alpn_protocol());
    let socket = ClientSocket::Intercepted(stream);
    let opened = OpenedConnection { peer, is_proxied: false, socket, first: Bytes::new(), protocol };
    let about = ConnectionContext {
        inside: Some(origin),
        session,
        near: None,
        is_stranger: false,
        watched: worker.watches.register(),
        listener,
        takes_origin_form: false,
        is_node: false,
        is_fresh: false,
    };
    serve_opened(worker, opened, about).await;
    drop(kept);
}

/// The facts about a connection that do not depend on its requests.
struct ConnectionContext {
    inside: Option<Origin>,
    session: Option<Arc<SessionState>>,
    near: Option<NearEnds>,
    is_stranger: bool,
    watched: WatchedConnection,
    listener: SocketAddr,
    takes_origin_form: bool,
    /// Whether another node of the fleet opened it, with its certificate.
    is_node: bool,
    /// Whether the connection was accepted after the handover began. In that case, its first response is its last.
    is_fresh: bool,
}

async fn serve_opened(worker: &Arc<Worker>, opened: OpenedConnection, about: ConnectionContext) {
    let OpenedConnection { peer, socket, first, protocol, is_proxied: _ } = opened;
    let ConnectionContext { inside, session, near, is_stranger, .. } = about;
    let ConnectionContext { watched, listener, takes_origin_form, is_node, is_fresh, .. } = about;
    let config = &worker.shared.config;
    watched.arm(config.limits.idle);
    let is_movable = protocol == ClientProtocol::Http1 && !socket.is_tls() && inside.is_none() && session.is_none();
    let _unmovable = (!is_movable).then(|| count_unmovable(worker));
    let streams = match protocol {
        ClientProtocol::Http1 => None,
        ClientProtocol::Http2 => match worker.shared.cache.places.take(PlaceUse::Http2) {
            Some(place) => Some(Box::new(StreamMemory::new(place))),
            None => {
                worker.metrics.connections_refused.add(1);
                return shed(socket, HTTP2_REFUSAL);
            }
        },
    };
    let client = Arc::new(Client {
        worker: Arc::clone(worker),
        peer,
        listener,
        takes_origin_form,
        is_node,
        secure: socket.is_tls(),
        server_name: socket.server_name().map(Into::into),
        protocol,
        inside,
        session,
        near,
        is_stranger,
        is_movable,
        is_unsent: AtomicBool::new(false),
        phase: AtomicU8::new(ConnectionPhase::Idle as u8),
        exchange_count: AtomicU32::new(0),
        abandoned: AbandonedRequests::default(),
        raw: Mutex::default(),
        floods: streams.is_some().then(Box::default),
        streams,
        in_head: AtomicBool::new(false),
        fatal_fault: OnceLock::new(),
        watched,
        interim: InterimQueue::default(),
        flushed: FlushCounter::default(),
        held: Mutex::default(),
        is_resuming: AtomicBool::new(false),
    });
    let connection = match protocol {
        ClientProtocol::Http1 => connect_http1(&client, ClientStream::new(socket, first, Arc::clone(&client))),
        ClientProtocol::Http2 => {
            let stream = ClientStream::new(socket, first, Arc::clone(&client));
            HttpConnection::Http2(Box::new(Http2Connection::new(Arc::clone(&client), stream)))
        }
    };
    ConnectionTask { connection, client, is_fresh, started: false, draining: false, late_head: None }.await;
}

/// Creates the HTTP library's connection on a stream.
fn connect_http1(client: &Arc<Client>, stream: ClientStream) -> HttpConnection {
    let limits = &client.worker.shared.config.limits;
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_headers(limits.header_count_max)
        .max_header_size(limits.header_bytes_max)
        .max_buf_size(limits.header_bytes_max)
        .serve_connection(TokioIo::new(stream), RequestHandler(Arc::clone(client)))
        .with_upgrades();
    HttpConnection::Http1(Box::new(connection))
}

/// The handler that the HTTP library calls for each request.
struct RequestHandler(Arc<Client>);

impl Service<Request<Incoming>> for RequestHandler {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = ClientAnswer;

    fn call(&self, request: Request<Incoming>) -> ClientAnswer {
        if let Some(response) = self.0.take_answer() {
            return ClientAnswer::Ready(Some(response));
        }
        let fault = self.0.begin();
        exchange::answer(&self.0, request.map(IncomingBody::Library), fault)
    }
}

/// The connection's task.
struct ConnectionTask {
    connection: HttpConnection,
    client: Arc<Client>,
    is_fresh: bool,
    started: bool,
    draining: bool,
    /// Counts the connection as unmovable while it answers a request that arrived late.
    late_head: Option<CountGuard>,
}

/// The connection, as hyper or h2 drives it.
enum HttpConnection {
    Http1(Box<UpgradeableConnection<TokioIo<ClientStream>, RequestHandler>>),
    Http2(Box<Http2Connection>),
    /// The socket of a connection between two requests.
    Parked {
        socket: ClientSocket,
        _counting: CountGuard,
    },
    /// A connection whose exchange waits without the library.
    Waiting(Box<WaitingConnection>),
    /// The socket was sent to another process or closed.
    Gone,
}

impl Future for ConnectionTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if !self.started {
            self.started = true;
            self.client.watched.remember(context);
        }
        let order = self.client.watched.order();
        match order {
            WatchOrder::Run => {}
            WatchOrder::Expire if !self.is_idle_http2() || self.draining => return Poll::Ready(()),
            WatchOrder::Expire => {
                // Noted before the connection closes, so that no request is lost (RFC 9113 9.1).
                self.client.watched.pardon();
                self.client.watched.arm(GOODBYE);
                self.drain();
            }
            WatchOrder::Leave | WatchOrder::Drain if self.draining => {}
            WatchOrder::Leave | WatchOrder::Drain if self.client.is_for_successor() => {
                return self.leave(order, context);
            }
            WatchOrder::Leave if self.is_fresh && !self.client.is_http2() => {}
            WatchOrder::Leave => {
                // A request that has already arrived is answered.
                if let Poll::Ready(ended) = self.turn(context) {
                    return self.told(ended);
                }
                self.drain();
            }
            WatchOrder::Drain => self.drain(),
        }
        match self.turn(context) {
            Poll::Ready(ended) => self.told(ended),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl ConnectionTask {
    fn turn(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        loop {
            let turned = match &mut self.connection {
                HttpConnection::Http1(connection) => Pin::new(connection).poll(context),
                HttpConnection::Http2(connection) => {
                    let ended = ready!(connection.poll(context));
                    if let Err(error) = ended {
                        tracing::debug!(%error, peer = %self.client.peer, "client connection ended");
                    }
                    return Poll::Ready(Ok(()));
                }
                HttpConnection::Parked { socket, .. } => {
                    // The next read returns the error.
                    let _ = ready!(socket.poll_arrival(context));
                    self.client.watched.expect_rest();
                    if let Some(socket) = self.take_socket() {
                        let stream = ClientStream::new(socket, Bytes::new(), Arc::clone(&self.client));
                        self.connection = connect_http1(&self.client, stream);
                    }
                    continue;
                }
                HttpConnection::Waiting(waiting) => {
                    let response = ready!(waiting.poll_response(context));
                    self.resume(response);
                    continue;
                }
                HttpConnection::Gone => return Poll::Ready(Ok(())),
            };
            if turned.is_pending() && self.client.can_park() && matches!(self.connection, HttpConnection::Http1(_)) {
                if let Some(socket) = self.take_socket() {
                    let counting =
                        CountGuard::begin(&self.client.worker.metrics, |metrics| &metrics.connections_parked);
                    self.connection = HttpConnection::Parked { socket, _counting: counting };
                }
                continue;
            }
            if turned.is_pending() && self.client.can_wait() && self.part() {
                continue;
            }
            return turned;
        }
    }

    /// Drops the HTTP library's state while the present exchange waits. Returns whether it did.
    fn part(&mut self) -> bool {
        if !matches!(self.connection, HttpConnection::Http1(_)) {
            return false;
        }
        // Taken first, because dropping the library's state would abandon the exchange.
        let Some(exchange) = self.client.take_exchange() else { return false };
        let HttpConnection::Http1(connection) = std::mem::replace(&mut self.connection, HttpConnection::Gone) else {
            return false;
        };
        let Some(parts) = connection.into_parts() else { return true };
        debug_assert!(parts.read_buf.is_empty(), "all that the library has read is the request");
        let waiting = WaitingConnection::new(parts.io.into_inner(), exchange, &self.client.worker.metrics);
        self.connection = HttpConnection::Waiting(Box::new(waiting));
        true
    }

    /// Gives the response of an exchange that waited to a new instance of the HTTP library.
    fn resume(&mut self, response: io::Result<Response<ResponseBody>>) {
        let waiting = std::mem::replace(&mut self.connection, HttpConnection::Gone);
        let HttpConnection::Waiting(waiting) = waiting else { return };
        match response {
            Ok(response) => {
                self.client.resume_with(response);
                self.connection = connect_http1(&self.client, waiting.into_stream(self.draining));
            }
            Err(error) => tracing::debug!(%error, peer = %self.client.peer, "client left before its response"),
        }
    }

    /// Takes the socket of a connection that is between two requests.
    ///
    /// Returns `None` if the HTTP library has read bytes that are not answered yet, because the next owner of the
    /// socket would miss them.
    fn take_socket(&mut self) -> Option<ClientSocket> {
        match std::mem::replace(&mut self.connection, HttpConnection::Gone) {
            HttpConnection::Http1(connection) => {
                let parts = connection.into_parts()?;
                parts.read_buf.is_empty().then(|| parts.io.into_inner())?.into_socket()
            }
            HttpConnection::Parked { socket, .. } => Some(socket),
            HttpConnection::Http2(_) | HttpConnection::Waiting(_) | HttpConnection::Gone => None,
        }
    }

    /// Answers the request whose head has begun to arrive, then hands the connection over.
    fn leave(&mut self, order: WatchOrder, context: &mut Context<'_>) -> Poll<()> {
        if let Poll::Ready(ended) = self.turn(context) {
            return self.told(ended);
        }
        let client = &self.client;
        if client.can_go_over() {
            return self.go_over();
        }
        if client.is_in_head() {
            // The client had time to send the rest of the head. From here on, no request with side effects may begin.
            if order == WatchOrder::Drain {
                return Poll::Ready(());
            }
            self.late_head.get_or_insert_with(|| count_unmovable(&client.worker));
        } else if client.has_pipelined() {
            // Pipelined requests are lost, as whenever a connection closes. The client repeats them.
            self.drain();
            return self.turn(context).map(drop);
        }
        Poll::Pending
    }

    /// Hands the connection over to the process that replaces this one.
    fn go_over(&mut self) -> Poll<()> {
        if let Some(socket) = self.take_socket().and_then(ClientSocket::into_plain) {
            let client = &self.client;
            hand_over(&client.worker, client.listener, Some(client.peer), socket);
        }
        Poll::Ready(())
    }

    fn told(&self, ended: hyper::Result<()>) -> Poll<()> {
        if let Err(error) = ended {
            tracing::debug!(%error, peer = %self.client.peer, "client connection ended");
            if error.is_parse() {
                accounting::note_unreadable(&self.client, &error);
            }
        }
        Poll::Ready(())
    }

    fn drain(&mut self) {
        self.draining = true;
        match &mut self.connection {
            HttpConnection::Http1(connection) => Pin::new(&mut **connection).graceful_shutdown(),
            HttpConnection::Http2(connection) => connection.leave(),
            HttpConnection::Parked { .. } => self.connection = HttpConnection::Gone,
            // The response will say that the connection closes.
            HttpConnection::Waiting(_) | HttpConnection::Gone => {}
        }
    }

    fn is_idle_http2(&self) -> bool {
        let client = &self.client;
        client.is_http2() && client.exchange_count.load(Relaxed) == 0 && !client.in_head.load(Relaxed)
    }
}

/// Time in which an HTTP/2 client must close a connection that was idle for too long.
const GOODBYE: Duration = Duration::from_secs(2);
