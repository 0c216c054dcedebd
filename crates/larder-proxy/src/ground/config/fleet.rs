//! A proxy's relations to other machines: the balancers in front of it, its name, the path of health checks, and the
//! other nodes of its fleet.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use larder_http::fields::via::Pseudonym;

use super::{TlsIdentity, shared_log::SharedLog};

/// The proxies and nodes that a proxy works with: load balancers in front of it, and the other nodes of its fleet.
///
/// By default no proxy is trusted, the node has no name, and there are no other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// Networks of trusted proxies. The client's address that they send, in [`Self::client_field`] or a PROXY header,
    /// is believed. Default none.
    pub trusted_proxies: Vec<IpNet>,
    /// The field in which trusted proxies name the client. Other fields are ignored.
    ///
    /// Most load balancers forward a field that they do not write themselves, so a client could put any address there.
    pub client_field: ClientField,
    /// Path of health checks, which tell load balancers whether to use this proxy (200) or not (503).
    ///
    /// The path takes precedence over sites and mirrors. Default none.
    pub ready_path: Option<String>,
    /// Name of this node in metrics and JSON log lines. Default none.
    pub node: Option<Arc<str>>,
    /// Whether the node's name is also used in Via, CDN-Loop and Cache-Status, if there is no pseudonym.
    ///
    /// Default no, because a host's name may be internal (RFC 9110 7.6.3).
    pub shows_node: bool,
    /// All nodes of the fleet, including this one, which is found by [`Self::node`]. Each node reads the purges of all
    /// others.
    ///
    /// Default none: purges apply to this node only.
    pub nodes: Vec<FleetNode>,
    /// A host name whose addresses are the nodes, instead of a list. Requires [`Self::log`]. Default none.
    pub dns: Option<FleetName>,
    /// A file with the secret that all nodes share. Required if there are other nodes.
    pub secret_file: Option<PathBuf>,
    /// A stream in Redis or NATS that carries the purges of all nodes. The nodes then do not read each other's purges.
    /// Default none.
    pub log: Option<SharedLog>,
    /// A file with the credentials for [`Self::log`]: a password or token, or `USER:PASSWORD`. Default none.
    pub log_credentials_file: Option<PathBuf>,
    /// TLS between the nodes. Default none: they connect without TLS.
    pub tls: Option<NodeTls>,
    /// Whether the nodes share their entries. A node that lacks a response then asks the node that owns its key before
    /// the origin. Default no.
    pub shares_entries: bool,
    /// Maximum time for another node to begin its response to a request for an entry. After that, the origin is asked.
    /// Default 50 ms.
    pub sibling_patience: Duration,
    /// Length of the pieces of long bodies, in bytes. Each piece has its own owner.
    ///
    /// A multiple of 1 MiB, and the same on all nodes. Default 16 MiB.
    pub piece_bytes: u64,
    /// Maximum time that another node may be silent. After that, older stored responses are validated before use,
    /// because the other node may have purged them.
    ///
    /// With a longer time, nodes may restart slowly without that cost, but purges made on an unreachable node may take
    /// effect that much later. Default one minute; at least one second.
    pub node_timeout: Duration,
}

/// TLS between the nodes of a fleet: each node presents a certificate, and accepts only nodes with a valid one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTls {
    /// The certificate of this node. It must cover the node's host in the list of nodes, or the name of the fleet.
    pub identity: TlsIdentity,
    /// A file with the CAs that sign the nodes' certificates. No other CAs are accepted.
    pub ca_file: PathBuf,
}

/// A node of a fleet, written `NAME=HOST:PORT`. Without a name, `HOST:PORT` is the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetNode {
    /// The name, which is unique in the fleet.
    pub name: String,
    /// A host name, an IPv4 address, or an IPv6 address in brackets.
    pub host: String,
    /// The port on which the node serves its clients.
    pub port: u16,
}

/// A host name whose addresses are the nodes of a fleet, with the port of all nodes, written `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetName {
    /// The host name.
    pub host: String,
    /// The port on which all nodes serve their clients.
    pub port: u16,
}

/// Error: a text is not a node of a fleet.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidFleetNode(String);

/// The field in which trusted proxies name the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientField {
    /// The field X-Forwarded-For.
    #[default]
    XForwardedFor,
    /// The field Forwarded (RFC 7239).
    Forwarded,
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            trusted_proxies: Vec::new(),
            client_field: ClientField::default(),
            ready_path: None,
            node: None,
            shows_node: false,
            nodes: Vec::new(),
            dns: None,
            secret_file: None,
            log: None,
            log_credentials_file: None,
            tls: None,
            shares_entries: false,
            sibling_patience: Duration::from_millis(50),
            piece_bytes: 16 << 20,
            node_timeout: Duration::from_mins(1),
        }
    }
}

impl Fleet {
    /// Returns all nodes except this one.
    pub(crate) fn peers(&self) -> impl Iterator<Item = &FleetNode> {
        self.nodes.iter().filter(|node| self.node.as_deref() != Some(&*node.name))
    }

