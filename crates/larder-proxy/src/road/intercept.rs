//! Handles CONNECT to an intercepted host: the client's TLS connection ends here, not at the origin.
//!
//! Owns: a tunnel's task from the 200 to the end of the handshake, and the rules that requests inside must meet.
//! `targets::intercept` chooses the hosts, and `door::connection` serves the requests inside.
//!
//! Invariants: bytes that are not a TLS handshake for HTTP go to the target unchanged. A client whose handshake and
//! CONNECT name different hosts is connected to neither. A request inside must be for the origin that CONNECT named,
//! and is then treated like any other request for `https://`.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use bytes::BytesMut;
use http::{
    Method, Request, Uri,
    uri::{PathAndQuery, Scheme},
};
use larder_http::{fields::accepted_authority, key::normal_authority};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    figures::{metrics::WorkerMetrics, outcome::Outcome},
    ground::{
        config::normal_host,
        errors::Failure,
        target::Origin,
        watch::{OrderWatch, WatchOrder},
    },
    origins::access::OriginsShared,
    road::{
        client::{
            opaque::PendingOpaque,
            peer::Client,
            session::SessionState,
            socket::{RewoundStream, TunnelStream, TunneledConnection},
            ticket::Ticket,
        },
        exchange::ClientExchange,
        tunnel,
    },
    run::worker::{ConnectionPresence, Worker},
    targets::intercept::{
        Interceptor,
        bypass::BypassReason,
        hello::{self, FirstBytes},
        refusing_config,
    },
};

/// Whether a client's tunnel to an origin is intercepted.
pub(crate) enum Interception<'a> {
    Intercepted(&'a Arc<Interceptor>),
    /// The origin's host is listed for interception, but its tunnel is passed on without decryption for this reason.
    Bypassed(BypassReason),
    Unlisted,
}

/// Decides whether a tunnel to `origin` is intercepted, for a client with this address.
pub(super) fn interception<'a>(
    origins: &OriginsShared,
    interceptor: Option<&'a Arc<Interceptor>>,
    origin: &Origin,
    address: IpAddr,
) -> Interception<'a> {
    let host = normal_host(&origin.host);
    let Some(interceptor) = interceptor.filter(|interceptor| interceptor.lists(&host)) else {
        return Interception::Unlisted;
    };
    let asks_certificate = origins.certificate_askers.contain(origin);
    let why = if asks_certificate { Some(BypassReason::ClientCertificate) } else { interceptor.bypass(address, &host) };
    why.map_or(Interception::Intercepted(interceptor), Interception::Bypassed)
}

impl ClientExchange {
    /// Returns the interceptor for the client's tunnel to `origin`, or `None` if the tunnel is passed on.
    ///
    /// Counts the tunnel if it is passed on although its host is listed for interception.
    pub(super) fn interceptor(&self, origin: &Origin) -> Option<&Arc<Interceptor>> {
        let Self { client, worker, .. } = self;
        let of_session = client.session.as_ref().map(|session| &session.interceptor);
        let interceptor = of_session.or(worker.shared.interceptor.as_ref());
        match interception(&worker.shared.origins, interceptor, origin, client.address_of(&self.target)) {
            Interception::Intercepted(interceptor) => return Some(interceptor),
            Interception::Bypassed(why) => note_bypass(&worker.metrics, client.session.as_deref(), origin, why),
            Interception::Unlisted => {}
        }
        None
    }

    /// Starts to serve a tunnel whose 200 is being sent. `ticket` counts and logs it at the end.
    pub(super) fn intercept(&self, opening: TunnelOpening, ticket: Ticket) {
        let client = Arc::clone(&self.client);
        let worker = Arc::clone(&self.worker);
        tokio::spawn(InterceptedTunnel { client, worker, opening }.serve(ticket));
    }
}

/// Logs and counts a tunnel that is passed on without decryption although its host is listed for interception.
fn note_bypass(metrics: &WorkerMetrics, session: Option<&SessionState>, origin: &Origin, why: BypassReason) {
    let reason = why.token();
    tracing::info!(%origin, reason, "a tunnel to an intercepted host is not decrypted");
    metrics.interception_bypassed[why as usize].add(1);
    if let Some(session) = session {
        session.note_bypass(&origin.to_string(), why);
    }
}

/// The result of a client's first bytes in a tunnel.
enum TunnelOutcome {
    Http(Box<TlsStream<TunnelStream>>),
    Other(TunnelStream, BypassReason),
    Nothing,
}

/// A tunnel to be intercepted, before the client's first byte in it.
pub(crate) struct TunnelOpening {
    pub(crate) client_side: PendingOpaque,
    /// The origin that the client opened the tunnel to.
    pub(crate) origin: Origin,
    /// The address of the client.
    pub(crate) peer: SocketAddr,
    pub(crate) interceptor: Arc<Interceptor>,
}

/// A tunnel to be intercepted, with all that its task needs.
struct InterceptedTunnel {
    client: Arc<Client>,
    worker: Arc<Worker>,
    opening: TunnelOpening,
}

