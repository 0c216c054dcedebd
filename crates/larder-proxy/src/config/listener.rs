//! The addresses on which clients connect, and their protocols.

use std::{
    net::{AddrParseError, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

use ipnet::IpNet;

/// An address on which clients connect. The client's first bytes determine whether it uses HTTP/1.1 or HTTP/2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The address. For port 0, the system chooses a free port.
    pub address: SocketAddr,
    /// Whether this address uses TLS, which needs a [`TlsIdentity`]. Default no.
    pub tls: bool,
    /// Networks of load balancers that name their clients with the PROXY protocol (version 1 or 2). Connections from
    /// these networks must begin with its header; connections from other networks must not. Default none.
    pub proxied_by: Vec<IpNet>,
    /// Whether a request that names its target only by Host counts as a request to a proxy. Load balancers that are
    /// made for origin servers send such requests. Requires forward mode. Sites keep their hosts. Default no.
    pub origin_form: bool,
    /// Whether only other nodes of the fleet may connect, with certificates of their own. Needs
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

    /// Returns a listener for other nodes of the fleet.
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

/// A certificate with its key, both in PEM files. The files are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsIdentity {
    /// The certificate, followed by the intermediate certificates up to its CA.
    pub certificate: PathBuf,
    /// The private key: PKCS #8, PKCS #1 or SEC 1, without encryption.
    pub key: PathBuf,
}
