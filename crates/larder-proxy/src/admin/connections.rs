//! The admin listener's connections.
//!
//! Owns: their number, and the time limit for a request's head. Requests are answered elsewhere. Invariant: `/healthz`
//! is always answered. Idle connections never block a new one, because the oldest idle connection is closed for it.
//! While all connections are busy, a few more are accepted for `/healthz` only. Cost: a search among 64 for each
//! connection.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};

use super::{AdminPages, ComesBy, guard, page};
use crate::{client::response_body::ResponseBody, config::Limits, worker::WorkerThread};

/// Serves the pages until aborted.
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

/// The requests that are answered on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageScope {
    All,
    /// Only `/healthz`.
    Health,
}

/// An open connection.
struct OpenConnection {
    exchanges: OpenExchanges,
    task: AbortHandle,
}

/// The open connections of a kind, oldest first.
struct OpenConnections {
    connections: VecDeque<OpenConnection>,
    count_max: usize,
}

impl OpenConnections {
    fn new(count_max: usize) -> Self {
        Self { connections: VecDeque::new(), count_max }
    }

    /// Makes room for a connection, if necessary by closing the oldest idle one. Returns whether there is room.
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

/// The number of exchanges in progress on a connection. An exchange lasts from the request's head to the last byte of
/// the response.
#[derive(Clone, Default)]
struct OpenExchanges(Arc<AtomicUsize>);

impl OpenExchanges {
    fn begin(&self) -> ExchangeGuard {
        self.0.fetch_add(1, Relaxed);
        ExchangeGuard(self.clone())
    }

    fn is_idle(&self) -> bool {
        self.0.load(Relaxed) == 0
    }
}

/// Counts one exchange until it is dropped.
struct ExchangeGuard(OpenExchanges);

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

/// A response body that ends its exchange when it is dropped.
struct GuardedBody {
    body: ResponseBody,
    _exchange: ExchangeGuard,
}

impl Body for GuardedBody {
    type Data = Bytes;
    type Error = <ResponseBody as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Serves the pages on a connection to the listener, over TLS if that is configured.
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

/// Returns the time limit for a request's head, for a handshake, and for the wait between requests.
fn head_patience(limits: &Limits) -> Duration {
    limits.header.min(HEAD_PATIENCE)
}

/// Serves the pages on an operator's connection through the control socket.
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

/// The server of one connection.
struct PageServer {
    thread: Arc<WorkerThread>,
    pages: AdminPages,
    comes_by: ComesBy,
    scope: PageScope,
    exchanges: OpenExchanges,
    /// The time limit for a request's head.
    patience: Duration,
}

impl PageServer {
    async fn serve(&self, socket: impl AsyncRead + AsyncWrite + Unpin + Send) {
        let service = service_fn(|request: Request<Incoming>| {
            let (head, body) = request.into_parts();
            let exchange = self.exchanges.begin();
            async move {
                let is_answered = self.scope == PageScope::All || guard::is_about_health(&head);
                let response = if is_answered {
                    self.pages.answer(&self.thread, self.comes_by, &head, body).await
                } else {
                    page(StatusCode::SERVICE_UNAVAILABLE, BUSY.into())
                };
                Ok::<_, Infallible>(response.map(|body| GuardedBody { body, _exchange: exchange }))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.patience)
            .keep_alive(self.scope == PageScope::All)
            .serve_connection(TokioIo::new(socket), service);
        if let Err(error) = connection.await {
            tracing::debug!(%error, "admin connection ended");
        }
    }
}

/// Most connections that are open at once.
const CONNECTION_COUNT_MAX: usize = 64;
/// Most further connections, for `/healthz`.
const RESERVE_COUNT_MAX: usize = 8;
const BUSY: &str = "all connections of this listener are busy: only /healthz is answered\n";
/// Time limit for a request's head.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
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
