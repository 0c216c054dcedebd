//! Decides whether and how a stored response may answer a request (RFC 9111 4, 4.2.4, 5.2.1).
//!
//! The key and the selecting fields have already matched. The decision depends on freshness, on the response's
//! prohibitions and, if the settings honor them, on the request's directives. Preconditions and ranges are evaluated
//! afterwards. Cost: two lookups in the request's fields and a few comparisons for a usual hit; no allocation. A caller
//! that decides several times about one request parses its directives once.

use http::{HeaderMap, Method};

use crate::{Reason, Settings, StoredHead, Timestamp, cache_control::RequestDirectives, freshness::millis};

/// The permitted use of a stored response.
///
/// ```
/// # use http::{HeaderMap, StatusCode};
/// # use larder_http::{BodyPlace, ReceivedHead, StoredHead, TargetList};
/// # let mut fields = HeaderMap::new();
/// # fields.insert("cache-control", "max-age=60".parse()?);
/// # fields.insert("etag", "\"v1\"".parse()?);
/// # let now = larder_http::Timestamp::from_secs(1_800_000_000);
/// # let received = ReceivedHead { status: StatusCode::OK, fields, request_time: now, response_time: now };
/// # let body = BodyPlace::Whole { len: 1000 };
/// # let stored = StoredHead::new(received, body, Default::default(), &TargetList::default());
/// use larder_http::{Reuse, Settings, reuse};
///
/// // `stored` has `max-age=60` and an ETag. It is fresh for a minute, and is then validated.
/// let decide = |later| reuse::decide(&http::Method::GET, &HeaderMap::new(), &stored, later, &Settings::default());
/// assert!(matches!(decide(now.plus_secs(59)), Reuse::Fresh { age, .. } if age.ttl_secs == 1));
/// assert!(matches!(decide(now.plus_secs(61)), Reuse::Stale { has_validator: true, .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Serve the response without contacting the origin. It is fresh, or the request accepts its staleness.
    Fresh {
        /// The response's age and remaining lifetime.
        age: Age,
        /// The rule that permits the use.
        reason: Reason,
    },
    /// The response is stale: validate it, or fetch it again if it has no validator.
    Stale {
        /// The response's age, and the time since its lifetime ended.
        age: Age,
        /// Whether to serve the response at once and validate it in the background (RFC 5861 3).
        may_serve_meanwhile: bool,
        /// Whether to serve the response if the origin cannot be reached.
        may_serve_on_error: bool,
        /// Whether the response can be validated.
        has_validator: bool,
        /// The deciding rule.
        reason: Reason,
    },
    /// A directive or rule demands validation, even if the lifetime is not over.
    MustValidate {
        /// The response's age and remaining lifetime.
        age: Age,
        /// Whether to serve the response if the origin cannot be reached.
        may_serve_on_error: bool,
        /// Whether the response can be validated.
        has_validator: bool,
        /// The deciding rule.
        reason: Reason,
    },
    /// This request cannot use the response: forward it as if nothing were stored.
    NotUsable {
        /// The deciding rule.
        reason: Reason,
    },
}

/// The stale responses that may be served while the origin cannot be reached (RFC 9111 4.2.4: "disconnected").
///
/// ```
/// # use http::{HeaderMap, Method, StatusCode};
/// # use larder_http::{BodyPlace, ReceivedHead, StoredHead, TargetList, Timestamp};
/// use larder_http::{Reuse, Settings, reuse::{self, StaleAllowed}};
///
/// # let fields = HeaderMap::from_iter([(http::header::CACHE_CONTROL, "max-age=60, must-revalidate".parse()?)]);
/// # let now = Timestamp::from_secs(1_800_000_000);
/// # let received = ReceivedHead { status: StatusCode::OK, fields, request_time: now, response_time: now };
/// # let body = BodyPlace::Whole { len: 1000 };
/// # let stored = StoredHead::new(received, body, Default::default(), &TargetList::default());
/// // `stored` has `max-age=60, must-revalidate`. An hour later it is stale.
/// let later = now.plus_secs(3600);
/// let is_served = |allowed| {
///     let decision = reuse::decide_disconnected(&Method::GET, &stored, later, &Settings::default(), allowed);
///     matches!(decision, Reuse::Fresh { .. })
/// };
/// assert!(!is_served(StaleAllowed::HoweverOld));
/// assert!(is_served(StaleAllowed::EvenForbidden));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StaleAllowed {
    /// Responses that may also be served in place of an origin's error, with the same time limit.
    #[default]
    AsOnError,
    /// Responses of any age, except those whose origin forbids serving them stale.
    HoweverOld,
    /// Also responses whose origin forbids serving them stale, if the operator orders it. Responses that may have been
    /// made for one client stay excluded.
    EvenForbidden,
}

