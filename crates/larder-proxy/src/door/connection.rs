//! The task of one client connection.
//!
//! Owns: opening, and for HTTP/2 draining and closing. `http1` drives connections of HTTP/1.1. The client's state is in
//! `peer`; requests are answered in `exchange`. Cost: no timer per request. Whole hits are answered within the call,
//! without a separate future.

use std::{
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use tokio::net::TcpStream;

use crate::{
    door::{
        http1_door::Http1Task,
        http2::connection::Http2Connection,
        opening::{self, OpenedConnection, PeerAddress},
        shed::{HTTP2_REFUSAL, shed},
        stream::ClientStream,
    },
    figures::metrics::CountGuard,
    ground::{
        config::Listener,
        exchange_budget::{PlaceUse, StreamMemory},
        handed::ClientConnection,
        overload::Shortage,
        target::Origin,
        watch::{ConnectionPhase, OrderWatch, WatchOrder, WatchedConnection},
    },
    road::client::{
        flushed::FlushCounter,
        interim::InterimQueue,
        opaque::SwitchTaker,
        peer::{AbandonedRequests, Client, seconds_of},
        peer_user::NearEnds,
        session::SessionState,
        socket::{ClientProtocol, ClientSocket, TunneledConnection},
    },
    run::worker::Worker,
};

/// A listener, and the session (`larder exec`) whose clients alone may connect to it. Without a session, all clients
/// may connect.
pub(crate) struct ListenerAccess {
    pub(crate) listener: Listener,
    pub(crate) session: Option<Arc<SessionState>>,
}

/// Serves an accepted connection until it ends.
///
/// The future that opens a connection is larger than the one that serves it. Each has its own heap allocation, so that
/// an idle connection keeps only the smaller one.
pub(crate) fn serve(
    worker: Arc<Worker>,
    socket: TcpStream,
    peer: PeerAddress,
    door: Arc<ListenerAccess>,
) -> impl Future<Output = ()> + Send {
    let opening = Box::pin(open(worker, socket, peer, door));
    async move {
        let opened = opening.await;
        if let Some(served) = opened {
            served.await;
        }
    }
}

/// The future that answers the requests of an open connection, until the connection ends.
type ServedConnection = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Opens an accepted connection: waits for its first bytes and negotiates TLS and HTTP version.
///
/// Returns `None` if the client closed it, or if it was handed over to the next process.
async fn open(
    worker: Arc<Worker>,
    socket: TcpStream,
    peer: PeerAddress,
    door: Arc<ListenerAccess>,
) -> Option<ServedConnection> {
    let listener = &door.listener;
    let config = &worker.shared.config;
    let is_fresh = worker.watches.says_goodbye();
    let watched = worker.watches.register();
    watched.enter(ConnectionPhase::Idle);
    // A TLS handshake or PROXY header must begin at once. A plain connection may wait longer for its first request.
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
            hand_over(&worker, listener.address, client, socket);
        }
        return None;
    }
    let near = NearEnds::of(&socket, peer.address());
    let is_stranger = match &door.session {
        Some(session) => !session.admits(near).await,
        None => false,
    };
    // After the first byte, the connection cannot be handed over until it proves to be HTTP/1 without TLS.
    let opening_count = count_unmovable(&worker);
    let opening = opening::open(&worker, listener, socket, peer);
    let opened = match OrderWatch::new(opening, &watched, &[WatchOrder::Drain, WatchOrder::Expire]).await {
        Some(Ok(Some(opened))) => opened,
        Some(Err(error)) => {
            tracing::debug!(%error, peer = %peer.address(), "a client's connection ended before its first request");
            return None;
        }
        Some(Ok(None)) | None => return None,
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
    start(&worker, opened, about)
}

/// Waits for the client's first byte. Returns false if the connection must be closed or handed over before it arrives.
async fn await_first(watched: &WatchedConnection, socket: &TcpStream) -> bool {
    let ends_on: &[WatchOrder] = &[WatchOrder::Leave, WatchOrder::Drain, WatchOrder::Expire];
    let mut first = [0];
    // `readable` is unsuitable, because it completes at once for a newly accepted socket.
    let arrived = OrderWatch::new(socket.peek(&mut first), watched, ends_on).await;
    if let Some(Err(error)) = &arrived {
        tracing::debug!(%error, "a client's connection ended before its first request");
    }
    matches!(arrived, Some(Ok(_)))
}

/// Counts a connection that the next process cannot continue, until the guard is dropped.
pub(super) fn count_unmovable(worker: &Worker) -> CountGuard {
    CountGuard::begin(&worker.metrics, |metrics| &metrics.connections_unmovable)
}

