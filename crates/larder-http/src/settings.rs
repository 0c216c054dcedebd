//! What RFC 9111 leaves to the cache's operator. Plain data; the caller checks ranges when it reads
//! its configuration.

use std::time::Duration;

use http::StatusCode;

use crate::{coding::Compression, key_rules::KeyRules, targeted::TargetList};

/// Settings of a shared cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Share of the time since Last-Modified for which a response without an explicit lifetime counts
    /// as fresh (RFC 9111 4.2.2). More saves requests and serves old content longer. Default 0.1;
    /// from 0.0 (off) to 1.0.
    pub heuristic_fraction: f64,
    /// Longest heuristic lifetime. Default 24 hours.
    pub heuristic_max: Duration,
    /// Give a response a heuristic lifetime although its request had a Cookie or it sets one, and it does not vary by
    /// Cookie.
    ///
    /// On: a page made for one client that does not say so is shown to others. Off, the default: such a response is
    /// validated for each request and never served stale.
    pub heuristic_with_cookies: bool,
    /// Whether a response with Set-Cookie is stored as any other. On, one client's cookie is given to others unless the
    /// response says `private` or `no-store`. Off, it is stored only if it says `public` or names a lifetime for shared
    /// caches. Default off.
    pub store_set_cookie: bool,
    /// Longest time after its lifetime that a response is served if the origin cannot be reached and the response does not
    /// forbid it (RFC 9111 4.2.4). A response's own `stale-if-error` takes precedence. Default 24 hours; zero turns it
    /// off.
    pub stale_on_error_max: Duration,
    /// Freshness lifetimes by status, for errors that state none. Default none.
    ///
    /// They apply only where RFC 9111 4.2.2 permits a heuristic: to 404, 405, 410, 414, 451 and 501, and to any status
    /// if the response says `public`. A longer lifetime saves requests for resources that do not exist, and delays by
    /// as long the moment at which a new resource is seen.
    pub negative_lifetimes: Vec<(u16, Duration)>,
    /// Whether a client's Cache-Control and Pragma are obeyed (RFC 9111 5.2.1 lets a cache ignore
    /// them). Off, clients cannot force a request to the origin. Default on.
    pub honour_request_directives: bool,
    /// Select the same variant for selecting fields that differ only in harmless ways: white space around commas,
    /// repeated lines (RFC 9111 4.1). Default on.
    pub normalise_vary: bool,
    /// Compare Accept-Language without case and white space, and answer with a variant in the one language that a
    /// request prefers, although it accepts others (RFC 9111 4.1). This gives more hits, but an origin that would choose
    /// differently is not consulted. Default off.
    pub normalise_language: bool,
    /// The fields that rule in place of Cache-Control and Expires, the first the strongest (RFC 9213 2.1). A
    /// response that was stored under another list is judged by this one. Default CDN-Cache-Control.
    pub targets: TargetList,
    /// Query arguments that make no difference, and names of one place. Default none.
    pub key_rules: KeyRules,
    /// The responses to encode for clients. Default none.
    pub compression: Compression,
}

impl Settings {
    /// Returns the lifetime that these settings give an error with this status that states none.
    pub fn negative_lifetime(&self, status: StatusCode) -> Option<Duration> {
        let is_error = status.is_client_error() || status.is_server_error();
        let mut listed = self.negative_lifetimes.iter().filter(|(listed, _)| is_error && *listed == status.as_u16());
        listed.next().map(|(_, lifetime)| *lifetime)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heuristic_fraction: 0.1,
            heuristic_max: Duration::from_hours(24),
            heuristic_with_cookies: false,
            store_set_cookie: false,
            stale_on_error_max: Duration::from_hours(24),
            negative_lifetimes: Vec::new(),
            honour_request_directives: true,
            normalise_vary: true,
            normalise_language: false,
            targets: TargetList::default(),
            key_rules: KeyRules::default(),
            compression: Compression::default(),
        }
    }
}