/// The age of a stored response.
///
/// ```
/// use larder_http::reuse::Age;
///
/// // Half a minute of a lifetime of a minute is over.
/// let age = Age { age_secs: 30, ttl_secs: 30 };
/// assert_eq!(format!("Age: {}", age.age_secs), "Age: 30");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    /// The value of the Age field (RFC 9111 5.1), in seconds.
    pub age_secs: u64,
    /// Seconds of lifetime left; negative once the response is stale.
    pub ttl_secs: i64,
}

impl Reuse {
    /// Returns the decision to contact the origin, because the stored response may not answer the request for `reason`.
    ///
    /// The stored response may not even be served in place of an error. The origin's response replaces the stored one,
    /// or a 304 confirms it for the request.
    pub fn replaced(stored: &StoredHead, now: Timestamp, settings: &Settings, reason: Reason) -> Self {
        let freshness = stored.freshness();
        let age_millis = freshness.age_millis(now);
        let left_millis = freshness.left_millis(now, settings);
        let situation = ReuseSituation { stored, settings, age_millis, left_millis, stale_if_error_asked_secs: None };
        let age = situation.age();
        let has_validator = stored.has_validator();
        Self::MustValidate { age, may_serve_on_error: false, has_validator, reason }
    }

    /// Returns whether the response may not answer the request because another rule applies to the request.
    pub fn is_by_other_rule(&self) -> bool {
        matches!(
            self,
            Self::MustValidate { reason: Reason::OtherRule, .. } | Self::NotUsable { reason: Reason::OtherRule }
        )
    }
}

/// Decides how a stored response may answer a request at `now`.
pub fn decide(
    method: &Method,
    request_fields: &HeaderMap,
    stored: &StoredHead,
    now: Timestamp,
    settings: &Settings,
) -> Reuse {
    decide_by_directives(method, &RequestDirectives::from_fields(request_fields), stored, now, settings)
}

/// Decides like [`decide`], for a request whose directives are already parsed.
pub fn decide_by_directives(
    method: &Method,
    directives: &RequestDirectives,
    stored: &StoredHead,
    now: Timestamp,
    settings: &Settings,
) -> Reuse {
    if method != Method::GET && method != Method::HEAD {
        return Reuse::NotUsable { reason: Reason::Method };
    }
    let freshness = stored.freshness();
    let age_millis = freshness.age_millis(now);
    let left_millis = freshness.left_millis(now, settings);
    let asked = match (settings.honor_request_directives, freshness.ignores_client) {
        (true, false) => *directives,
        (true, true) if freshness.obeys_reload => directives.reload_alone(),
        (_, true) | (false, _) => RequestDirectives::default(),
    };
    let situation =
        ReuseSituation { stored, settings, age_millis, left_millis, stale_if_error_asked_secs: asked.stale_if_error };
    match asked_otherwise(&asked, &situation) {
        Some(Reason::RequestNoStore) => Reuse::NotUsable { reason: Reason::RequestNoStore },
        Some(reason) => situation.must_validate(reason),
        None if left_millis > 0 => Reuse::Fresh { age: situation.age(), reason: freshness.lifetime_reason(settings) },
        None if !freshness.forbids_stale(settings) && is_within(asked.max_stale, left_millis) => {
            Reuse::Fresh { age: situation.age(), reason: Reason::RequestMaxStale }
        }
        None => situation.stale(),
    }
}

/// Decides whether a stored response may answer a request at `now` while its origin cannot be reached. Returns `Fresh`
/// if it may.
///
/// The request's own demands for freshness are ignored, as RFC 9111 5.2.1 allows, because no newer response is
/// available. The response's restrictions hold for a disconnected cache too (4.2.4, 5.2.2.2, 5.2.2.4), unless the
/// operator overrides them.
pub fn decide_disconnected(
    method: &Method,
    stored: &StoredHead,
    now: Timestamp,
    settings: &Settings,
    allowed: StaleAllowed,
) -> Reuse {
    if method != Method::GET && method != Method::HEAD {
        return Reuse::NotUsable { reason: Reason::Method };
    }
    let freshness = stored.freshness();
    let age_millis = freshness.age_millis(now);
    let left_millis = freshness.left_millis(now, settings);
    let situation = ReuseSituation { stored, settings, age_millis, left_millis, stale_if_error_asked_secs: None };
    let is_fresh = left_millis > 0 && !freshness.no_cache;
    let may = match allowed {
        StaleAllowed::AsOnError => situation.may_serve_on_error(),
        StaleAllowed::HoweverOld => !freshness.no_cache && !freshness.forbids_stale(settings),
        // Even the operator cannot permit a response that may be meant for one client.
        StaleAllowed::EvenForbidden => !freshness.forbids_guess(settings),
    };
    match (is_fresh, may) {
        (true, _) => Reuse::Fresh { age: situation.age(), reason: freshness.lifetime_reason(settings) },
        (false, true) => Reuse::Fresh { age: situation.age(), reason: Reason::Offline },
        (false, false) => match freshness.no_cache_reason() {
            Some(reason) => situation.must_validate(reason),
            None => situation.stale(),
        },
    }
}

