//! Faults of an origin, or of the path to it: the name in RFC 9209, and a description for the operator.
//!
//! Owns: the translation of library errors for names, sockets, TLS and HTTP. The client's text is in `errors`.
//! Invariant: the description is plain English; a client never sees a library's internal data.

use std::io;

use hickory_resolver::net::NetError;
use larder_http::proxy_status::ProxyError;
use larder_wire::WireFault;
use rustls::CertificateError;

use crate::origins::http1::ExchangeFault;

/// A fault of an origin, or of the path to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FaultReport {
    pub(crate) error: ProxyError,
    /// A description of the fault, for the operator.
    pub(crate) why: String,
    /// The fault of the origin's certificate, in words for the client. `None` for all other faults.
    pub(crate) reason: Option<&'static str>,
    /// Whether a name server reported the fault, which shows that a name server is reachable.
    pub(crate) is_said_by_dns: bool,
    /// Whether a parent reported the fault. No other parent is tried then, because this one is reachable.
    pub(crate) is_said_by_parent: bool,
}

impl FaultReport {
    pub(crate) fn new(error: ProxyError, why: impl Into<String>) -> Self {
        Self { error, why: why.into(), reason: None, is_said_by_dns: false, is_said_by_parent: false }
    }

    /// Describes a failed name lookup.
    pub(crate) fn of_name(error: &NetError) -> Self {
        match error {
            NetError::Timeout => Self::new(ProxyError::DnsTimeout, "the name servers did not respond"),
            _ if error.is_nx_domain() => Self::said_by_dns("the name does not exist"),
            _ if error.is_no_records_found() => Self::said_by_dns("the name has no address"),
            _ => Self::new(ProxyError::DnsError, error.to_string()),
        }
    }

    fn said_by_dns(why: &str) -> Self {
        Self { is_said_by_dns: true, ..Self::new(ProxyError::DnsError, why) }
    }

    /// Describes a failed connect.
    pub(crate) fn of_socket(error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::ConnectionRefused => ProxyError::ConnectionRefused,
            io::ErrorKind::TimedOut => ProxyError::ConnectionTimeout,
            io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::AddrNotAvailable => ProxyError::DestinationIpUnroutable,
            _ => ProxyError::DestinationUnavailable,
        };
        Self::new(kind, error.to_string())
    }

    /// Describes a failed TLS handshake with an origin.
    pub(crate) fn of_tls(error: &io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match inner {
            Some(rustls::Error::InvalidCertificate(bad)) => {
                let (reason, more) = certificate_fault(bad);
                let why = format!("its certificate was rejected: {reason}{more}");
                Self { reason: Some(reason), ..Self::new(ProxyError::TlsCertificateError, why) }
            }
            Some(rustls::Error::NoCertificatesPresented) => {
                Self::new(ProxyError::TlsCertificateError, "it presented no certificate")
            }
            Some(rustls::Error::AlertReceived(alert)) => {
                Self::new(ProxyError::TlsAlertReceived, format!("it ended the handshake with the alert {alert:?}"))
            }
            Some(rustls::Error::InvalidMessage(_)) => {
                Self::new(ProxyError::TlsProtocolError, "it did not respond with TLS")
            }
            _ => Self::new(ProxyError::TlsProtocolError, format!("the TLS handshake failed: {error}")),
        }
    }

    /// Describes a failed TLS handshake with another node, whose certificate a CA of the fleet must sign.
    pub(crate) fn of_node_tls(error: &io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let is_unknown = matches!(inner, Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)));
        match is_unknown {
            true => {
                let why = "its certificate was rejected: no CA in the fleet's `ca_file` has signed it";
                Self::new(ProxyError::TlsCertificateError, why)
            }
            false => Self::of_tls(error),
        }
    }

    /// Describes an HTTP/2 stream that ended without a response.
    pub(crate) fn of_http2(error: &h2::Error) -> Self {
        // h2 itself ends a stream or connection only if the origin violates the protocol.
        let kind = if error.is_library() { ProxyError::HttpProtocolError } else { ProxyError::ConnectionTerminated };
        Self::new(kind, error.to_string())
    }

    /// Describes an HTTP/1.1 exchange that ended without a response.
    pub(crate) fn of_exchange(fault: &ExchangeFault) -> Self {
        let kind = match fault {
            ExchangeFault::Response(WireFault::TooLarge) => ProxyError::HttpResponseHeaderSectionSize,
            ExchangeFault::Response(_) => ProxyError::HttpProtocolError,
            ExchangeFault::Closed | ExchangeFault::Socket(_) | ExchangeFault::RequestBody(_) => {
                ProxyError::ConnectionTerminated
            }
        };
        Self::new(kind, fault.to_string())
    }
}

/// Returns what is wrong with a certificate, and further advice for the operator.
pub(crate) fn certificate_fault(bad: &CertificateError) -> (&'static str, String) {
    let reason = match bad {
        CertificateError::UnknownIssuer => {
            let more = "; add your own CA to origin_ca_file";
            return ("no trusted CA has signed it", more.to_owned());
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "it is not valid yet",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it does not cover the host's name"
        }
        CertificateError::Revoked => "it was revoked",
        CertificateError::BadSignature => "its signature is wrong, or made with a key that is too weak",
        other => return ("it is invalid", format!(": {other}")),
    };
    (reason, String::new())
}
