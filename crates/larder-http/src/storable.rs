//! Decides whether a response may be stored (RFC 9111 3).
//!
//! The decision depends on the head alone; the caller ensures that the body arrives complete. A response with neither a
//! lifetime nor a validator could never be reused, so it is not stored. A 412 or 416 that results from the request's
//! own conditions or range is not stored either, because it means nothing to other requests.
//!
//! A private cache also stores responses for one user. If the request had credentials, the response varies on them: a
//! program may act for several users, and none of them may see another's response.

use http::{
    HeaderMap, Method, StatusCode, Uri,
    header::{AUTHORIZATION, CONTENT_LOCATION, COOKIE, IF_MATCH, IF_UNMODIFIED_SINCE, RANGE, SET_COOKIE},
};

use crate::{
    Reason, ReceivedFacts, Settings, StoredHead, Timestamp, VaryRule,
    cache_control::RequestDirectives,
    facts::{Facts, RequestFacts},
    freshness::{Lifetime, Receipt},
    list::single,
    partial::Part,
    reference::resolve,
    stored::{DerivedFacts, FIELD_COUNT_MAX, FIELDS_SIZE_MAX},
};

/// A request to the origin and the head of its response, with hop-by-hop fields removed from both.
///
/// ```
/// use http::{HeaderMap, Method, StatusCode};
/// use larder_http::{Reason, Settings, Storability, Timestamp, storable::{self, Exchange}};
///
/// // A response to a request with credentials is not shared with others.
/// let (sent, received) = (Timestamp::from_secs(1_800_000_000), Timestamp::from_secs(1_800_000_001));
/// let request_fields = HeaderMap::from_iter([(http::header::AUTHORIZATION, "Basic YTpi".parse()?)]);
/// let response_fields = HeaderMap::from_iter([(http::header::CACHE_CONTROL, "max-age=60".parse()?)]);
/// let exchange = Exchange {
///     method: &Method::GET,
///     request_fields: &request_fields,
///     status: StatusCode::OK,
///     response_fields: &response_fields,
///     request_time: sent,
///     response_time: received,
/// };
/// let refused = Storability::Refuse { reason: Reason::Authorization };
/// assert_eq!(storable::decide(&exchange, &Settings::default()), refused);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The request's method.
    pub method: &'a Method,
    /// The request's fields as forwarded.
    pub request_fields: &'a HeaderMap,
    /// The response's status.
    pub status: StatusCode,
    /// The response's fields.
    pub response_fields: &'a HeaderMap,
    /// When the request was sent.
    pub request_time: Timestamp,
    /// When the response's head was received.
    pub response_time: Timestamp,
}

/// Whether a response may be stored.
///
/// ```
/// use http::{HeaderMap, Method, StatusCode};
/// use larder_http::{Reason, Settings, Storability, Timestamp, storable::{self, Exchange}};
///
/// let now = Timestamp::from_secs(1_800_000_000);
/// let mut response_fields = HeaderMap::new();
/// response_fields.insert("cache-control", "no-store".parse()?);
/// let exchange = Exchange {
///     method: &Method::GET,
///     request_fields: &HeaderMap::new(),
///     status: StatusCode::OK,
///     response_fields: &response_fields,
///     request_time: now,
///     response_time: now,
/// };
/// let decision = storable::decide(&exchange, &Settings::default());
/// assert_eq!(decision, Storability::Refuse { reason: Reason::NoStore });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storability {
    /// Store the response.
    Store {
        /// The property that makes a stored copy useful, such as its lifetime or its validator.
        reason: Reason,
        /// The fields on which the response varies; never `*`.
        rule: VaryRule,
        /// The facts that were read from the response's fields, for its stored head.
        facts: ReceivedFacts,
    },
    /// Do not store the response.
    Refuse {
        /// The rule that forbids storing.
        reason: Reason,
    },
}

/// Decides whether to store a response to a GET.
pub fn decide(exchange: &Exchange<'_>, settings: &Settings) -> Storability {
    if exchange.method != Method::GET {
        return Storability::Refuse { reason: Reason::Method };
    }
    if exchange.status == StatusCode::PARTIAL_CONTENT {
        return Storability::Refuse { reason: Reason::Partial };
    }
    decide_by_head(exchange, settings)
}

/// Decides whether to store the part in a 206. The part is stored under the head that the whole response would have
/// (RFC 9111 3.3).
pub fn decide_part(exchange: &Exchange<'_>, part: &Part, settings: &Settings) -> Storability {
    if exchange.method != Method::GET {
        return Storability::Refuse { reason: Reason::Method };
    }
    if exchange.status != StatusCode::PARTIAL_CONTENT || part.span.last >= part.total_len {
        return Storability::Refuse { reason: Reason::Partial };
    }
    decide_by_head(&Exchange { status: StatusCode::OK, ..*exchange }, settings)
}

/// Decides whether a response to a POST may answer later GETs of its target (RFC 9110 9.3.3).
///
/// The response must be a success, state a lifetime, and have a Content-Location that equals the target.
pub fn decide_post(exchange: &Exchange<'_>, target: &Uri, settings: &Settings) -> Storability {
    if exchange.method != Method::POST || !exchange.status.is_success() {
        return Storability::Refuse { reason: Reason::Method };
    }
    let location = single(exchange.response_fields, &CONTENT_LOCATION).and_then(|value| value.to_str().ok());
    if location.and_then(|reference| resolve(target, reference)).as_ref() != Some(target) {
        return Storability::Refuse { reason: Reason::PostWithoutLocation };
    }
    if exchange.status == StatusCode::PARTIAL_CONTENT {
        return Storability::Refuse { reason: Reason::Partial };
    }
    match decide_by_head(exchange, settings) {
        Storability::Store { reason, .. } if reason != Reason::ExplicitLifetime => {
            Storability::Refuse { reason: Reason::NothingToReuse }
        }
        decided => decided,
    }
}

