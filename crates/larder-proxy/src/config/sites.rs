//! Sites: the requests they match, the origins these go to, and the cache settings.
//!
//! Owns: the definition of a site, and the settings of `[cache]`, which each site can override. `routes` finds the site
//! of a request. Invariant: everything stored under one key comes from one origin, so the origin depends on host and
//! path only, as keys do.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use super::Origins;

/// Requests that go to their own origins, or have their own cache settings.
///
/// The first site that matches a request determines how it is cached. The first matching site with origins determines
/// where it goes.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// The site's name in logs and metrics.
    pub name: String,
    /// Host names that the site matches, without port. `*.NAME` matches all names below a name. If empty, all hosts
    /// match.
    pub hosts: Vec<String>,
    /// Path prefixes that the site matches, in whole segments, such as `/app`. If empty, all paths match.
    pub paths: Vec<String>,
    /// Listeners whose requests the site matches, by their addresses in [`super::ProxyConfig::listeners`]. If empty,
    /// all listeners match. Only a site without origins may name listeners.
    pub listeners: Vec<SocketAddr>,
    /// The origins of the site's requests. Without any, requests go where they would go without the site.
    pub origins: Option<Arc<Origins>>,
    /// The cache settings. Default: [`super::ProxyConfig::cache`].
    pub cache: Option<CacheSettings>,
}

/// The cache settings of a site, or of all sites without their own.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheSettings {
    /// The settings of the caching rules.
    pub http: larder_http::Settings,
    /// Longest body that is stored, in bytes. Longer bodies are passed through. Default 4 GiB.
    pub entry_bytes_max: u64,
    /// Time after a page's head during which requests that refer to it join its page group. The store keeps the entries
    /// of a group together. A longer time keeps slow pages in one group, but the next page may join it; a shorter one
    /// splits groups. 0 forms no groups. Default 2 s; up to 60 s.
    pub group_window: Duration,
}

impl Site {
    /// Returns a site for one host, whose requests go to these origins.
    pub fn of_host(host: &str, origins: Arc<Origins>) -> Self {
        Self { name: host.to_owned(), hosts: vec![host.to_owned()], origins: Some(origins), ..Self::default() }
    }

    /// Returns the error in the site's settings, if there is one.
    pub(super) fn fault(&self, listeners: &[SocketAddr], all: &CacheSettings) -> Option<String> {
        let name = &self.name;
        if self.hosts.is_empty() && self.paths.is_empty() && self.listeners.is_empty() {
            return Some(format!("a site needs a host, a path or a listener: {name}"));
        }
        if !self.listeners.is_empty() && self.origins.is_some() {
            return Some(format!(
                "a site with listeners cannot have an origin, because all listeners share stored responses: {name}"
            ));
        }
        let is_read_otherwise = self.cache.as_ref().is_some_and(|cache| cache.http.targets != all.http.targets);
        if !self.listeners.is_empty() && is_read_otherwise {
            return Some(format!("a site with listeners cannot have its own targeted fields: {name}"));
        }
        if let Some(unknown) = self.listeners.iter().find(|listener| !listeners.contains(listener)) {
            return Some(format!("a site names an unknown listener: {unknown}"));
        }
        if let Some(path) = self.paths.iter().find(|path| !path.starts_with('/') || path.contains(['?', '#'])) {
            return Some(format!("a site's path must begin with a slash and have no query: {path}"));
        }
        let fault = self.cache.as_ref().and_then(CacheSettings::fault);
        fault.or_else(|| self.origins.as_ref().and_then(|origins| origins.fault()))
    }
}

impl CacheSettings {
    /// Returns the error in these settings, if there is one.
    pub(super) fn fault(&self) -> Option<String> {
        let window = self.group_window;
        let max = GROUP_WINDOW_MAX.as_secs();
        (window > GROUP_WINDOW_MAX).then(|| format!("group window must be at most {max} s: {} s", window.as_secs_f64()))
    }
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self { http: larder_http::Settings::default(), entry_bytes_max: 4 << 30, group_window: Duration::from_secs(2) }
    }
}

const GROUP_WINDOW_MAX: Duration = Duration::from_secs(60);