/// Returns whether a request with these directives accepts only a cached response. Without a usable one, the request
/// gets a 504 (RFC 9111 5.2.1.7).
pub fn is_only_if_cached(directives: &RequestDirectives, settings: &Settings) -> bool {
    settings.honor_request_directives && directives.only_if_cached
}

/// Returns whether a request with these directives demands a response no older than itself (RFC 9111 5.2.1.1, 5.2.1.4,
/// 5.4).
///
/// A fetch that began before the request does not satisfy it, even if its response has not arrived yet.
pub fn is_reload(directives: &RequestDirectives, settings: &Settings) -> bool {
    let demands = directives.no_cache || directives.pragma_no_cache || directives.max_age == Some(0);
    settings.honor_request_directives && demands
}

/// A request and a stored response that may answer it.
struct ReuseSituation<'a> {
    stored: &'a StoredHead,
    settings: &'a Settings,
    age_millis: i64,
    left_millis: i64,
    /// The request's own `stale-if-error`, in seconds (RFC 5861 4).
    stale_if_error_asked_secs: Option<u32>,
}

impl ReuseSituation<'_> {
    fn age(&self) -> Age {
        Age { age_secs: (self.age_millis / 1000).unsigned_abs(), ttl_secs: self.left_millis.div_euclid(1000) }
    }

    fn must_validate(&self, reason: Reason) -> Reuse {
        Reuse::MustValidate {
            age: self.age(),
            may_serve_on_error: self.may_serve_on_error(),
            has_validator: self.stored.has_validator(),
            reason,
        }
    }

    fn stale(&self) -> Reuse {
        let forbidden = self.stored.freshness().forbids_stale(self.settings);
        Reuse::Stale {
            age: self.age(),
            may_serve_meanwhile: self.may_serve_meanwhile(),
            may_serve_on_error: self.may_serve_on_error(),
            has_validator: self.stored.has_validator(),
            reason: if forbidden { Reason::MustRevalidate } else { Reason::Expired },
        }
    }

    /// Returns whether to serve a stale response during its validation (RFC 5861 3).
    ///
    /// It is served only within the time that the response states, and never if the response forbids serving it stale.
    fn may_serve_meanwhile(&self) -> bool {
        let freshness = self.stored.freshness();
        let window = freshness.stale_while_revalidate_secs.map_or(0, |secs| i64::from(secs) * 1000);
        !freshness.forbids_stale(self.settings) && self.left_millis.saturating_neg() < window
    }

    /// Returns whether a stale response may replace an error (RFC 9111 4.2.4).
    ///
    /// It may not if the response forbids it. Otherwise the first of these limits applies: `stale-if-error` of the
    /// response (RFC 5861 4), `stale-if-error` of the request, the settings.
    fn may_serve_on_error(&self) -> bool {
        let freshness = self.stored.freshness();
        if freshness.no_cache {
            return false;
        }
        if self.left_millis > 0 {
            return true;
        }
        let window_millis = match freshness.stale_if_error_secs.or(self.stale_if_error_asked_secs) {
            Some(secs) => i64::from(secs) * 1000,
            None => millis(self.settings.stale_if_error_max),
        };
        !freshness.forbids_stale(self.settings) && self.left_millis.saturating_neg() < window_millis
    }
}

/// Returns the directive of the request or the response that prevents serving the stored response without validation,
/// if there is one.
fn asked_otherwise(asked: &RequestDirectives, situation: &ReuseSituation<'_>) -> Option<Reason> {
    if asked.no_store {
        return Some(Reason::RequestNoStore);
    }
    if let Some(reason) = situation.stored.freshness().no_cache_reason() {
        return Some(reason);
    }
    if asked.no_cache {
        return Some(Reason::RequestNoCache);
    }
    if asked.pragma_no_cache {
        return Some(Reason::RequestPragma);
    }
    if asked.max_age.is_some_and(|secs| situation.age_millis >= i64::from(secs) * 1000) {
        return Some(Reason::RequestMaxAge);
    }
    if asked.min_fresh.is_some_and(|secs| situation.left_millis < i64::from(secs) * 1000) {
        return Some(Reason::RequestMinFresh);
    }
    None
}

fn is_within(max_stale: Option<u32>, left_millis: i64) -> bool {
    max_stale.is_some_and(|secs| left_millis.saturating_neg() <= i64::from(secs) * 1000)
}
