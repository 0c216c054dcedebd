//! The admin listener's connections.
//!
//! Owns: their number, and the time limit for a request's head. Requests are answered elsewhere. Invariant: `/healthz`
//! is always answered. Idle connections never block a new one, because the oldest idle connection is closed for it.
//! While all connections are busy, a few more are accepted for `/healthz` only. Cost: a search among 64 for each
//! connection.

use std::{
    collections::VecDeque,
    future::poll_fn,
    marker::PhantomData,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use larder_device::IgnorePoison;
use larder_wire::{HeadLimits, WireFault};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};

use super::{AdminPages, ComesBy, guard, page};
use crate::{
    door::http1::{DoorConnection, Http1Door},
    ground::{config::Limits, errors::Failure, received_body::IncomingBody},
    road::client::{answer::ClientAnswer, interim::InterimQueue},
    run::worker::WorkerThread,
};

/// Serves the admin pages on a listener, until aborted.
pub(crate) async fn serve(thread: Arc<WorkerThread>, listener: TcpListener, pages: AdminPages) {
    let mut open = OpenConnections::new(CONNECTION_COUNT_MAX);
    let mut reserve = OpenConnections::new(RESERVE_COUNT_MAX);
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (connections, scope) = if open.make_room() {
            (&mut open, PageScope::All)
        } else if reserve.make_room() {
            (&mut reserve, PageScope::Health)
        } else {
            tracing::warn!(limit = CONNECTION_COUNT_MAX, "an admin connection was refused: all open ones are busy");
            continue;
        };
        let exchanges = OpenExchanges::default();
        let served = serve_socket(Arc::clone(&thread), socket, pages.clone(), scope, exchanges.clone());
        connections.push(OpenConnection { exchanges, task: tokio::spawn(served).abort_handle() });
    }
}

/// The requests that a connection may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageScope {
    All,
    /// Only health checks (`/healthz`).
    Health,
}

/// An open connection, with its task.
struct OpenConnection {
    exchanges: OpenExchanges,
    task: AbortHandle,
}

/// The open connections that share one limit, oldest first.
struct OpenConnections {
    connections: VecDeque<OpenConnection>,
    count_max: usize,
}

impl OpenConnections {
    fn new(count_max: usize) -> Self {
        Self { connections: VecDeque::new(), count_max }
    }

    /// Makes room for a connection, if necessary by closing the oldest idle one. Returns false if all open connections
    /// are busy.
    fn make_room(&mut self) -> bool {
        self.connections.retain(|connection| !connection.task.is_finished());
        if self.connections.len() < self.count_max {
            return true;
        }
        let idle = self.connections.iter().position(|connection| connection.exchanges.is_idle());
        let ended = idle.and_then(|at| self.connections.remove(at)).map(|connection| connection.task.abort());
        ended.is_some()
    }

    fn push(&mut self, connection: OpenConnection) {
        self.connections.push_back(connection);
        assert!(self.connections.len() <= self.count_max, "no more connections are open than may be");
    }
}

/// Whether an exchange is in progress on a connection, and when the last one ended.
///
/// An exchange lasts from the request's head to the last byte of the response.
#[derive(Clone)]
struct OpenExchanges(Arc<ExchangeState>);

struct ExchangeState {
    is_open: AtomicBool,
    last_end: Mutex<Instant>,
}

impl Default for OpenExchanges {
    fn default() -> Self {
        Self(Arc::new(ExchangeState { is_open: AtomicBool::new(false), last_end: Mutex::new(Instant::now()) }))
    }
}

impl OpenExchanges {
    fn begin(&self) {
        self.0.is_open.store(true, Relaxed);
    }

    fn end(&self) {
        *self.0.last_end.lock().ignore_poison() = Instant::now();
        self.0.is_open.store(false, Relaxed);
    }

    fn is_idle(&self) -> bool {
        !self.0.is_open.load(Relaxed)
    }

    /// Returns how much of `patience` is left since the end of the last exchange.
    fn left_of(&self, patience: Duration) -> Duration {
        patience.saturating_sub(self.0.last_end.lock().ignore_poison().elapsed())
    }
}

/// Serves the admin pages on an accepted connection, over TLS if that is configured.
async fn serve_socket(
    thread: Arc<WorkerThread>,
    socket: TcpStream,
    pages: AdminPages,
    scope: PageScope,
    exchanges: OpenExchanges,
) {
    let Some(worker) = thread.latest() else { return };
    let acceptor = worker.shared.acceptor.clone().filter(|_| worker.shared.config.admin_tls);
    let patience = head_patience(&worker.shared.config.limits);
    drop(worker);
    let server = PageServer { thread, pages, comes_by: ComesBy::Listener, scope, exchanges, patience };
    let Some(acceptor) = acceptor else { return server.serve(socket).await };
    match tokio::time::timeout(patience, acceptor.accept(socket)).await {
        Ok(Ok(stream)) => server.serve(stream).await,
        Ok(Err(error)) => tracing::debug!(%error, "admin connection ended during its TLS handshake"),
        Err(_) => tracing::debug!("admin connection took too long for its TLS handshake"),
    }
}

