//! The settings that RFC 9111 leaves to the cache's operator. They are plain data; the caller checks ranges when it
//! reads its configuration.

use std::time::Duration;

use http::StatusCode;

use crate::{coding::Compression, key_rules::KeyRules, targeted::TargetList};

/// Settings of a cache. By default it is shared; [`Settings::private`] has those of a cache for one user.
///
/// ```
/// use larder_http::Settings;
/// use std::time::Duration;
///
/// // A shared cache that guesses short lifetimes, and remembers for a minute that something is not there.
/// let settings = Settings {
///     heuristic_max: Duration::from_secs(3600),
///     negative_lifetimes: vec![(404, Duration::from_secs(60))],
///     ..Settings::default()
/// };
/// assert_eq!(settings.negative_lifetime(http::StatusCode::NOT_FOUND), Some(Duration::from_secs(60)));
/// assert!(Settings::private().targets.is_private());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Share of the time since Last-Modified for which a response without an explicit lifetime counts as fresh (RFC
    /// 9111 4.2.2). A larger share saves requests, but serves old content for longer. Default 0.1; from 0.0 (off) to
    /// 1.0.
    pub heuristic_fraction: f64,
    /// Maximum heuristic lifetime. Default 24 hours.
    pub heuristic_max: Duration,
    /// Maximum heuristic lifetime of an error (4xx, 5xx), if shorter than `heuristic_max`. Default 10 seconds.
    ///
    /// The Last-Modified of an error is that of its error page, and says nothing about when the resource will appear. A
    /// longer lifetime saves requests, but hides a resource that has appeared since.
    pub heuristic_error_max: Duration,
    /// Whether a heuristic lifetime is given even to a response that may be personal. A response may be personal if it
    /// does not vary by Cookie, and its request had a Cookie or the response sets one.
    ///
    /// If on, other clients may see a page that was made for one client but does not say so. If off (the default), such
    /// a response is validated for each request and never served stale.
    pub heuristic_with_cookies: bool,
    /// Whether a response with Set-Cookie is stored like any other.
    ///
    /// If on, other clients receive the cookie unless the response says `private` or `no-store`. If off (the default),
    /// the response is stored only if it says `public` or has a lifetime for shared caches.
    pub store_set_cookie: bool,
    /// Time after its lifetime for which a response is served while the origin cannot be reached (RFC 9111 4.2.4).
    ///
    /// A response that forbids being served stale is an exception. A response's own `stale-if-error` takes precedence.
    /// Default 24 hours; zero turns it off.
    pub stale_if_error_max: Duration,
    /// Freshness lifetimes by status, for errors that state none. Default none.
    ///
    /// They apply only where RFC 9111 4.2.2 permits a heuristic: to 404, 405, 410, 414, 451 and 501, and to any status
    /// if the response says `public`. A longer lifetime saves more requests for resources that do not exist, but
    /// clients see a new resource later.
    pub negative_lifetimes: Vec<(u16, Duration)>,
    /// Whether a client's Cache-Control and Pragma are obeyed. RFC 9111 5.2.1 lets a cache ignore them. If off, clients
    /// cannot force a request to the origin. Default on.
    pub honor_request_directives: bool,
    /// Whether white space around commas, and one field split into several lines, make no difference when selecting
    /// fields are compared (RFC 9111 4.1). Default on.
    pub normalize_vary: bool,
    /// Whether Accept-Language is compared without case and white space, and a request that prefers one language gets
    /// the variant in it (RFC 9111 4.1). This gives more hits, but ignores that an origin might choose another variant.
    /// Default off.
    pub normalize_language: bool,
    /// Whether the cache is shared or private, and the fields that replace Cache-Control and Expires, the strongest
    /// first (RFC 9213 2.1). They also apply to responses that were stored under another list. Default: shared, with
    /// CDN-Cache-Control.
    pub targets: TargetList,
    /// Query arguments that keys ignore, and URL prefixes with the same content. Default none.
    pub key_rules: KeyRules,
    /// The responses to encode for clients. Default none.
    pub compression: Compression,
}

impl Settings {
    /// Returns the settings of a private cache (RFC 9111 1), such as that of an HTTP client.
    ///
    /// Responses to requests with credentials, and those that say `private` or set a cookie, are stored. `s-maxage`,
    /// `proxy-revalidate` and targeted fields are ignored. A stale response replaces an error only if the response or
    /// the request says `stale-if-error`.
    pub fn private() -> Self {
        Self {
            heuristic_with_cookies: true,
            store_set_cookie: true,
            stale_if_error_max: Duration::ZERO,
            targets: TargetList::private(),
            ..Self::default()
        }
    }

    /// Returns the longest heuristic lifetime of a response with this status.
    pub(crate) fn longest_guess(&self, status: StatusCode) -> Duration {
        if is_error(status) { self.heuristic_max.min(self.heuristic_error_max) } else { self.heuristic_max }
    }

    /// Returns the lifetime that these settings give to an error with this status that states no lifetime.
    pub fn negative_lifetime(&self, status: StatusCode) -> Option<Duration> {
        let is_listed = |listed: u16| is_error(status) && listed == status.as_u16();
        let mut listed = self.negative_lifetimes.iter().filter(|(listed, _)| is_listed(*listed));
        listed.next().map(|(_, lifetime)| *lifetime)
    }
}

fn is_error(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heuristic_fraction: 0.1,
            heuristic_max: Duration::from_hours(24),
            heuristic_error_max: Duration::from_secs(10),
            heuristic_with_cookies: false,
            store_set_cookie: false,
            stale_if_error_max: Duration::from_hours(24),
            negative_lifetimes: Vec::new(),
            honor_request_directives: true,
            normalize_vary: true,
            normalize_language: false,
            targets: TargetList::default(),
            key_rules: KeyRules::default(),
            compression: Compression::default(),
        }
    }
}
