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
    /// Whether a response gets a heuristic lifetime though it answered a request with a Cookie or sets one, and does not vary
    /// by it. On, a page made for one client that does not say so is shown to others. Off, such a response is validated
    /// for each request, and never served stale. Default off.
    pub heuristic_with_cookies: bool,
    /// Whether a response with Set-Cookie is stored as any other. On, one client's cookie is given to others unless the
    /// response says `private` or `no-store`. Off, it is stored only if it says `public` or names a lifetime for shared
    /// caches. Default off.
    pub store_set_cookie: bool,
    /// How long past its lifetime a response may be served when the origin cannot be reached and the
    /// response does not forbid it (RFC 9111 4.2.4). A response's own `stale-if-error` wins over this.
    /// Default 24 hours; zero turns it off.
    pub stale_on_error_max: Duration,
    /// For how long an error counts as fresh that states no lifetime, by status. Only where RFC 9111 4.2.2
    /// lets a cache guess: with 404, 405, 410, 414, 451 and 501, and with any status if the response says
    /// `public`; elsewhere it has no effect. A longer time spares the origin questions about what it does
    /// not have, and hides for as long that it has it now. Default none.
    pub negative_lifetimes: Vec<(u16, Duration)>,
    /// Whether a client's Cache-Control and Pragma are obeyed (RFC 9111 5.2.1 lets a cache ignore
    /// them). Off, clients cannot force a request to the origin. Default on.
    pub honour_request_directives: bool,
    /// Whether selecting fields that differ only in harmless ways (white space around commas, repeated lines) choose the
    /// same variant (RFC 9111 4.1). Default on.
    pub normalise_vary: bool,
    /// Whether Accept-Language is compared without case and white space, and a variant in the one language that a request
    /// prefers answers it, whatever else it accepts (RFC 9111 4.1). More hits; an origin that chooses otherwise is not
    /// asked. Default off.
    pub normalise_language: bool,
    /// The fields that rule in place of Cache-Control and Expires, the first the strongest (RFC 9213 2.1). A
    /// response that was stored under another list is judged by this one. Default CDN-Cache-Control.
    pub targets: TargetList,
    /// Query arguments that make no difference, and names of one place. Default none.
    pub key_rules: KeyRules,
    /// What gets a content coding on its way to clients. Default nothing.
    pub compression: Compression,
}

impl Settings {
    /// The lifetime these settings give an error of this status that states none.
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