/// Returns the time limit for receiving a request's head, for a TLS handshake, and for the wait between requests.
fn head_patience(limits: &Limits) -> Duration {
    limits.header.min(HEAD_PATIENCE)
}

/// Serves the admin pages on a connection through the control socket.
pub(crate) async fn serve_operator(
    thread: Arc<WorkerThread>,
    socket: impl AsyncRead + AsyncWrite + Unpin + Send,
    pages: AdminPages,
) {
    let comes_by = ComesBy::Operator;
    let scope = PageScope::All;
    let exchanges = OpenExchanges::default();
    PageServer { thread, pages, comes_by, scope, exchanges, patience: HEAD_PATIENCE }.serve(socket).await;
}

/// Serves one connection.
struct PageServer {
    thread: Arc<WorkerThread>,
    pages: AdminPages,
    comes_by: ComesBy,
    scope: PageScope,
    exchanges: OpenExchanges,
    /// Time limit for receiving a request's head.
    patience: Duration,
}

/// Answers the requests of one connection. `S` is the type of its socket.
struct PageDoor<S> {
    server: PageServer,
    interim: InterimQueue,
    socket: PhantomData<fn(S)>,
}

impl PageServer {
    async fn serve(self, socket: impl AsyncRead + AsyncWrite + Unpin + Send) {
        let exchanges = self.exchanges.clone();
        let patience = self.patience;
        let door = PageDoor { server: self, interim: InterimQueue::default(), socket: PhantomData };
        let mut connection = DoorConnection::new(door, socket, Bytes::new());
        loop {
            let left = if exchanges.is_idle() { exchanges.left_of(patience) } else { patience };
            let served = poll_fn(|context| connection.poll_requests(context));
            match tokio::time::timeout(left, served).await {
                Ok(Ok(_)) => return,
                Ok(Err(error)) => return tracing::debug!(%error, "admin connection ended"),
                // No request's head was complete in time.
                Err(_) if exchanges.is_idle() && exchanges.left_of(patience).is_zero() => return,
                Err(_) => {}
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Http1Door for PageDoor<S> {
    type Socket = S;

    fn limits(&self) -> HeadLimits {
        HeadLimits { bytes_max: HEAD_BYTES_MAX, field_count_max: FIELD_COUNT_MAX }
    }

    fn interim(&self) -> &InterimQueue {
        &self.interim
    }

    fn answer(&self, request: Request<IncomingBody>, fault: Option<WireFault>) -> ClientAnswer {
        self.server.exchanges.begin();
        if let Some(fault) = fault {
            let failure = Failure::from(fault);
            return ClientAnswer::ready(Box::new(page(failure.status(), format!("{failure}\n").into())));
        }
        let PageServer { thread, pages, comes_by, scope, .. } = &self.server;
        let thread = Arc::clone(thread);
        let pages = pages.clone();
        let comes_by = *comes_by;
        let scope = *scope;
        ClientAnswer::Later(Box::pin(async move {
            let (head, body) = request.into_parts();
            if scope == PageScope::All {
                return Box::new(pages.answer(&thread, comes_by, &head, body).await);
            }
            let mut response = if guard::is_about_health(&head) {
                pages.answer(&thread, comes_by, &head, body).await
            } else {
                page(StatusCode::SERVICE_UNAVAILABLE, BUSY.into())
            };
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            Box::new(response)
        }))
    }

    fn switch(&self, _: S, _: Bytes) {}

    fn note_end(&self) {
        self.server.exchanges.end();
    }
}

/// Maximum number of open connections.
const CONNECTION_COUNT_MAX: usize = 64;
/// Maximum number of additional connections that may only request `/healthz`.
const RESERVE_COUNT_MAX: usize = 8;
const BUSY: &str = "all connections of this listener are busy: only /healthz is answered\n";
/// Maximum time for receiving the head of a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// Maximum length of a request's head, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Maximum number of fields of a request.
const FIELD_COUNT_MAX: usize = 100;
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_head_has_five_seconds_or_less() {
        let limits = Limits::default();
        assert!(limits.header > HEAD_PATIENCE);
        assert_eq!(head_patience(&limits), Duration::from_secs(5));
        assert_eq!(head_patience(&Limits { header: Duration::from_secs(2), ..limits }), Duration::from_secs(2));
    }
}