impl InterceptedTunnel {
    async fn serve(self, mut ticket: Ticket) {
        let Self { client, worker, opening } = self;
        let TunnelOpening { client_side, origin, peer, interceptor } = opening;
        let presence = ConnectionPresence::of(&worker);
        let limits = &worker.shared.config.limits;
        let watched = worker.watches.register();
        watched.arm(limits.header);
        let opening = open(peer, client_side, &origin, &interceptor);
        let opened = OrderWatch::new(opening, &watched, &[WatchOrder::Drain, WatchOrder::Expire]).await;
        drop(watched);
        match opened {
            Some(Ok(TunnelOutcome::Http(stream))) => {
                ticket.note_sent(0, true);
                let listener = client.listener;
                let session = client.session.clone();
                let kept = Box::new((ticket, presence));
                worker.serve_inside(TunneledConnection { stream, peer, listener, origin, session, kept });
            }
            Some(Ok(TunnelOutcome::Other(..))) if client.line_to(&origin).is_down() => {
                ticket.note_sent(0, true);
                client.session.iter().for_each(|session| session.note_missing(format!("CONNECT {origin}")));
                tracing::debug!(%origin, "closing a tunnel: its target cannot be contacted while offline");
            }
            Some(Ok(TunnelOutcome::Other(stream, why))) => {
                note_bypass(&worker.metrics, client.session.as_deref(), &origin, why);
                client.count(Outcome::Tunnel);
                match tunnel::open(&worker.origins, &origin).await {
                    Ok(target) => {
                        let pacer = worker.shared.delays.pacer(peer.ip(), &origin.host);
                        let target = tunnel::watched(&worker.watches, target, pacer, worker.policy.limits.stall);
                        tunnel::copy(&worker.metrics, stream, target, &mut ticket).await;
                    }
                    Err(failure) => {
                        client.session.iter().for_each(|session| session.note_failure(&failure));
                        tracing::debug!(%failure, %origin, "closing a tunnel: cannot connect to its target");
                    }
                }
            }
            Some(Ok(TunnelOutcome::Nothing)) | None => ticket.note_sent(0, true),
            Some(Err(error)) => {
                ticket.note_sent(0, true);
                if let Some((session, why)) = client.session.as_deref().zip(refusal(&error)) {
                    session.note_rejection(&origin.host, why);
                }
                tracing::debug!(%error, %origin, "a tunnel ended during the client's TLS handshake");
            }
        }
    }
}

/// Reads the client's first bytes in the tunnel, and does the TLS handshake if they begin one.
async fn open(
    peer: SocketAddr,
    client_side: PendingOpaque,
    origin: &Origin,
    interceptor: &Arc<Interceptor>,
) -> std::io::Result<TunnelOutcome> {
    let mut stream = client_side.opened().await?;
    let mut read = BytesMut::new();
    let first = hello::listen(&mut stream, &mut read, hello::silence_limit(origin.port)).await?;
    let stream = RewoundStream::new(read.freeze(), stream);
    let host = normal_host(&origin.host);
    let name = match first {
        FirstBytes::Tls { name } => name,
        FirstBytes::Other(why) => return Ok(TunnelOutcome::Other(stream, why)),
        FirstBytes::Nothing => return Ok(TunnelOutcome::Nothing),
    };
    if let Some(name) = name.filter(|name| *name != host) {
        tracing::warn!(host, name, %peer, "closing a tunnel: the client's TLS handshake names another host (`name`) \
                                           than its CONNECT request (`host`)");
        // This handshake fails on purpose, so that the client receives an alert.
        let _ = TlsAcceptor::from(refusing_config()?).accept(stream).await;
        return Ok(TunnelOutcome::Nothing);
    }
    let config = interceptor.server_config(&host).await?;
    match TlsAcceptor::from(config).accept(stream).await {
        Ok(stream) => Ok(TunnelOutcome::Http(Box::new(stream))),
        Err(error) => {
            if let Some(why) = refusal(&error) {
                interceptor.note_refusal(peer.ip(), &host, &why);
            }
            Err(error)
        }
    }
}

/// Returns why the client rejected the certificate, or `None` if the handshake failed for another reason.
fn refusal(error: &std::io::Error) -> Option<String> {
    use rustls::AlertDescription as Alert;
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::AlertReceived(
            alert @ (Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::UnsupportedCertificate
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::AccessDenied),
        ) => Some(format!("its alert is {alert:?}")),
        _ => None,
    }
}

/// Rewrites a request's target to absolute form, as clients of a proxy send it. The request came through a tunnel to
/// `origin`.
///
/// The request's Host field must have been checked.
///
/// # Errors
/// The request is for another origin (RFC 9110 7.4).
pub(crate) fn place<B>(origin: &Origin, request: &mut Request<B>) -> Result<(), Failure> {
    let uri = request.uri();
    if *request.method() == Method::CONNECT || uri.scheme().is_some_and(|scheme| *scheme != Scheme::HTTPS) {
        return Err(Failure::Misdirected);
    }
    let authority = accepted_authority(uri, request.headers());
    let named = origin.to_string();
    let own = normal_authority("https", &named).ok_or(Failure::Misdirected)?;
    let is_own = |authority: &str| normal_authority("https", authority).is_some_and(|asked| asked == own);
    if authority.is_some_and(|authority| !is_own(authority)) {
        return Err(Failure::Misdirected);
    }
    if uri.scheme().is_none() {
        let path = uri.path_and_query().cloned().ok_or(Failure::BadRequest("its target is not a path"))?;
        // A URI with an authority cannot have the path `*`.
        let path = if path == "*" { PathAndQuery::from_static("/") } else { path };
        let whole = Uri::builder().scheme(Scheme::HTTPS).authority(&*own).path_and_query(path).build();
        *request.uri_mut() = whole.map_err(|_| Failure::BadRequest("its target is not a path"))?;
    }
    Ok(())
}
