//! What an origin, or the way to it, did wrong: its name in RFC 9209, and words for the operator.
//!
//! Owns: reading the errors of the libraries for names, sockets, TLS and HTTP. Does not: say anything to the client
//! (see `errors`). Invariant: the words are plain English; what a library shows of its own data never gets to a client.

use std::io;

use hickory_resolver::net::NetError;
use larder_http::proxy_status::ProxyError;
use rustls::CertificateError;

/// What went wrong with an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FaultReport {
    pub(crate) error: ProxyError,
    /// What the operator is told.
    pub(crate) why: String,
    /// What a client is told besides the error's meaning: what is wrong with a certificate.
    pub(crate) reason: Option<&'static str>,
    /// Whether a name server says so, which is then there to be asked.
    pub(crate) is_said_by_dns: bool,
}

impl FaultReport {
    pub(crate) fn new(error: ProxyError, why: impl Into<String>) -> Self {
        Self { error, why: why.into(), reason: None, is_said_by_dns: false }
    }

    /// Why a name has no address.
    pub(crate) fn of_name(error: &NetError) -> Self {
        match error {
            NetError::Timeout => Self::new(ProxyError::DnsTimeout, "the name servers do not answer"),
            _ if error.is_nx_domain() => Self::said_by_dns("there is no such name"),
            _ if error.is_no_records_found() => Self::said_by_dns("the name has no address"),
            _ => Self::new(ProxyError::DnsError, error.to_string()),
        }
    }

    fn said_by_dns(why: &str) -> Self {
        Self { is_said_by_dns: true, ..Self::new(ProxyError::DnsError, why) }
    }

    /// Why a socket did not connect.
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

    /// Why a handshake failed.
    pub(crate) fn of_tls(error: &io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match inner {
            Some(rustls::Error::InvalidCertificate(bad)) => {
                let (reason, more) = certificate_fault(bad);
                let why = format!("its certificate is refused: {reason}{more}");
                Self { reason: Some(reason), ..Self::new(ProxyError::TlsCertificateError, why) }
            }
            Some(rustls::Error::NoCertificatesPresented) => {
                Self::new(ProxyError::TlsCertificateError, "it shows no certificate")
            }
            Some(rustls::Error::AlertReceived(alert)) => {
                Self::new(ProxyError::TlsAlertReceived, format!("it ends the handshake with the alert {alert:?}"))
            }
            Some(rustls::Error::InvalidMessage(_)) => {
                Self::new(ProxyError::TlsProtocolError, "what it sends is not TLS")
            }
            _ => Self::new(ProxyError::TlsProtocolError, format!("TLS with it fails: {error}")),
        }
    }

    /// Why no response came over a connection.
    pub(crate) fn of_http(error: &hyper::Error) -> Self {
        let kind = match error {
            _ if error.is_parse_too_large() => ProxyError::HttpResponseHeaderSectionSize,
            _ if error.is_parse() => ProxyError::HttpProtocolError,
            _ => ProxyError::ConnectionTerminated,
        };
        Self::new(kind, error.to_string())
    }
}

/// What is wrong with a certificate, and what the operator is told besides.
fn certificate_fault(bad: &CertificateError) -> (&'static str, String) {
    let reason = match bad {
        CertificateError::UnknownIssuer => {
            let more = "; one of your own goes into origin_ca_file";
            return ("no authority that is trusted here has signed it", more.to_owned());
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "it is not valid yet",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => "it is for other names",
        CertificateError::Revoked => "it was revoked",
        CertificateError::BadSignature => "its signature is wrong, or made with a key that is too weak",
        other => return ("it is not as it has to be", format!(": {other}")),
    };
    (reason, String::new())
}
