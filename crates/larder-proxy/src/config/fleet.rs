//! The place of a proxy among others: the balancers in front of it, its name, and where they check its health.

use std::sync::Arc;

use ipnet::IpNet;
use larder_http::fields::via::Pseudonym;

/// The place of a proxy among others. Empty by default: no proxy is trusted, and the node has no name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// Networks of proxies whose statements about their client are believed: the field [`Self::client_field`], and a
    /// PROXY header at the start of a connection. Default none.
    pub trusted_proxies: Vec<IpNet>,
    /// The field in which those proxies name the client. The other field is ignored: most balancers pass on a field
    /// that they do not write, so a client could name any address in it.
    pub client_field: ClientField,
    /// Path at which this proxy answers whether it should receive requests: 200 or 503. It takes precedence over sites
    /// and mirrors. Default none.
    pub ready_path: Option<String>,
    /// Name of this node in metrics and JSON log lines. Default none.
    pub node: Option<Arc<str>>,
    /// Whether the node's name is also in Via, CDN-Loop and Cache-Status, if there is no pseudonym. Default no: a
    /// host's name may be internal (RFC 9110 7.6.3).
    pub shows_node: bool,
}

/// The field in which trusted proxies name the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientField {
    /// X-Forwarded-For.
    #[default]
    XForwardedFor,
    /// Forwarded (RFC 7239).
    Forwarded,
}

impl Fleet {
    /// Returns the reason why these settings are refused, if they are.
    pub(super) fn fault(&self) -> Option<String> {
        if let Some(path) = self.ready_path.as_ref().filter(|path| !path.starts_with('/') || path.contains('?')) {
            return Some(format!("the path of the health check must begin with a slash and have no query: {path}"));
        }
        let node = self.node.as_ref().filter(|_| self.shows_node)?;
        let why = || format!("the node's name must be letters, digits, '-', '.' or '_': {node:?}");
        Pseudonym::new(node.to_string()).is_none().then(why)
    }
}
