//! Failures of an exchange or a body, with a status code and a short text for the client.
//!
//! Owns: the kinds of failure, their status codes and texts. `refusal` builds the response, and `origins::complaints`
//! informs the operator. Other modules decide whether a stale response is served instead. Invariant: a client gets a
//! plain description, never a library's error text.

use std::{fmt, net::IpAddr};

use http::{HeaderValue, StatusCode};
use larder_http::{fields::HostError, proxy_status::ProxyError};
use larder_wire::WireFault;

use crate::ground::{fault::FaultReport, overload::Shortage, target::permission};

/// Why an exchange has no response from the cache or an origin.
///
/// Cheap to clone, because every client that waits for the same fetch gets a copy.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The request is malformed, or this proxy cannot serve it.
    BadRequest(&'static str),
    /// The head of the request exceeds a limit, or its HTTP version is not supported.
    BadHead(WireFault),
    /// The client sends the body of its request too slowly.
    SlowBody,
    /// The request has an unknown expectation (RFC 9110 10.1.1).
    UnknownExpectation,
    /// No site matches the host. `forwards`: whether a client that uses this as its proxy could reach the host.
    NoSite { forwards: bool },
    /// The client's address is not in the list of allowed networks.
    ClientDenied,
    /// The listener serves one command (`larder exec`), and the client is a program of another user.
    OtherUser,
    /// The lists of hosts refuse the target's host. `why` names the kind of list.
    Blocked { host: String, why: &'static str },
    /// The rules for targets do not permit the target's address.
    TargetDenied { host: String, address: IpAddr, why: &'static str },
    /// The request asks for a version of WebSocket other than 13 (RFC 6455 4.4).
    WebSocketVersion,
    /// The request is for a host that the connection's certificate does not cover (RFC 9110 7.4).
    Misdirected,
    /// The request has no credentials of a known user.
    NoPassword,
    /// A limit is reached, such as memory or the number of waiting requests.
    Overloaded(Shortage),
    /// Another node of the fleet, which sent the request, knows purges that this node does not have.
    PurgesUnknown,
    /// Another node of the fleet sent the request, but its clock or rules differ, or the request is a replay.
    ///
    /// The field `proof` proves that the refusal comes from this node.
    PeerDiffers { proof: HeaderValue },
    /// CONNECT to a port that is not allowed.
    PortDenied { port: u16 },
    /// The request has passed this proxy before, or leads to one of its own listeners.
    Loop,
    /// The origin has no address, accepts no connection, or violates TLS or HTTP.
    Unusable { host: String, fault: FaultReport },
    /// The origin did not answer in time.
    Timeout { host: String },
    /// The origin closed or reset the connection before its response arrived.
    Broken { host: String, why: String },
    /// The request has `only-if-cached`, and no stored response may be used for it.
    OnlyIfCached,
    /// Origins must not be contacted, and no stored response may be used.
    Offline { host: String },
}

impl Failure {
    /// Returns the status code for the client.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) | Self::NoSite { .. } => StatusCode::BAD_REQUEST,
            Self::BadHead(fault) => fault.status(),
            Self::SlowBody => StatusCode::REQUEST_TIMEOUT,
            Self::UnknownExpectation => StatusCode::EXPECTATION_FAILED,
            Self::WebSocketVersion => StatusCode::UPGRADE_REQUIRED,
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Self::ClientDenied
            | Self::OtherUser
            | Self::PeerDiffers { .. }
            | Self::Blocked { .. }
            | Self::TargetDenied { .. }
            | Self::PortDenied { .. } => StatusCode::FORBIDDEN,
            Self::NoPassword => StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            Self::Overloaded(Shortage::ClientRequests) => StatusCode::TOO_MANY_REQUESTS,
            Self::Overloaded(_) | Self::PurgesUnknown => StatusCode::SERVICE_UNAVAILABLE,
            Self::Loop => StatusCode::LOOP_DETECTED,
            Self::Unusable { fault, .. } => match fault.error {
                ProxyError::DnsTimeout | ProxyError::ConnectionTimeout => StatusCode::GATEWAY_TIMEOUT,
                _ => StatusCode::BAD_GATEWAY,
            },
            Self::Broken { .. } => StatusCode::BAD_GATEWAY,
            Self::Timeout { .. } | Self::OnlyIfCached | Self::Offline { .. } => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// Returns whether the origin failed, so that a stale response may be served instead (RFC 9111 4.2.4).
    pub(crate) fn is_origin_failure(&self) -> bool {
        self.origin_fault().is_some()
    }

    /// Returns the origin that failed, the kind of its fault, and a description for the operator. `None` if no origin
    /// failed.
    pub(crate) fn origin_fault(&self) -> Option<(&str, ProxyError, &str)> {
        match self {
            Self::Unusable { host, fault } => Some((host, fault.error, &fault.why)),
            Self::Timeout { host } => Some((host, self.proxy_error(), "it does not respond in time")),
            Self::Broken { host, why } => Some((host, self.proxy_error(), why)),
            _ => None,
        }
    }

    /// Returns whether the proxy refuses the request by its rules, as opposed to a failure.
    pub(crate) fn is_denial(&self) -> bool {
        matches!(
            self,
            Self::ClientDenied
                | Self::OtherUser
                | Self::PeerDiffers { .. }
                | Self::NoPassword
                | Self::Blocked { .. }
                | Self::TargetDenied { .. }
                | Self::PortDenied { .. }
                | Self::Loop
        )
    }

    /// Returns the error type for the response's Proxy-Status field (RFC 9209).
    pub(crate) fn proxy_error(&self) -> ProxyError {
        match self {
            Self::BadRequest(_)
            | Self::BadHead(_)
            | Self::SlowBody
            | Self::UnknownExpectation
            | Self::WebSocketVersion
            | Self::Misdirected => ProxyError::HttpRequestError,
            Self::NoSite { .. } => ProxyError::DestinationNotFound,
            Self::ClientDenied
            | Self::OtherUser
            | Self::PeerDiffers { .. }
            | Self::NoPassword
            | Self::Blocked { .. }
            | Self::PortDenied { .. } => ProxyError::HttpRequestDenied,
            Self::TargetDenied { .. } => ProxyError::DestinationIpProhibited,
            Self::Loop => ProxyError::ProxyLoopDetected,
            Self::Unusable { fault, .. } => fault.error,
            Self::Timeout { .. } => ProxyError::ConnectionReadTimeout,
            Self::Broken { .. } => ProxyError::ConnectionTerminated,
            Self::Offline { .. } => ProxyError::DestinationUnavailable,
            Self::OnlyIfCached | Self::Overloaded(_) | Self::PurgesUnknown => ProxyError::ProxyInternalResponse,
        }
    }

    /// Returns the `details` parameter for the Proxy-Status field, if there is any.
    pub(crate) fn details(&self) -> Option<&'static str> {
        matches!(self, Self::Offline { .. }).then_some("offline")
    }

    /// Returns the name of the origin that the failure is about, if any.
    pub(crate) fn next_hop(&self) -> Option<&str> {
        match self {
            Self::TargetDenied { host, .. }
            | Self::Unusable { host, .. }
            | Self::Timeout { host }
            | Self::Broken { host, .. }
            | Self::Offline { host } => Some(host),
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadRequest(why) => write!(f, "bad request: {why}"),
            Self::BadHead(fault) => write!(f, "bad request: {fault}"),
            Self::SlowBody => f.write_str("the body of your request arrived too slowly"),
            Self::UnknownExpectation => {
                f.write_str("this proxy does not know the expectation of your request (Expect)")
            }
            Self::WebSocketVersion => f.write_str("this proxy supports version 13 of WebSocket only"),
            Self::Misdirected => f.write_str(
                "this connection's certificate does not cover the host of your request: connect under a name that it \
                 covers",
            ),
            Self::NoSite { forwards: false } => f.write_str(
                "this proxy serves sites only, and no site under this name. It forwards no requests to other hosts: \
                 the operator can permit that with forward.enabled.",
            ),
            Self::NoSite { forwards: true } => f.write_str(
                "this is a proxy, and it serves no site under this name. To use it as a forward proxy, configure \
                 your client with this address as its HTTP and HTTPS proxy, for example: \
                 http_proxy=http://ADDRESS:PORT curl http://example.com/. To make it serve a site, configure the \
                 site's origin.",
            ),
            Self::ClientDenied => f.write_str("this proxy does not serve your network"),
            Self::OtherUser => {
                f.write_str("this proxy serves the command of another user (larder exec): run larder exec yourself")
            }
            Self::NoPassword => f.write_str("this proxy requires a user and a password"),
            Self::Blocked { host, why } => write!(
                f,
                "this site is blocked on this network: {host}, because {why}. If you need it, ask the administrator of \
                 this network to allow it."
            ),
            Self::Overloaded(Shortage::ClientRequests) => {
                f.write_str("too many requests of your address are being answered, retry in 1 s")
            }
            Self::Overloaded(Shortage::Processor) => f.write_str("this proxy is overloaded, retry in 1 s"),
            Self::Overloaded(_) => f.write_str("too many requests are waiting, retry in 1 s"),
            Self::PurgesUnknown => f.write_str("purges that the asking node knows are not applied here yet"),
            Self::PeerDiffers { .. } => {
                f.write_str("the clock or the rules of the asking node differ from this node's, or its request is old")
            }
            Self::TargetDenied { host, address, why } => {
                write!(f, "target not allowed: {host} is at {address}, {why}{}", permission(*address, why))
            }
            Self::PortDenied { port } => write!(
                f,
                "target not allowed: tunnels to port {port} are off. The operator can allow it with the option for \
                 CONNECT ports."
            ),
            Self::Loop => f.write_str("loop detected: the request leads back to this proxy"),
            Self::Unusable { host, .. } | Self::Timeout { host } | Self::Broken { host, .. } => {
                write!(f, "no response from {host}: {}", in_plain_words(self.proxy_error()))?;
                if let Self::Unusable { fault: FaultReport { reason: Some(reason), .. }, .. } = self {
                    write!(f, ": {reason}")?;
                }
                f.write_str(". Try again later. If this persists, the proxy's log has the reason.")
            }
            Self::OnlyIfCached => f.write_str("no stored response can answer this only-if-cached request"),
            Self::Offline { host } => write!(
                f,
                "this proxy is offline: {host} cannot be contacted, and no stored response can answer this request. \
                 The URL is listed, to be fetched when the uplink is back."
            ),
        }
    }
}

impl From<WireFault> for Failure {
    fn from(fault: WireFault) -> Self {
        match fault {
            WireFault::Malformed(why) => Self::BadRequest(why),
            fault => Self::BadHead(fault),
        }
    }
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        Self::BadRequest(match error {
            HostError::Missing => "it has no Host",
            HostError::Repeated => "it has more than one Host",
            HostError::Invalid => "its host is not a name with an optional port",
        })
    }
}

/// Returns a description of an origin's fault in words for clients.
fn in_plain_words(error: ProxyError) -> &'static str {
    match error {
        ProxyError::DnsError => "its name has no address",
        ProxyError::DnsTimeout => "its name could not be looked up in time",
        ProxyError::ConnectionRefused => "it refuses connections",
        ProxyError::ConnectionTimeout => "connecting took too long",
        ProxyError::DestinationIpUnroutable => "its address cannot be reached",
        ProxyError::TlsCertificateError => "its certificate cannot be trusted",
        ProxyError::TlsProtocolError | ProxyError::TlsAlertReceived => "a secure connection failed",
        ProxyError::HttpProtocolError => "it does not speak HTTP",
        ProxyError::HttpResponseHeaderSectionSize => "the head of its response is too long",
        ProxyError::ConnectionReadTimeout => "it was silent for too long",
        ProxyError::ConnectionTerminated => "it closed the connection before its response was complete",
        _ => "connecting failed",
    }
}