    /// Returns the names of the purge logs that this node reads: the shared log, or the logs of all other nodes.
    pub(crate) fn log_names(&self) -> Vec<Box<str>> {
        match &self.log {
            Some(log) => vec![log.to_string().into()],
            None => self.peers().map(|node| node.name.as_str().into()).collect(),
        }
    }

    /// Returns the error in these settings, or `None` if they are valid.
    pub fn fault(&self) -> Option<String> {
        if let Some(path) = self.ready_path.as_ref().filter(|path| !path.starts_with('/') || path.contains('?')) {
            return Some(format!("the path of the health check must begin with a slash and have no query: {path}"));
        }
        if let Some(fault) = self.nodes_fault().or_else(|| self.log_fault()).or_else(|| self.tls_fault()) {
            return Some(fault);
        }
        let node = self.node.as_ref().filter(|_| self.shows_node)?;
        let why = || format!("the node's name must be letters, digits, '-', '.' or '_': {node:?}");
        Pseudonym::new(node.to_string()).is_none().then(why)
    }

    fn nodes_fault(&self) -> Option<String> {
        let nodes = &self.nodes;
        if nodes.is_empty() {
            return self.dns_fault();
        }
        if self.dns.is_some() {
            return Some("the fleet has both `nodes` and `dns`".to_owned());
        }
        if nodes.len() > NODE_COUNT_MAX {
            return Some(format!("a fleet has at most {NODE_COUNT_MAX} nodes: {}", nodes.len()));
        }
        for (at, node) in nodes.iter().enumerate() {
            let is_same =
                |other: &&FleetNode| other.name == node.name || (&other.host, other.port) == (&node.host, node.port);
            if let Some(other) = nodes[..at].iter().find(is_same) {
                return Some(format!("two nodes of the fleet have one name or address: {other} and {node}"));
            }
        }
        let Some(own) = self.node.as_deref() else {
            return Some("the fleet has nodes, and this node has no name".to_owned());
        };
        if !nodes.iter().any(|node| node.name == own) {
            return Some(format!("this node is not among the nodes of its fleet: {own}"));
        }
        self.link_fault()
    }

    fn dns_fault(&self) -> Option<String> {
        match (&self.dns, self.shares_entries) {
            (None, true) => Some("the fleet has siblings, and no nodes are listed".to_owned()),
            (Some(_), false) => Some("the fleet has `dns`, which is for siblings only".to_owned()),
            (Some(_), true) if self.log.is_none() => {
                Some("the nodes of `dns` come and go, so their purges need a `log`".to_owned())
            }
            _ => None,
        }
    }

    fn tls_fault(&self) -> Option<String> {
        let has_nodes = !self.nodes.is_empty() || self.dns.is_some();
        (self.tls.is_some() && !has_nodes).then(|| "the fleet has a certificate, and no nodes are listed".to_owned())
    }

    fn log_fault(&self) -> Option<String> {
        match (&self.log, &self.node) {
            (None, _) if self.log_credentials_file.is_some() => {
                Some("the fleet has credentials for a log, and no `log`".to_owned())
            }
            (None, _) => None,
            (Some(_), None) => Some("the fleet has a log of purges, and this node has no name".to_owned()),
            (Some(log), Some(_)) => self.link_fault().or_else(|| log.system.absence()),
        }
    }

    fn link_fault(&self) -> Option<String> {
        if self.secret_file.is_none() {
            return Some("the nodes of the fleet need a secret, and no file has it".to_owned());
        }
        if self.piece_bytes == 0 || !self.piece_bytes.is_multiple_of(PIECE_UNIT_BYTES) {
            return Some(format!("the pieces of long bodies are not a multiple of 1 MiB: {}", self.piece_bytes));
        }
        let is_short = self.node_timeout < NODE_TIMEOUT_MIN;
        is_short.then(|| format!("the time-out of the fleet's nodes is less than a second: {:?}", self.node_timeout))
    }
}

impl FromStr for FleetNode {
    type Err = InvalidFleetNode;

    fn from_str(text: &str) -> Result<Self, InvalidFleetNode> {
        let bad = |why: &str| InvalidFleetNode(format!("{why}: `{text}`"));
        let (name, address) = text.split_once('=').unwrap_or((text, text));
        if !address.contains(':') {
            return Err(bad("the node has no port"));
        }
        let (host, port) = host_and_port(address).map_err(bad)?;
        if !is_word(name, b"-._:[]") {
            return Err(bad("a node's name consists of letters, digits, -, . and _"));
        }
        Ok(Self { name: name.to_owned(), host, port })
    }
}

/// Parses `HOST:PORT`. The error is the reason for refusing the text.
pub(super) fn host_and_port(address: &str) -> Result<(String, u16), &'static str> {
    let (host, port) = address.rsplit_once(':').ok_or("it has no port")?;
    let port = port.parse().ok().filter(|port| *port != 0).ok_or("not a port from 1 to 65535")?;
    let inside = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if !inside.map_or(is_word(host, b"-._"), |address| address.parse::<Ipv6Addr>().is_ok()) {
        return Err("the host is not a name or an address");
    }
    Ok((host.to_owned(), port))
}

