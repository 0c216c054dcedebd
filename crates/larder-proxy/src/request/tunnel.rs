//! CONNECT: copies bytes both ways between a client and a target that the rules allow (RFC 9110 9.3.6).
//!
//! Owns: a tunnel's task. The bytes are not inspected. Invariant: the address connected to is the one that was checked.
//! Cost: two buffers of the runtime's copy per tunnel.

use std::sync::Arc;

use http::Request;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::{
    client::{opaque::PendingOpaque, ticket::Ticket},
    delays::{PacedStream, Pacer},
    errors::Failure,
    metrics::CountGuard,
    origin::{
        connect,
        stream::OriginStream,
        target::{ODD_HOST, Origin, is_plain_host},
    },
    watch::{OrderWatch, WatchOrder, WatchedConnection},
    worker::{ConnectionPresence, Worker},
};

/// A connection to the target of a tunnel.
pub(crate) struct TunnelTarget<T> {
    pub(crate) stream: T,
    /// The deadline of `stream`, which every byte extends.
    pub(crate) watched: Arc<WatchedConnection>,
    /// The pacer of the bytes to the client.
    pub(crate) pacer: Option<Pacer>,
}

/// Returns the target of a CONNECT request.
///
/// # Errors
/// The target is malformed, or tunnels to it are disabled.
pub(crate) fn target<B>(worker: &Worker, request: &Request<B>) -> Result<Origin, Failure> {
    let config = &worker.shared.config;
    if !config.forward {
        return Err(Failure::NoSite);
    }
    let malformed = Failure::BadRequest("CONNECT needs a host and a port");
    // Only the authority is allowed here (RFC 9112 3.2.3).
    if request.uri().scheme().is_some() || request.uri().path_and_query().is_some() {
        return Err(malformed);
    }
    let authority = request.uri().authority().ok_or(malformed.clone())?;
    let host = authority.host();
    let port = authority.port_u16().ok_or(malformed.clone())?;
    if host.is_empty() || authority.as_str().contains('@') {
        return Err(malformed);
    }
    if !is_plain_host(host) {
        return Err(Failure::BadRequest(ODD_HOST));
    }
    if !config.connect_ports.contains(&port) {
        return Err(Failure::PortDenied { port });
    }
    Ok(Origin::of_client(host, port))
}

/// Connects to the target.
///
/// # Errors
/// The rules refuse the target, or the target does not accept the connection.
pub(crate) async fn open(worker: &Arc<Worker>, origin: &Origin) -> Result<TcpStream, Failure> {
    let opened = connect::open_by_a_way(&worker.origins, origin).await;
    worker.shared.origins.note(origin, opened.as_ref());
    opened
}

/// Copies bytes both ways once the client has been told that the tunnel is open. `ticket` accounts for it at the end.
pub(crate) fn carry(
    worker: &Arc<Worker>,
    client_side: PendingOpaque,
    target: TunnelTarget<impl AsyncRead + AsyncWrite + Send + Unpin + 'static>,
    mut ticket: Ticket,
) {
    let presence = ConnectionPresence::of(worker);
    let worker = Arc::clone(worker);
    tokio::spawn(async move {
        match client_side.opened().await {
            Ok(client) => copy(&worker, client, target, &mut ticket).await,
            Err(error) => tracing::debug!(%error, "tunnel not opened"),
        }
        drop(ticket);
        drop(presence);
    });
}

/// Copies bytes both ways until one side ends or neither makes progress.
pub(crate) async fn copy(
    worker: &Worker,
    client: impl AsyncRead + AsyncWrite + Unpin,
    target: TunnelTarget<impl AsyncRead + AsyncWrite + Unpin>,
    ticket: &mut Ticket,
) {
    let _counting = CountGuard::begin(&worker.metrics, |metrics| &metrics.tunnels_open);
    let TunnelTarget { mut stream, watched, pacer } = target;
    watched.arm(worker.policy.limits.stall);
    let mut client = PacedStream::new(client, pacer);
    let copying = tokio::io::copy_bidirectional(&mut client, &mut stream);
    match OrderWatch::new(copying, &watched, &[WatchOrder::Expire]).await {
        Some(Ok((_, to_client))) => ticket.note_sent(usize::try_from(to_client).unwrap_or(usize::MAX), true),
        Some(Err(error)) => tracing::debug!(%error, "tunnel broken off"),
        None => tracing::debug!("tunnel closed without progress"),
    }
}

/// Wraps a connection to a target with a deadline.
pub(crate) fn watched(worker: &Arc<Worker>, target: TcpStream, pacer: Option<Pacer>) -> TunnelTarget<OriginStream> {
    let watched = Arc::new(worker.watches.register());
    let stream = OriginStream::of_tunnel(target, Arc::clone(&watched), worker.policy.limits.stall);
    TunnelTarget { stream, watched, pacer }
}
