//! What goes wrong in an exchange, as status and a short text for the client.
//!
//! Owns: the kinds of failure, their status codes and texts. Does not: decide whether something
//! stale is served instead. Invariant: these responses are never stored, here or downstream.

use std::{fmt, net::IpAddr};

use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use larder_http::proxy_status::{ProxyError, ProxyStatus};

use crate::client::response_body::ResponseBody;

/// Why an exchange has no answer from cache or origin. Cheap to clone: all waiters of a flight get one.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The request is not one this proxy can make sense of.
    BadRequest(&'static str),
    /// The client sends its request's body too slowly.
    SlowBody,
    /// The request expects something that nobody here knows (RFC 9110 10.1.1).
    UnknownExpectation,
    /// An origin-form request, and no site answers for its host.
    NoSite,
    /// The client's address is not in the list of allowed networks.
    ClientDenied,
    /// The target's address is refused by the rules.
    TargetDenied { host: String, address: IpAddr, why: &'static str },
    /// The request names no user with the right password.
    NoPassword,
    /// More requests wait for an answer than may.
    Overloaded,
    /// CONNECT to a port that is not allowed.
    PortDenied { port: u16 },
    /// The request has come through this proxy before, or leads to one of its own listeners.
    Loop,
    /// The name has no address.
    Resolve { host: String, why: String },
    /// No address of the origin takes connections.
    Connect { host: String, why: String },
    /// The origin did not answer in time.
    Timeout { host: String },
    /// The origin closed, reset, or sent something that is not HTTP, before its response's head was there.
    Broken { host: String, why: String },
    /// `only-if-cached`, and nothing stored answers.
    OnlyIfCached,
}

impl Failure {
    /// The status for the client.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) | Self::NoSite => StatusCode::BAD_REQUEST,
            Self::SlowBody => StatusCode::REQUEST_TIMEOUT,
            Self::UnknownExpectation => StatusCode::EXPECTATION_FAILED,
            Self::ClientDenied | Self::TargetDenied { .. } | Self::PortDenied { .. } => StatusCode::FORBIDDEN,
            Self::NoPassword => StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            Self::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            Self::Loop => StatusCode::LOOP_DETECTED,
            Self::Resolve { .. } | Self::Connect { .. } | Self::Broken { .. } => StatusCode::BAD_GATEWAY,
            Self::Timeout { .. } | Self::OnlyIfCached => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// Whether the origin is to blame, so that a stale response may stand in (RFC 9111 4.2.4).
    pub(crate) fn is_origin_failure(&self) -> bool {
        matches!(self, Self::Resolve { .. } | Self::Connect { .. } | Self::Timeout { .. } | Self::Broken { .. })
    }

    /// Whether the proxy refused, rather than failed.
    pub(crate) fn is_denial(&self) -> bool {
        matches!(
            self,
            Self::ClientDenied | Self::NoPassword | Self::TargetDenied { .. } | Self::PortDenied { .. } | Self::Loop
        )
    }

    /// What RFC 9209 calls it.
    fn proxy_error(&self) -> ProxyError {
        match self {
            Self::BadRequest(_) | Self::SlowBody | Self::UnknownExpectation => ProxyError::HttpRequestError,
            Self::NoSite => ProxyError::DestinationNotFound,
            Self::ClientDenied | Self::NoPassword | Self::PortDenied { .. } => ProxyError::HttpRequestDenied,
            Self::TargetDenied { .. } => ProxyError::DestinationIpProhibited,
            Self::Loop => ProxyError::ProxyLoopDetected,
            Self::Resolve { .. } => ProxyError::DnsError,
            Self::Connect { .. } => ProxyError::DestinationUnavailable,
            Self::Timeout { .. } => ProxyError::ConnectionTimeout,
            Self::Broken { .. } => ProxyError::ConnectionTerminated,
            Self::OnlyIfCached | Self::Overloaded => ProxyError::ProxyInternalResponse,
        }
    }

    /// The origin it is about.
    fn next_hop(&self) -> Option<&str> {
        match self {
            Self::TargetDenied { host, .. }
            | Self::Resolve { host, .. }
            | Self::Connect { host, .. }
            | Self::Timeout { host }
            | Self::Broken { host, .. } => Some(host),
            _ => None,
        }
    }

    /// The response for the client.
    pub(crate) fn response(&self) -> Response<ResponseBody> {
        let mut response = Response::new(ResponseBody::full(format!("{self}\n").into()));
        *response.status_mut() = self.status();
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let status = ProxyStatus { next_hop: self.next_hop(), ..ProxyStatus::failed(self.proxy_error()) };
        fields.insert(HeaderName::from_static("proxy-status"), status.to_value());
        match self {
            Self::NoPassword => {
                let challenge = HeaderValue::from_static("Basic realm=\"proxy\", charset=\"UTF-8\"");
                fields.insert(header::PROXY_AUTHENTICATE, challenge);
            }
            Self::Overloaded => {
                fields.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        // What follows a malformed request on the connection, or one whose body may not come, cannot be trusted
        // (RFC 9112 9.6).
        if matches!(self, Self::BadRequest(_) | Self::SlowBody | Self::UnknownExpectation | Self::ClientDenied) {
            fields.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadRequest(why) => write!(f, "bad request: {why}"),
            Self::SlowBody => f.write_str("the body of your request came too slowly"),
            Self::UnknownExpectation => f.write_str("your request expects what this proxy does not know"),
            Self::NoSite => f.write_str(
                "this is a proxy, and it serves no site of its own under this name. To use it as a forward proxy, \
                 configure your client with this address as its HTTP and HTTPS proxy, for example: \
                 http_proxy=http://ADDRESS:PORT curl http://example.com/. To have it answer for a site, \
                 configure the site's origin.",
            ),
            Self::ClientDenied => f.write_str("your address is not among the client networks this proxy serves"),
            Self::NoPassword => f.write_str("this proxy wants a user and a password"),
            Self::Overloaded => f.write_str("too many requests wait for an answer, retry in 1 s"),
            Self::TargetDenied { host, address, why } => write!(
                f,
                "target not allowed: {host} is at {address}, {why}. The operator can allow its network with the \
                 option for allowed targets."
            ),
            Self::PortDenied { port } => write!(
                f,
                "target not allowed: tunnels to port {port} are off. The operator can allow it with the option for \
                 CONNECT ports."
            ),
            Self::Loop => f.write_str("loop detected: the request leads back to this proxy"),
            Self::Resolve { host, why } => write!(f, "could not resolve {host}: {why}"),
            Self::Connect { host, why } => write!(f, "could not connect to {host}: {why}"),
            Self::Timeout { host } => write!(f, "{host} did not answer in time"),
            Self::Broken { host, why } => write!(f, "{host} broke off before its response: {why}"),
            Self::OnlyIfCached => f.write_str("nothing stored answers this only-if-cached request"),
        }
    }
}
