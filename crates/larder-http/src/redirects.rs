//! Decides about redirects that are followed for a client: where they lead (RFC 9110 15.4), and how they constrain the
//! final response.
//!
//! The caller sends the requests and checks host addresses. Invariants: the final response is never fresh for longer
//! than any of its redirects. It is not stored if one of them forbids storing, and not served stale if one of them
//! forbids that, unless an operator's rule gives it a lifetime. No step leads from `https` to `http` unless the
//! operator allows it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use http::{
    HeaderMap, StatusCode, Uri,
    header::{CONTENT_LOCATION, LOCATION, VARY},
};

use crate::{
    Reason, Settings, Storability,
    chain::Chain,
    facts::Facts,
    freshness::{Freshness, Receipt},
    list::single,
    reference,
    ruling::RedirectPolicy,
    storable::{self, Exchange},
};

/// Returns the target of a redirect of a GET or HEAD for `url`. `None` if the response is not a redirect, or if its
/// target is not an `http` or `https` URL.
pub fn target(url: &Uri, status: StatusCode, fields: &HeaderMap) -> Option<Uri> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = single(fields, &LOCATION)?.to_str().ok()?;
    let target = reference::resolve(url, location)?;
    let authority = target.authority()?.as_str();
    let is_served = matches!(target.scheme_str(), Some("http" | "https")) && !authority.contains('@');
    is_served.then_some(target)
}

/// Returns whether the proxy itself follows a redirect from `from` to `to` under a rule's policy.
pub fn may_follow(from: &Uri, to: &Uri, following: RedirectPolicy) -> bool {
    let is_downgrade = from.scheme_str() == Some("https") && to.scheme_str() != Some("https");
    match following {
        RedirectPolicy::None => false,
        RedirectPolicy::Safe => !is_downgrade,
        RedirectPolicy::All => true,
    }
}

/// Returns whether two URLs have the same origin (RFC 9110 4.3.1).
pub fn is_same_origin(left: &Uri, right: &Uri) -> bool {
    reference::is_same_origin(left, right)
}

/// Returns a hash of a URL, for comparison with others. The query is left out, because it often contains a signature
/// that is new each time.
pub fn mark_of(url: &Uri) -> u64 {
    let mut hasher = DefaultHasher::new();
    (url.scheme_str(), url.authority().map(http::uri::Authority::as_str), url.path()).hash(&mut hasher);
    hasher.finish() & MARK_MASK
}

/// Returns the constraints of all redirects so far: those before, `before`, combined with one more redirect, which
/// leads to `target`.
///
/// ```
/// use http::{HeaderMap, Method, StatusCode};
/// use larder_http::{Settings, Timestamp, redirects, storable::Exchange};
///
/// let now = Timestamp::from_secs(1_800_000_000);
/// let mut fields = HeaderMap::new();
/// fields.insert("location", "https://cdn.example/file?expires=1800000300".parse()?);
/// fields.insert("cache-control", "max-age=300".parse()?);
/// let redirect = Exchange {
///     method: &Method::GET,
///     request_fields: &HeaderMap::new(),
///     status: StatusCode::FOUND,
///     response_fields: &fields,
///     request_time: now,
///     response_time: now,
/// };
/// let url = "https://files.example/file".parse()?;
/// let target = redirects::target(&url, redirect.status, &fields).expect("a redirect");
/// let chain = redirects::through(None, &redirect, &target, &Settings::default());
/// // The file behind the redirect is fresh for five minutes at most, because the redirect is.
/// assert_eq!(chain.fresh_secs, 300);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn through(before: Option<Chain>, redirection: &Exchange<'_>, target: &Uri, settings: &Settings) -> Chain {
    let fields = redirection.response_fields;
    let facts = Facts::of(fields, &settings.targets);
    let directives = &facts.directives;
    let receipt = Receipt {
        status: redirection.status,
        age_secs: facts.age_secs(),
        request_time: redirection.request_time,
        response_time: redirection.response_time,
        answered_cookie: false,
    };
    let freshness = Freshness::new(&receipt, &facts);
    let left_millis = freshness.lifetime_millis(settings).saturating_sub(freshness.initial_age_millis).max(0);
    let left_secs = if directives.no_cache { 0 } else { left_millis / 1000 };
    let exchange = Exchange { method: &http::Method::GET, ..*redirection };
    let is_storable = match storable::decide(&exchange, settings) {
        Storability::Store { .. } => true,
        // These reasons mean that storing is not worthwhile. They do not forbid it.
        Storability::Refuse { reason } => {
            matches!(reason, Reason::Status | Reason::NothingToReuse | Reason::NoCache)
        }
    };
    let led_to = mark_of(target);
    let first = Chain { fresh_secs: u32::MAX, forbids_stale: false, is_storable: true, first_to: led_to, led_to };
    let before = before.unwrap_or(first);
    Chain {
        fresh_secs: before.fresh_secs.min(u32::try_from(left_secs).unwrap_or(u32::MAX)),
        forbids_stale: before.forbids_stale || directives.forbids_stale(),
        is_storable: before.is_storable && is_storable,
        first_to: before.first_to,
        led_to,
    }
}