fn decide_by_head(exchange: &Exchange<'_>, settings: &Settings) -> Storability {
    let asked = RequestFacts::of(exchange.request_fields);
    let facts = Facts::of(exchange.response_fields, &settings.targets);
    if let Some(reason) = refusal(exchange, asked, &facts, settings) {
        return Storability::Refuse { reason };
    }
    let mut rule = VaryRule::of(&facts, exchange.response_fields).with_told(exchange.request_fields);
    if settings.targets.is_private() && asked.has_credentials {
        rule = rule.and(&VaryRule::from_names(vec![AUTHORIZATION]));
    }
    let answered_cookie = match &rule {
        VaryRule::Fields(names) => asked.has_cookie && !names.contains(&COOKIE),
        VaryRule::Star => return Storability::Refuse { reason: Reason::VaryStar },
    };
    let receipt = Receipt {
        status: exchange.status,
        age_secs: facts.age_secs(),
        request_time: exchange.request_time,
        response_time: exchange.response_time,
        answered_cookie,
    };
    let derived = DerivedFacts::of(&receipt, &facts);
    match worth(&derived, &facts, settings) {
        Ok(reason) => Storability::Store { reason, rule, facts: ReceivedFacts::new(receipt, facts, derived) },
        Err(reason) => Storability::Refuse { reason },
    }
}

/// Decides whether to keep a stored response that a 304 has just updated.
///
/// The new fields may forbid storing, or vary on something that no request can match.
pub fn decide_updated(request_fields: &HeaderMap, updated: &StoredHead, settings: &Settings) -> Storability {
    let response_fields = &updated.fields().to_received_map();
    if !updated.selecting().cover(&VaryRule::from_fields(response_fields)) {
        return Storability::Refuse { reason: Reason::VaryStar };
    }
    let exchange = Exchange {
        method: &Method::GET,
        request_fields,
        status: updated.status(),
        response_fields,
        request_time: updated.request_time(),
        response_time: updated.response_time(),
    };
    decide(&exchange, settings)
}

/// Returns the rule that forbids storing, if there is one.
fn refusal(exchange: &Exchange<'_>, asked: RequestFacts, facts: &Facts<'_>, settings: &Settings) -> Option<Reason> {
    let directives = &facts.directives;
    if !is_storable_status(exchange) {
        return Some(Reason::Status);
    }
    if directives.contradicts_url {
        return Some(Reason::PageForFile);
    }
    if asked.has_directives && RequestDirectives::from_fields(exchange.request_fields).no_store {
        return Some(Reason::RequestNoStore);
    }
    if directives.must_understand {
        // 5.2.2.3: with must-understand and a known status, no-store does not apply.
        if !is_understood(exchange.status) {
            return Some(Reason::MustUnderstand);
        }
    } else if directives.no_store {
        return Some(Reason::NoStore);
    }
    if directives.private {
        return Some(Reason::Private);
    }
    let shared = directives.public || directives.must_revalidate || directives.s_maxage.is_some();
    // 3.5 limits shared caches only.
    let shared = shared || directives.ignores_authorization || settings.targets.is_private();
    if asked.has_credentials && !shared {
        return Some(Reason::Authorization);
    }
    let sets_cookie = facts.sets_cookie && !directives.withheld.contains(&SET_COOKIE);
    if sets_cookie && !settings.store_set_cookie && !directives.are_for_all() {
        return Some(Reason::SetCookie);
    }
    if exchange.response_fields.len() >= FIELD_COUNT_MAX || facts.size_bytes > FIELDS_SIZE_MAX {
        return Some(Reason::HeadTooLarge);
    }
    None
}

/// Returns what makes a stored copy usable. The error says why it never would be.
fn worth(derived: &DerivedFacts, facts: &Facts<'_>, settings: &Settings) -> Result<Reason, Reason> {
    let directives = &facts.directives;
    let DerivedFacts { freshness, has_entity_tag } = derived;
    let has_validator = freshness.last_modified.is_some() || *has_entity_tag;
    match freshness.lifetime {
        // 3: without an explicit lifetime or `public`, only a status that is heuristically cacheable may be stored.
        Lifetime::Absent => Err(Reason::Status),
        _ if freshness.lifetime_millis(settings) > 0 && !freshness.no_cache => Ok(freshness.lifetime_reason(settings)),
        _ if has_validator => Ok(Reason::ValidatorOnly),
        _ if directives.no_cache => Err(Reason::NoCache),
        // The response may be served in place of an error (RFC 5861 4).
        _ if directives.stale_if_error.is_some_and(|secs| secs > 0) => Ok(freshness.lifetime_reason(settings)),
        _ => Err(Reason::NothingToReuse),
    }
}

/// Returns whether a response with this status can answer requests other than its own.
fn is_storable_status(exchange: &Exchange<'_>) -> bool {
    let asked = |names: &[http::HeaderName]| names.iter().any(|name| exchange.request_fields.contains_key(name));
    match exchange.status.as_u16() {
        100..=199 | 304 => false,
        412 => !asked(&[IF_MATCH, IF_UNMODIFIED_SINCE]),
        416 => !asked(&[RANGE]),
        // RFC 6585 3 to 6: these concern one client's requests, and no cache may store them.
        428 | 429 | 431 | 511 => false,
        _ => true,
    }
}

/// Returns whether Larder knows the caching rules of a status (RFC 9111 5.2.2.3): those of RFC 9110 15, and 451. A 206
/// is stored as a part of a 200.
fn is_understood(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200..=205 | 300..=305 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 451 | 500..=505)
}
