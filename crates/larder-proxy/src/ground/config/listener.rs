//! The addresses on which clients connect, and their protocols.

use std::{
    net::{AddrParseError, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

use ipnet::IpNet;

/// An address on which clients connect. The first bytes of a client show whether it uses HTTP/1.1 or HTTP/2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The address to listen on. For port 0, the system chooses a free port.
    pub address: SocketAddr,
    /// Whether this address uses TLS, which needs a [`TlsIdentity`]. Default no.
    pub tls: bool,
    /// Networks of load balancers that send a PROXY header (version 1 or 2) with their client's address. Default none.
    ///
    /// Connections from these networks must begin with the header; connections from other networks must not.
    pub proxied_by: Vec<IpNet>,
    /// Whether requests with a bare path and a Host field are forwarded to that host, unless it is a site. Default no.
    ///
    /// Load balancers that are made for origin servers send such requests. Requires forward mode.
    pub origin_form: bool,
    /// Whether only other nodes of the fleet may connect, with their certificates. Requires
    /// [`Fleet::tls`](super::Fleet::tls). Default no.
    pub for_nodes: bool,
}

impl Listener {
    /// Returns a listener without TLS.
    pub fn plain(address: SocketAddr) -> Self {
        Self { address, tls: false, proxied_by: Vec::new(), origin_form: false, for_nodes: false }
    }

    /// Returns a listener with TLS.
    pub fn tls(address: SocketAddr) -> Self {
        Self { tls: true, ..Self::plain(address) }
    }

    /// Returns a listener for other nodes of the fleet, with TLS.
    pub fn for_nodes(address: SocketAddr) -> Self {
        Self { for_nodes: true, ..Self::tls(address) }
    }
}

impl From<SocketAddr> for Listener {
    fn from(address: SocketAddr) -> Self {
        Self::plain(address)
    }
}

/// Parses an address such as `127.0.0.1:3128` as a listener without TLS.
impl FromStr for Listener {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self::plain)
    }
}

/// A certificate and its private key, as two PEM files. The files are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsIdentity {
    /// The file with the certificate, followed by the intermediate certificates up to its CA.
    pub certificate: PathBuf,
    /// The file with the private key: PKCS #8, PKCS #1 or SEC 1, unencrypted.
    pub key: PathBuf,
}
