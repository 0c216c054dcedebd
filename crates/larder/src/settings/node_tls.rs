//! The settings of TLS between the nodes of a fleet, as the file gives them one by one.
//!
//! Owns: which of them belong together. `larder_proxy::NodeTls` has their meaning.

use larder_proxy::{Listener, NodeTls, ProxyConfig, TlsIdentity};
use std::{net::SocketAddr, path::PathBuf};

/// The settings of TLS between nodes. Either all four are given, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeTlsSettings {
    /// The address on which other nodes connect.
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) ca_file: Option<PathBuf>,
}

impl NodeTlsSettings {
    /// Returns the error in these settings, or `None` if they are valid.
    pub(super) fn fault(&self) -> Option<String> {
        let given = self.given();
        let missing: Vec<&str> = given.iter().filter(|(_, is_given)| !is_given).map(|(name, _)| *name).collect();
        let is_partial = !missing.is_empty() && missing.len() < given.len();
        is_partial.then(|| format!("TLS between nodes needs `{}` in [fleet] as well", missing.join("` and `")))
    }

    /// Adds TLS between nodes to a configuration, if the settings are given.
    pub(super) fn add_to(&self, config: &mut ProxyConfig) {
        let Self { listen: Some(listen), certificate: Some(certificate), key: Some(key), ca_file: Some(ca_file) } =
            self.clone()
        else {
            return;
        };
        config.listeners.push(Listener::for_nodes(listen));
        config.fleet.tls = Some(NodeTls { identity: TlsIdentity { certificate, key }, ca_file });
    }

    fn given(&self) -> [(&'static str, bool); 4] {
        [
            ("listen", self.listen.is_some()),
            ("certificate", self.certificate.is_some()),
            ("key", self.key.is_some()),
            ("ca_file", self.ca_file.is_some()),
        ]
    }
}
