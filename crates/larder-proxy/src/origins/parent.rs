//! Contacts an origin through a parent, which is another proxy: by a tunnel (RFC 9110 9.3.6), or in absolute form (RFC
//! 9112 3.2.2).
//!
//! Owns: the requests to a parent, and the meaning of its responses. `connect` opens the connection. Invariants: our
//! credentials for a parent go to it alone, never to an origin, a client or a log. A parent's 407 is about our
//! credentials, so it is never passed to a client as if it were about the client's. The rules for targets apply to
//! addresses; the parent resolves names.

use std::net::IpAddr;

use http::{Request, StatusCode, Uri, header::PROXY_AUTHORIZATION};
use larder_http::proxy_status::ProxyError;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::ground::{
    config::{Parent, TargetRules},
    errors::Failure,
    fault::FaultReport,
    target::{Origin, OriginWay},
};

/// Returns a parent as the origin to connect to.
pub(crate) fn origin_of(parent: &Parent) -> Origin {
    Origin { trusted: true, way: OriginWay::Direct, ..Origin::of_client(&parent.host, parent.port) }
}

/// Checks whether a client may reach an origin through a parent. Names are not checked, because the parent resolves
/// them.
///
/// # Errors
/// The origin's host is an address that the rules refuse.
pub(crate) fn check_target(rules: &TargetRules, origin: &Origin) -> Result<(), Failure> {
    let Ok(address) = origin.host.parse::<IpAddr>() else { return Ok(()) };
    let denied = |why| Failure::TargetDenied { host: origin.host.to_string(), address, why };
    if origin.trusted { Ok(()) } else { rules.check(address).map_err(denied) }
}

/// Returns whether a parent receives requests for an origin in absolute form, instead of a CONNECT.
pub(crate) fn takes_absolute_form(origin: &Origin) -> bool {
    !origin.https && !origin.prior_http2
}

/// Rewrites a request to absolute form if it goes to a parent without a tunnel, and returns that parent. Otherwise
/// `None`.
pub(crate) fn address<'a, B>(
    parent: Option<&'a Parent>,
    origin: &Origin,
    request: &mut Request<B>,
) -> Option<&'a Parent> {
    let parent = parent.filter(|_| takes_absolute_form(origin))?;
    let path = request.uri().path_and_query().filter(|path| path.as_str().starts_with('/')).cloned();
    // In absolute form, a request for `*` has no path (RFC 9112 3.2.4).
    let path = path.map_or_else(String::new, |path| path.to_string());
    if let Ok(uri) = format!("http://{origin}{path}").parse::<Uri>() {
        *request.uri_mut() = uri;
    }
    if let Some(credentials) = &parent.credentials {
        request.headers_mut().insert(PROXY_AUTHORIZATION, credentials.clone());
    }
    Some(parent)
}

/// Returns the failure if a response to a request in absolute form is the parent's own refusal (407).
pub(crate) fn refusal(status: StatusCode, parent: &Parent) -> Option<Failure> {
    (status == StatusCode::PROXY_AUTHENTICATION_REQUIRED).then(|| refused(parent, status))
}

/// Opens a tunnel to an origin on a connection to a parent.
///
/// # Errors
/// The parent refuses the tunnel.
pub(crate) async fn open_tunnel(stream: &mut TcpStream, origin: &Origin, parent: &Parent) -> Result<(), Failure> {
    let mut head = format!("CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n").into_bytes();
    if let Some(credentials) = &parent.credentials {
        head.extend_from_slice(b"Proxy-Authorization: ");
        head.extend_from_slice(credentials.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    let broken = |error: std::io::Error| unusable(parent, FaultReport::of_socket(&error));
    stream.write_all(&head).await.map_err(broken)?;
    let status = read_status(stream, parent).await?;
    if status.is_success() { Ok(()) } else { Err(refused(parent, status)) }
}

/// Reads the head of a parent's response, and no byte beyond it, because what follows comes from the origin.
async fn read_status(stream: &mut TcpStream, parent: &Parent) -> Result<StatusCode, Failure> {
    let broken = |error: std::io::Error| unusable(parent, FaultReport::of_socket(&error));
    let odd =
        || unusable(parent, FaultReport::new(ProxyError::HttpProtocolError, "the parent did not respond with HTTP"));
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    loop {
        let seen = stream.peek(&mut piece).await.map_err(broken)?;
        if seen == 0 {
            let why = "the parent closed the connection instead of opening a tunnel";
            return Err(unusable(parent, FaultReport::new(ProxyError::ConnectionTerminated, why)));
        }
        let before = head.len();
        head.extend_from_slice(&piece[..seen]);
        let end = head.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4);
        let taken = end.map_or(seen, |end| end - before);
        stream.read_exact(&mut piece[..taken]).await.map_err(broken)?;
        if end.is_some() {
            break;
        }
        if head.len() > HEAD_BYTES_MAX {
            return Err(odd());
        }
    }
    let line = head.split(|octet| *octet == b'\r').next().and_then(|line| str::from_utf8(line).ok());
    let mut words = line.filter(|line| line.starts_with("HTTP/1.")).ok_or_else(odd)?.split(' ');
    words.nth(1).and_then(|status| status.parse().ok()).ok_or_else(odd)
}

fn refused(parent: &Parent, status: StatusCode) -> Failure {
    let (error, why) = match status.as_u16() {
        407 => (ProxyError::ProxyConfigurationError, "the parent rejected the user and password"),
        403 => (ProxyError::HttpRequestDenied, "the parent refused the tunnel"),
        504 => (ProxyError::ConnectionTimeout, "the parent did not respond in time"),
        _ => (ProxyError::DestinationUnavailable, "the parent did not open a tunnel"),
    };
    let fault = FaultReport::new(error, format!("{why} (status {})", status.as_u16()));
    unusable(parent, FaultReport { is_said_by_parent: true, ..fault })
}

fn unusable(parent: &Parent, fault: FaultReport) -> Failure {
    Failure::Unusable { host: parent.to_string(), fault }
}

/// Maximum length of the head of a parent's response, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