fn is_word(text: &str, more: &[u8]) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
}

impl FromStr for FleetName {
    type Err = InvalidFleetNode;

    fn from_str(text: &str) -> Result<Self, InvalidFleetNode> {
        let bad = |why: &str| InvalidFleetNode(format!("{why}: `{text}`"));
        let (host, port) = host_and_port(text).map_err(bad)?;
        if host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok() {
            return Err(bad("an address never stands for several nodes"));
        }
        Ok(Self { host, port })
    }
}

impl fmt::Display for FleetNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}:{}", self.name, self.host, self.port)
    }
}

impl fmt::Display for InvalidFleetNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidFleetNode {}

/// Maximum number of nodes in a fleet. Each node keeps a connection to every other.
const NODE_COUNT_MAX: usize = 256;
/// Length of the chunks in which long bodies are stored, in bytes. Pieces consist of whole chunks.
const PIECE_UNIT_BYTES: u64 = 1 << 20;
const NODE_TIMEOUT_MIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::config::LogSystem;

    #[test]
    fn nodes_have_a_name_a_host_and_a_port() {
        let parsed = |text: &str| text.parse().map(|FleetNode { name, host, port }| (name, host, port));
        assert_eq!(parsed("a=10.0.0.1:80"), Ok(("a".into(), "10.0.0.1".into(), 80)));
        assert_eq!(parsed("a=[fd00::1]:80"), Ok(("a".into(), "[fd00::1]".into(), 80)));
        assert_eq!(parsed("a.example:80"), Ok(("a.example:80".into(), "a.example".into(), 80)));
        assert_eq!("a.example:80".parse(), Ok(FleetName { host: "a.example".into(), port: 80 }));
        for text in ["a.example", "a.example:0", "10.0.0.1:80", "[fd00::1]:80", "a b:80", ":80", "a=b:80"] {
            assert!(text.parse::<FleetName>().is_err(), "{text}");
        }
        for text in ["a=b", "a=b:0", "a=b:http", "a=:80", "=b:80", "a b=c:80", "a=c d:80", "a=[fd00:80", "a=b;c:80"] {
            assert!(text.parse::<FleetNode>().is_err(), "{text}");
        }
    }

    #[test]
    fn fleets_that_cannot_work_are_refused() {
        let fleet = |nodes: &[&str]| Fleet {
            node: Some("a".into()),
            nodes: nodes.iter().map(|node| node.parse().unwrap()).collect(),
            secret_file: Some("secret".into()),
            ..Fleet::default()
        };
        let good = fleet(&["a=h:1", "b=h:2"]);
        assert_eq!((good.fault(), good.log_names()), (None, vec!["b".into()]));
        let log = || Some("redis://h".parse().unwrap());
        let dns = || Some("nodes.example:80".parse().unwrap());
        let with_log = Fleet { log: log(), ..good.clone() };
        assert_eq!(with_log.fault(), LogSystem::Redis.absence());
        assert_eq!(with_log.log_names(), [Box::<str>::from("redis://h:6379/larder-purges")]);
        let many: Vec<String> = (1..=257).map(|port| format!("a{port}=h:{port}")).collect();
        for (fleet, why) in [
            (fleet(&["b=h:1"]), "this node is not among"),
            (fleet(&["a=h:1", "a=h:2"]), "one name or address: a=h:1 and a=h:2"),
            (fleet(&["a=h:1", "b=h:1"]), "one name or address"),
            (fleet(&many.iter().map(String::as_str).collect::<Vec<_>>()), "at most 256"),
            (Fleet { node: None, ..good.clone() }, "this node has no name"),
            (Fleet { secret_file: None, ..good.clone() }, "need a secret"),
            (Fleet { node_timeout: Duration::from_millis(999), ..good.clone() }, "less than a second"),
            (Fleet { piece_bytes: 0, ..good.clone() }, "not a multiple of 1 MiB: 0"),
            (Fleet { piece_bytes: 1_000_000, ..good.clone() }, "not a multiple of 1 MiB: 1000000"),
            (Fleet { log: log(), secret_file: None, ..Fleet { nodes: Vec::new(), ..good.clone() } }, "need a secret"),
            (Fleet { log: log(), node: None, ..Fleet::default() }, "this node has no name"),
            (Fleet { dns: dns(), ..good.clone() }, "both `nodes` and `dns`"),
            (Fleet { dns: dns(), nodes: Vec::new(), ..with_log.clone() }, "for siblings only"),
            (Fleet { dns: dns(), shares_entries: true, ..Fleet::default() }, "purges need a `log`"),
            (Fleet { dns: dns(), shares_entries: true, log: log(), ..Fleet::default() }, "this node has no name"),
            (
                Fleet { log_credentials_file: Some("file".into()), ..good.clone() },
                "credentials for a log, and no `log`",
            ),
        ] {
            assert!(fleet.fault().is_some_and(|fault| fault.contains(why)), "{why}: {:?}", fleet.fault());
        }
    }
}
