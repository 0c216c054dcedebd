//! The reasons why a tunnel to a listed host bypasses the cache.
//!
//! `road::intercept` determines and counts them.

use std::fmt;

/// Why a tunnel was passed on without decryption although its host is listed for interception.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BypassReason {
    /// Clients refused the certificates that Larder created for the host.
    Refused,
    /// The CA may not sign for the host.
    NotPermitted,
    /// The origin requests client certificates, which only the clients have.
    ClientCertificate,
    /// The client sent nothing, as in protocols where the server speaks first.
    Silence,
    /// The client sent something other than a TLS handshake.
    NotTls,
    /// The client's handshake offers protocols, but no version of HTTP among them.
    NotHttp,
}

impl BypassReason {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Self; 6] =
        [Self::Refused, Self::NotPermitted, Self::ClientCertificate, Self::Silence, Self::NotTls, Self::NotHttp];

    /// Returns the reason's name in metrics.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Refused => "certificate-refused",
            Self::NotPermitted => "ca-not-permitted",
            Self::ClientCertificate => "client-certificate",
            Self::Silence => "client-silent",
            Self::NotTls => "not-tls",
            Self::NotHttp => "not-http",
        }
    }
}

impl fmt::Display for BypassReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "clients refused the certificate",
            Self::NotPermitted => "the CA may not sign for it",
            Self::ClientCertificate => "the server requests a client certificate",
            Self::Silence => "the client waits for the server to speak first",
            Self::NotTls => "no TLS",
            Self::NotHttp => "TLS for a protocol other than HTTP",
        })
    }
}
