//! The policy of a site: all that a site can override.
//!
//! Owns: the settings that apply to one request, with their defaults. A site's policy is the general one with the
//! site's changes: it is merged when the configuration is read, and looked up once per request. Whatever is decided
//! before the site is known, or for all sites together, is in [`super::Limits`] or [`super::ProxyConfig`] instead.

use std::time::Duration;

use super::memory;

/// The settings that a site can override.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SitePolicy {
    /// The settings for caching. The key rules are those of [`super::ProxyConfig::policy`] for all sites.
    pub cache: CacheSettings,
    /// Limits on requests, and on the origins that answer them.
    pub limits: SiteLimits,
}

/// The settings for caching.
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

/// Limits on requests, and on the origins that answer them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteLimits {
    /// Longest time without progress in the middle of a message, for clients and tunnels. Over HTTP/2, the longest
    /// among the requests that are being answered applies to the connection. Default 180 s.
    pub stall: Duration,
    /// Lowest rate of a request's body in bytes per second, until the origin begins to respond. `body_grace` says how
    /// far a client may fall behind. A high rate disconnects clients that hold connections by sending slowly, but also
    /// clients on slow lines. 0 permits any rate. Default 500.
    pub body_rate: u64,
    /// Longest time that a client may be behind that rate. Default 60 s.
    pub body_grace: Duration,
    /// Longest time to connect to an origin, over all its addresses. Default 10 s.
    pub origin_connect: Duration,
    /// Longest silence of an origin before and within its response. Default 60 s.
    pub origin_response: Duration,
    /// Most open connections to one origin, over all workers. Further requests wait for a connection, at most for
    /// `origin_response`, and then get 503. With more, a slow origin gets more concurrent requests. Tunnels are not
    /// counted. Default: half of the files that the process may open, from 1000 to 16384, but at least 1 and no more
    /// than [`super::Limits::waiting_count_max`].
    pub origin_connection_count_max: usize,
    /// Longest time that an unused origin connection is kept. Default 60 s.
    pub origin_idle: Duration,
    /// Most unused connections kept per origin and worker. Default 64.
    pub origin_idle_count_max: usize,
}

impl SitePolicy {
    /// Returns the error in these settings, if there is one.
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
