//! CONNECT: copies bytes both ways between a client and a target that the rules allow (RFC 9110 9.3.6).
//!
//! Owns: a tunnel's task. The bytes are not inspected. Invariant: connections go only to the address that was checked.
//! Cost: the runtime's two copy buffers per tunnel.

use std::{sync::Arc, time::Duration};

use http::{Request, Response};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::{
    figures::{
        metrics::{CountGuard, WorkerMetrics},
        outcome::Outcome,
    },
    ground::{
        config::ProxyConfig,
        delays::{PacedStream, Pacer},
        errors::Failure,
        target::{ODD_HOST, Origin, is_plain_host},
        watch::{OrderWatch, WatchOrder, WatchedConnection, WorkerDeadlines},
    },
    origins::{self, OriginStream, access::OriginRouter},
    road::{
        client::{opaque::PendingOpaque, response_body::ResponseBody, ticket::Ticket},
        exchange::ClientExchange,
        intercept::TunnelOpening,
        served::ServedResponse,
        steps::Onward,
    },
    run::worker::ConnectionPresence,
};

/// The target's side of a tunnel.
pub(crate) struct TunnelTarget<T> {
    pub(crate) stream: T,
    /// The deadline of `stream`. Every byte extends it.
    pub(crate) watched: Arc<WatchedConnection>,
    /// Limits the rate of the bytes to the client.
    pub(crate) pacer: Option<Pacer>,
    /// Maximum time without a byte in either direction.
    pub(crate) patience: Duration,
}

impl ClientExchange {
    /// Opens the tunnel that a CONNECT requests.
    ///
    /// # Errors
    /// The client or the target is refused, or the target is unreachable.
    pub(super) async fn open_tunnel(&mut self) -> Result<Onward, Failure> {
        let mut request = self.take_request();
        self.check_client()?;
        self.check_password(request.headers()).await?;
        let shared = Arc::clone(&self.worker.shared);
        let origin = target(&shared.config, &request)?;
        let interceptor = self.interceptor(&origin).cloned();
        // An intercepted tunnel opens even to a blocked host, and the requests inside are refused: browsers show the
        // page of such a refusal, but nothing of a refused CONNECT.
        if interceptor.is_none() {
            shared.origins.check_listed(&origin)?;
        }
        let socket = match interceptor {
            Some(_) => None,
            None if self.client.line_to(&origin).is_down() => {
                let session = self.client.session.iter();
                session.for_each(|session| session.note_missing(format!("CONNECT {origin}")));
                return Err(Failure::Offline { host: origin.to_string() });
            }
            None => Some(open(&self.worker.origins, &origin).await?),
        };
        let host = Some(origin.host.clone());
        let response = Response::new(ResponseBody::empty());
        let served = ServedResponse { response: Box::new(response), outcome: Outcome::Tunnel, origin: host, why: None };
        let client_side = PendingOpaque::of(&mut request, &self.client.switch);
        match (socket, interceptor) {
            (Some(socket), _) => {
                self.client.count(Outcome::Tunnel);
                let pacer = self.account.take_pacer();
                let target = watched(&self.worker.watches, socket, pacer, self.worker.policy.limits.stall);
                self.carry(client_side, target, &served);
            }
            (None, Some(interceptor)) => {
                // The requests inside the tunnel are counted instead.
                self.account.set_subject(None);
                let ticket = self.ticket(&served, false);
                let peer = self.client.named_peer(&self.target);
                self.intercept(TunnelOpening { client_side, origin, peer, interceptor }, ticket);
            }
            (None, None) => unreachable!("a tunnel leads to its target or to an interceptor"),
        }
        Ok(Onward::Switched(served.response))
    }

    /// Starts the task that copies bytes both ways after the response was sent. The task ends the exchange.
    pub(super) fn carry(
        &mut self,
        client_side: PendingOpaque,
        target: TunnelTarget<impl AsyncRead + AsyncWrite + Send + Unpin + 'static>,
        served: &ServedResponse,
    ) {
        let ticket = self.ticket(served, false);
        let presence = ConnectionPresence::of(&self.worker);
        carry(presence, Arc::clone(&self.worker.metrics), client_side, target, ticket);
    }
}

/// Returns the target of a CONNECT request.
///
/// # Errors
/// The target is malformed, or tunnels to it are disabled.
pub(crate) fn target(config: &ProxyConfig, request: &Request<impl Sized>) -> Result<Origin, Failure> {
    if !config.forward {
        return Err(Failure::NoSite { forwards: false });
    }
    let malformed = Failure::BadRequest("CONNECT needs a host and a port");
    // A CONNECT names only an authority (RFC 9112 3.2.3).
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

/// Connects to the target, directly or through a parent.
///
/// # Errors
/// The rules refuse the target, or the target does not accept the connection.
pub(crate) async fn open(origins: &Arc<OriginRouter>, origin: &Origin) -> Result<TcpStream, Failure> {
    let opened = origins::open_by_a_way(origins, origin).await;
    origins.shared.note(origin, opened.as_ref());
    opened
}

/// Starts the task that copies bytes both ways after the response was sent. `ticket` counts and logs the tunnel.
fn carry(
    presence: ConnectionPresence,
    metrics: Arc<WorkerMetrics>,
    client_side: PendingOpaque,
    target: TunnelTarget<impl AsyncRead + AsyncWrite + Send + Unpin + 'static>,
    mut ticket: Ticket,
) {
    tokio::spawn(async move {
        match client_side.opened().await {
            Ok(client) => copy(&metrics, client, target, &mut ticket).await,
            Err(error) => tracing::debug!(%error, "cannot open a tunnel: the client's connection failed"),
        }
        drop(ticket);
        drop(presence);
    });
}

/// Copies bytes both ways until one side closes or neither makes progress for `target.patience`.
pub(crate) async fn copy(
    metrics: &Arc<WorkerMetrics>,
    client: impl AsyncRead + AsyncWrite + Unpin,
    target: TunnelTarget<impl AsyncRead + AsyncWrite + Unpin>,
    ticket: &mut Ticket,
) {
    let _counting = CountGuard::begin(metrics, |metrics| &metrics.tunnels_open);
    let TunnelTarget { mut stream, watched, pacer, patience } = target;
    watched.arm(patience);
    let mut client = PacedStream::new(client, pacer);
    let copying = tokio::io::copy_bidirectional(&mut client, &mut stream);
    match OrderWatch::new(copying, &watched, &[WatchOrder::Expire]).await {
        Some(Ok((_, to_client))) => ticket.note_sent(usize::try_from(to_client).unwrap_or(usize::MAX), true),
        Some(Err(error)) => tracing::debug!(%error, "a tunnel ended with an error"),
        None => tracing::debug!("closing a tunnel: neither side made progress"),
    }
}

/// Sets up the deadline for a connection to a target.
pub(crate) fn watched(
    watches: &Arc<WorkerDeadlines>,
    target: TcpStream,
    pacer: Option<Pacer>,
    patience: Duration,
) -> TunnelTarget<OriginStream> {
    let watched = Arc::new(watches.register());
    let stream = OriginStream::of_tunnel(target, Arc::clone(&watched), patience);
    TunnelTarget { stream, watched, pacer, patience }
}
