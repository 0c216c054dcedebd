//! Sites: which requests they match, their origins, and their policies.
//!
//! Owns: the definition of a site. `policy` has the settings that a site can override, and `routes` finds the site of a
//! request. Invariant: everything stored under one key comes from one origin, so the origin depends on host and path
//! only, as keys do.

use std::{net::SocketAddr, sync::Arc};

use super::{Origins, SitePolicy};

/// Requests that go to their own origins, or have their own policy.
///
/// The first site that matches a request determines its policy. The first matching site with origins determines where
/// it goes.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// The name of the site in logs and metrics.
    pub name: String,
    /// Host names that the site matches, without port. `*.NAME` matches all names below NAME. If empty, all hosts
    /// match.
    pub hosts: Vec<String>,
    /// Path prefixes that the site matches, by whole segments, such as `/app`. If empty, all paths match.
    pub paths: Vec<String>,
    /// Listeners whose requests the site matches, by their addresses in [`super::ProxyConfig::listeners`]. If empty,
    /// all match.
    ///
    /// Only a site without origins may name listeners.
    pub listeners: Vec<SocketAddr>,
    /// The origins of the site's requests. `None`: requests go where they would without the site.
    pub origins: Option<Arc<Origins>>,
    /// The policy of the site's requests. `None` for the general policy, [`super::ProxyConfig::policy`].
    pub policy: Option<SitePolicy>,
}

impl Site {
    /// Creates a site for one host, whose requests go to these origins.
    pub fn of_host(host: &str, origins: Arc<Origins>) -> Self {
        Self { name: host.to_owned(), hosts: vec![host.to_owned()], origins: Some(origins), ..Self::default() }
    }

    /// Returns the error in this site's settings, or `None` if they are valid.
    pub(super) fn fault(&self, listeners: &[SocketAddr], general: &SitePolicy) -> Option<String> {
        let name = &self.name;
        if self.hosts.is_empty() && self.paths.is_empty() && self.listeners.is_empty() {
            return Some(format!("a site needs a host, a path or a listener: {name}"));
        }
        if !self.listeners.is_empty() && self.origins.is_some() {
            return Some(format!(
                "a site with listeners cannot have an origin, because all listeners share stored responses: {name}"
            ));
        }
        let targets = |policy: &SitePolicy| policy.cache.http.targets.clone();
        let is_read_otherwise = self.policy.as_ref().is_some_and(|own| targets(own) != targets(general));
        if !self.listeners.is_empty() && is_read_otherwise {
            return Some(format!("a site with listeners cannot have its own targeted fields: {name}"));
        }
        if let Some(unknown) = self.listeners.iter().find(|listener| !listeners.contains(listener)) {
            return Some(format!("a site names an unknown listener: {unknown}"));
        }
        if let Some(path) = self.paths.iter().find(|path| !path.starts_with('/') || path.contains(['?', '#'])) {
            return Some(format!("a site's path must begin with a slash and have no query: {path}"));
        }
        let fault = self.policy.as_ref().and_then(SitePolicy::fault);
        fault.or_else(|| self.origins.as_ref().and_then(|origins| origins.fault()))
    }
}