/// Adds fields of a redirect to those of the final response: its Vary, and `X-...` fields that the response lacks.
///
/// References relative to the URL of the final response become absolute.
pub fn complete(fields: &mut HeaderMap, redirection: &HeaderMap, answered: &Uri) {
    for value in redirection.get_all(VARY) {
        fields.append(VARY, value.clone());
    }
    for (name, value) in redirection.iter().filter(|(name, _)| name.as_str().starts_with("x-")) {
        fields.entry(name).or_insert_with(|| value.clone());
    }
    let location = single(fields, &CONTENT_LOCATION).and_then(|value| value.to_str().ok());
    let absolute = location.and_then(|location| reference::resolve(answered, location));
    if let Some(value) = absolute.and_then(|uri| uri.to_string().parse().ok()) {
        fields.insert(CONTENT_LOCATION, value);
    }
}

/// Mask for the results of [`mark_of`], which must be integers of a structured field (RFC 9651 3.3.1).
const MARK_MASK: u64 = (1 << 49) - 1;

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Method};

    use super::*;
    use crate::Timestamp;

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), HeaderValue::from_static(value)))
            .collect()
    }

    fn chain(status: u16, lines: &[(&'static str, &'static str)]) -> Chain {
        let request_fields = HeaderMap::new();
        let response_fields = fields(lines);
        let now = Timestamp::from_millis(1_000_000_000_000);
        let exchange = Exchange {
            method: &Method::GET,
            request_fields: &request_fields,
            status: StatusCode::from_u16(status).unwrap(),
            response_fields: &response_fields,
            request_time: now,
            response_time: now,
        };
        through(None, &exchange, &uri("http://b/c"), &Settings::default())
    }

    #[test]
    fn redirections_lead_where_they_say() {
        let from = uri("https://a.example/x/y?q");
        for (status, location, expected) in [
            (301, "/z", Some("https://a.example/z")),
            (302, "z?k=1#part", Some("https://a.example/x/z?k=1")),
            (303, "//b.example/z", Some("https://b.example/z")),
            (307, "http://b.example:81/", Some("http://b.example:81/")),
            (308, "ftp://b.example/", None),
            (302, "http://user@b.example/", None),
            (302, "mailto:x", None),
            (304, "/z", None),
            (300, "/z", None),
            (200, "/z", None),
        ] {
            let found = target(&from, StatusCode::from_u16(status).unwrap(), &fields(&[("location", location)]));
            assert_eq!(found.map(|uri| uri.to_string()).as_deref(), expected, "{status} {location}");
        }
        let mut twice = fields(&[("location", "/a")]);
        twice.append(LOCATION, HeaderValue::from_static("/b"));
        assert_eq!(target(&from, StatusCode::FOUND, &twice), None);
    }

    #[test]
    fn https_is_left_only_if_it_is_said() {
        let secure = uri("https://a/");
        let plain = uri("http://a/");
        for (from, to, following, may) in [
            (&secure, &secure, RedirectPolicy::None, false),
            (&secure, &secure, RedirectPolicy::Safe, true),
            (&plain, &secure, RedirectPolicy::Safe, true),
            (&plain, &plain, RedirectPolicy::Safe, true),
            (&secure, &plain, RedirectPolicy::Safe, false),
            (&secure, &plain, RedirectPolicy::All, true),
        ] {
            assert_eq!(may_follow(from, to, following), may, "{from} {to} {following:?}");
        }
    }

    #[test]
    fn shortest_lifetime_and_strictest_word_count() {
        let year = chain(301, &[("cache-control", "max-age=1000")]);
        assert_eq!((year.fresh_secs, year.forbids_stale, year.is_storable), (1000, false, true));
        assert_eq!(chain(302, &[]).fresh_secs, 0, "a redirection of no lifetime is asked for each time");
        assert_eq!(chain(301, &[("cache-control", "max-age=60"), ("age", "50")]).fresh_secs, 10);
        let strict = chain(302, &[("cache-control", "no-cache")]);
        assert!(strict.forbids_stale && strict.is_storable && strict.fresh_secs == 0);
        assert!(!chain(302, &[("cache-control", "max-age=9, private")]).is_storable);
        assert!(!chain(302, &[("cache-control", "no-store")]).is_storable);
        assert!(!chain(302, &[("cache-control", "max-age=9"), ("set-cookie", "a=b")]).is_storable);
        assert!(!chain(302, &[("cache-control", "max-age=9"), ("vary", "*")]).is_storable);
    }

    #[test]
    fn url_is_told_from_others_but_not_by_its_signature() {
        assert_eq!(mark_of(&uri("http://a/b?sig=1")), mark_of(&uri("http://a/b?sig=2")));
        assert_ne!(mark_of(&uri("http://a/b")), mark_of(&uri("http://a/c")));
        assert_ne!(mark_of(&uri("http://a/b")), mark_of(&uri("https://a/b")));
    }

    #[test]
    fn what_a_redirection_says_besides_is_kept() {
        let mut found = fields(&[("x-own", "1"), ("vary", "accept"), ("content-location", "z")]);
        let redirection = fields(&[("x-own", "2"), ("x-commit", "c"), ("vary", "cookie"), ("server", "s")]);
        complete(&mut found, &redirection, &uri("http://b/c/d"));
        assert_eq!(
            (&found["x-own"], &found["x-commit"]),
            (&HeaderValue::from_static("1"), &HeaderValue::from_static("c"))
        );
        assert_eq!(found.get_all(VARY).iter().count(), 2);
        assert_eq!(
            (&found["content-location"], found.get("server")),
            (&HeaderValue::from_static("http://b/c/z"), None)
        );
    }
}
