//! The policy of a site: all settings that a site can override.
//!
//! Owns: the settings that apply to one request, with their defaults. A site's policy is the general one with the
//! site's changes. It is merged when the configuration is read, and looked up once per request. Settings that apply
//! before the site is known, or to all sites together, are in [`super::Limits`] or [`super::ProxyConfig`].

use std::time::Duration;

use super::memory;

/// The settings that a site can override.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SitePolicy {
    /// The settings for caching. All sites share the key rules in [`super::ProxyConfig::policy`].
    pub cache: CacheSettings,
    /// Limits on requests, and on the origins that answer them.
    pub limits: SiteLimits,
}

/// The settings for caching.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheSettings {
    /// The settings of the HTTP caching rules.
    pub http: larder_http::Settings,
    /// Maximum length of a stored body, in bytes. Longer bodies are passed through. Default 4 GiB.
    pub entry_bytes_max: u64,
    /// Time from the beginning of the response to a page, within which requests with the page as Referer join the
    /// page's group. Default 2 s; up to 60 s.
    ///
    /// The store keeps the entries of a group together. With a longer time, slow pages stay in one group, but the next
    /// page may join it. With a shorter one, groups are split. 0 disables groups.
    pub group_window: Duration,
}

/// Limits on requests, and on the origins that answer them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteLimits {
    /// Maximum time without progress in the middle of a message, for clients and tunnels. Default 180 s.
    ///
    /// Over HTTP/2, the longest limit among the requests in progress applies to the connection.
    pub stall: Duration,
    /// Minimum rate at which a client must send a request's body, in bytes per second. Default 500. 0 means no limit.
    ///
    /// It applies until the origin begins to respond, and `body_grace` says how far a client may fall behind. A high
    /// rate disconnects clients that hold connections by sending slowly, but also clients with a slow network.
    pub body_rate: u64,
    /// Maximum time that a client may fall behind `body_rate`. Default 60 s.
    pub body_grace: Duration,
    /// Maximum time to connect to an origin, over all its addresses. Default 10 s.
    pub origin_connect: Duration,
    /// Maximum time that an origin may be silent before or within its response. Default 60 s.
    pub origin_response: Duration,
    /// Maximum number of connections to one origin, over all workers. Tunnels do not count.
    ///
    /// Further requests wait for a connection, at most for `origin_response`, and then get 503. With more, a slow
    /// origin gets more concurrent requests. Default: half of the files that the process may open, from 1000 to 16384,
    /// but at most [`super::Limits::waiting_count_max`].
    pub origin_connection_count_max: usize,
    /// Maximum time that an unused connection to an origin is kept. Default 60 s.
    pub origin_idle: Duration,
    /// Maximum number of unused connections that are kept per origin and worker. Default 64.
    pub origin_idle_count_max: usize,
}

impl SitePolicy {
    /// Returns the error in these settings, or `None` if they are valid.
    pub(super) fn fault(&self) -> Option<String> {
        let window = self.cache.group_window;
        let max = GROUP_WINDOW_MAX.as_secs();
        (window > GROUP_WINDOW_MAX).then(|| format!("group window must be at most {max} s: {} s", window.as_secs_f64()))
    }
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self { http: larder_http::Settings::default(), entry_bytes_max: 4 << 30, group_window: Duration::from_secs(2) }
    }
}

impl Default for SiteLimits {
    fn default() -> Self {
        Self {
            stall: Duration::from_secs(180),
            body_rate: 500,
            body_grace: Duration::from_secs(60),
            origin_connect: Duration::from_secs(10),
            origin_response: Duration::from_secs(60),
            origin_connection_count_max: memory::origin_connection_count_max(),
            origin_idle: Duration::from_secs(60),
            origin_idle_count_max: 64,
        }
    }
}

const GROUP_WINDOW_MAX: Duration = Duration::from_secs(60);