/// Hands a connection over to the process that replaces this one. If that fails, the connection closes.
pub(super) fn hand_over(worker: &Worker, listener: SocketAddr, client: Option<SocketAddr>, socket: TcpStream) {
    match socket.into_std() {
        Ok(socket) => worker.watches.hand_over(ClientConnection { listener, client, socket }),
        Err(error) => {
            tracing::debug!(%error, "cannot hand a client's connection over to the next process: it is closed")
        }
    }
}

/// Serves a connection inside a tunnel until it ends.
pub(crate) async fn serve_inside(worker: Arc<Worker>, inside: TunneledConnection) {
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
    if let Some(served) = start(&worker, opened, about) {
        served.await;
    }
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
    /// Whether another node of the fleet opened the connection, as its certificate proves.
    is_node: bool,
    /// Whether the connection was accepted after the handover to the next process began. It then closes after one
    /// response.
    is_fresh: bool,
}

/// Creates the future that serves a connection whose protocol is known. Returns `None` if the connection is refused.
fn start(worker: &Arc<Worker>, opened: OpenedConnection, about: ConnectionContext) -> Option<ServedConnection> {
    let OpenedConnection { peer, socket, first, protocol, is_proxied: _ } = opened;
    let ConnectionContext { inside, session, near, is_stranger, .. } = about;
    let ConnectionContext { watched, listener, takes_origin_form, is_node, is_fresh, .. } = about;
    let config = &worker.shared.config;
    watched.arm(config.limits.idle);
    watched.enter(ConnectionPhase::Idle);
    let is_movable = protocol == ClientProtocol::Http1 && !socket.is_tls() && inside.is_none() && session.is_none();
    let unmovable = (!is_movable).then(|| count_unmovable(worker));
    let streams = match protocol {
        ClientProtocol::Http1 => None,
        ClientProtocol::Http2 => match worker.shared.places.take(PlaceUse::Http2) {
            Some(place) => Some(Box::new(StreamMemory::new(place))),
            None => {
                worker.metrics.refused[Shortage::Memory as usize].add(1);
                shed(socket, HTTP2_REFUSAL);
                return None;
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
        stall_secs: AtomicU32::new(seconds_of(config.policy.limits.stall)),
        exchange_count: AtomicU32::new(0),
        abandoned: AbandonedRequests::default(),
        floods: streams.is_some().then(Box::default),
        streams,
        in_head: AtomicBool::new(false),
        fatal_fault: OnceLock::new(),
        watched,
        interim: InterimQueue::default(),
        switch: SwitchTaker::default(),
        flushed: FlushCounter::default(),
    });
    if protocol == ClientProtocol::Http1 {
        return Some(Box::pin(Http1Task::new(client, (socket, first), unmovable, is_fresh)));
    }
    let stream = ClientStream::new(socket, first, Arc::clone(&client));
    let connection = Http2Connection::new(Arc::clone(&client), stream);
    Some(Box::pin(ConnectionTask { connection, client, started: false, draining: false, _unmovable: unmovable }))
}

/// The task of an HTTP/2 connection with a client.
struct ConnectionTask {
    connection: Http2Connection,
    client: Arc<Client>,
    started: bool,
    draining: bool,
    _unmovable: Option<CountGuard>,
}

impl Future for ConnectionTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if !self.started {
            self.started = true;
            self.client.watched.remember(context);
        }
        match self.client.watched.order() {
            WatchOrder::Run => {}
            WatchOrder::Expire if !self.is_idle() || self.draining => return Poll::Ready(()),
            WatchOrder::Expire => {
                // Sends GOAWAY before the connection closes, so that no request is lost (RFC 9113 9.1).
                self.client.watched.pardon();
                self.client.watched.arm(GOODBYE);
                self.drain();
            }
            WatchOrder::Leave | WatchOrder::Drain if self.draining => {}
            WatchOrder::Leave => {
                // Answers a request that has already arrived.
                if self.turn(context).is_ready() {
                    return Poll::Ready(());
                }
                self.drain();
            }
            WatchOrder::Drain => self.drain(),
        }
        self.turn(context)
    }
}

impl ConnectionTask {
    fn turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Err(error) = ready!(self.connection.poll(context)) {
            tracing::debug!(%error, peer = %self.client.peer, "a client's connection ended with an error");
        }
        Poll::Ready(())
    }

    fn drain(&mut self) {
        self.draining = true;
        self.connection.leave();
    }

    fn is_idle(&self) -> bool {
        let client = &self.client;
        client.exchange_count.load(Relaxed) == 0 && !client.in_head.load(Relaxed)
    }
}

/// Time for which an idle HTTP/2 connection stays open after GOAWAY, so that requests that were already sent still
/// arrive.
const GOODBYE: Duration = Duration::from_secs(2);
