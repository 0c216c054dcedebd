//! Formats the Proxy-Status field (RFC 9209), which reports an error on the way to the origin.
//!
//! Cost: one or two allocations. Invariant: the result is always a valid structured field. Octets that a string must
//! not contain are left out of `details`.

use http::{HeaderValue, StatusCode};
use sfv::{Item, KeyRef, ListSerializer, Parser, TokenRef};

/// The error of an exchange with an origin, with its name from RFC 9209 2.3. Choose the most specific one: operators
/// who know other proxies search for these standard names.
///
/// ```
/// use larder_http::{ProxyStatus, proxy_status::ProxyError};
///
/// assert_eq!(ProxyError::DnsTimeout.token(), "dns_timeout");
/// assert_eq!(ProxyStatus::failed(ProxyError::DnsTimeout).to_value("Larder"), "Larder;error=dns_timeout");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyError {
    /// The resolver did not answer in time (2.3.1).
    DnsTimeout,
    /// The resolver answered with an error (2.3.2).
    DnsError,
    /// There is no origin for the request (2.3.3).
    DestinationNotFound,
    /// The origin is known to be out of service (2.3.4).
    DestinationUnavailable,
    /// The origin's address is not allowed (2.3.5).
    DestinationIpProhibited,
    /// The origin's address cannot be reached (2.3.6).
    DestinationIpUnroutable,
    /// The origin refused the connection (2.3.7).
    ConnectionRefused,
    /// The connection ended before the response was complete (2.3.8).
    ConnectionTerminated,
    /// Connecting took too long (2.3.9).
    ConnectionTimeout,
    /// The origin was silent for too long (2.3.10).
    ConnectionReadTimeout,
    /// The origin accepted no data for too long (2.3.11).
    ConnectionWriteTimeout,
    /// The limit on connections is reached (2.3.12).
    ConnectionLimitReached,
    /// TLS with the origin failed (2.3.13).
    TlsProtocolError,
    /// The origin's certificate is not trusted (2.3.14).
    TlsCertificateError,
    /// The origin ended the handshake of TLS with an alert (2.3.15).
    TlsAlertReceived,
    /// The request is malformed (2.3.16).
    HttpRequestError,
    /// The request is not allowed (2.3.17).
    HttpRequestDenied,
    /// The response ended early (2.3.18).
    HttpResponseIncomplete,
    /// The response's head is too long (2.3.19).
    HttpResponseHeaderSectionSize,
    /// The response violates HTTP (2.3.27).
    HttpProtocolError,
    /// The proxy itself created the response (2.3.28).
    ProxyInternalResponse,
    /// The proxy itself failed (2.3.29).
    ProxyInternalError,
    /// The configuration is at fault (2.3.30).
    ProxyConfigurationError,
    /// The request has passed this proxy before (2.3.31).
    ProxyLoopDetected,
}

/// One proxy's member of the Proxy-Status list.
///
/// ```
/// use larder_http::{ProxyStatus, proxy_status::ProxyError};
///
/// let status = ProxyStatus { next_hop: Some("10.0.0.5:8080"), ..ProxyStatus::failed(ProxyError::ConnectionRefused) };
/// let value = status.to_value("Larder");
/// assert!(value.to_str()?.starts_with("Larder;error=connection_refused"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProxyStatus<'a> {
    /// The error, if one occurred (2.1.1).
    pub error: Option<ProxyError>,
    /// The destination of the request: a host with an optional port (2.1.2).
    pub next_hop: Option<&'a str>,
    /// The origin's status, if the client receives a different one (2.1.4).
    pub received_status: Option<StatusCode>,
    /// A text for people (2.1.5).
    pub details: Option<&'a str>,
}

impl ProxyStatus<'_> {
    /// Creates the status of an exchange that failed with this error.
    pub fn failed(error: ProxyError) -> Self {
        Self { error: Some(error), ..Self::default() }
    }

    /// Formats this status as a member of Proxy-Status. `name` is the proxy's name in the form that [`node_name`]
    /// returns. The member belongs after those of proxies nearer to the origin.
    ///
    /// # Panics
    /// If the name is neither a token nor a string. [`node_name`] returns only valid names.
    ///
    /// [`node_name`]: crate::cache_status::node_name
    pub fn to_value(&self, name: &str) -> HeaderValue {
        let key = KeyRef::constant;
        let name: Item = Parser::new(name).parse().expect("the name of a node is an item");
        let mut list = ListSerializer::new();
        let mut member = list.bare_item(&name.bare_item);
        if let Some(error) = self.error {
            member = member.parameter(key("error"), TokenRef::constant(error.token()));
        }
        if let Some(next_hop) = self.next_hop {
            member = member.parameter(key("next-hop"), &*printable(next_hop));
        }
        if let Some(status) = self.received_status {
            member = member.parameter(key("received-status"), status.as_u16());
        }
        if let Some(details) = self.details {
            member.parameter(key("details"), &*printable(details));
        }
        let value = list.finish().expect("the list has one member");
        HeaderValue::try_from(value).expect("a structured field is printable ASCII")
    }
}

impl ProxyError {
    /// Returns the error's name in Proxy-Status.
    pub const fn token(self) -> &'static str {
        match self {
            Self::DnsTimeout => "dns_timeout",
            Self::DnsError => "dns_error",
            Self::DestinationNotFound => "destination_not_found",
            Self::DestinationUnavailable => "destination_unavailable",
            Self::DestinationIpProhibited => "destination_ip_prohibited",
            Self::DestinationIpUnroutable => "destination_ip_unroutable",
            Self::ConnectionRefused => "connection_refused",
            Self::ConnectionTerminated => "connection_terminated",
            Self::ConnectionTimeout => "connection_timeout",
            Self::ConnectionReadTimeout => "connection_read_timeout",
            Self::ConnectionWriteTimeout => "connection_write_timeout",
            Self::ConnectionLimitReached => "connection_limit_reached",
            Self::TlsProtocolError => "tls_protocol_error",
            Self::TlsCertificateError => "tls_certificate_error",
            Self::TlsAlertReceived => "tls_alert_received",
            Self::HttpRequestError => "http_request_error",
            Self::HttpRequestDenied => "http_request_denied",
            Self::HttpResponseIncomplete => "http_response_incomplete",
            Self::HttpResponseHeaderSectionSize => "http_response_header_section_size",
            Self::HttpProtocolError => "http_protocol_error",
            Self::ProxyInternalResponse => "proxy_internal_response",
            Self::ProxyInternalError => "proxy_internal_error",
            Self::ProxyConfigurationError => "proxy_configuration_error",
            Self::ProxyLoopDetected => "proxy_loop_detected",
        }
    }
}

/// Returns the text without the characters that no structured string can contain (RFC 9651 3.3.3).
fn printable(text: &str) -> sfv::String {
    let kept: String = text.chars().filter(|letter| matches!(letter, ' '..='~')).collect();
    sfv::String::from_string(kept).expect("only printable ASCII was kept")
}
