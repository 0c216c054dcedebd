//! Validates a stored response with its origin (RFC 9111 4.3.1, 4.3.3, 4.3.4, 4.3.5, 3.2).
//!
//! The module creates the preconditions, decides whether a 304 or a response to HEAD applies to the stored response,
//! and merges the two.

use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{
        AGE, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, SET_COOKIE, VARY,
        WARNING,
    },
};

use crate::{
    ReceivedHead, Settings, StoredHead, VaryRule,
    cache_control::{self, ResponseDirectives},
    date::{format_http_date, parse_http_date},
    decimal::parse_u64,
    entity_tag::EntityTag,
    fields::{Fields as _, strip_hop_by_hop},
    list::single,
    ruling::Ruling,
    storable::Exchange,
};

/// Returns the preconditions for validating a stored response (RFC 9111 4.3.1): its entity tag as received, and its
/// Last-Modified.
///
/// Returns none if it has no validator.
///
/// ```
/// # use http::{HeaderMap, StatusCode};
/// # use larder_http::{BodyPlace, ReceivedHead, StoredHead, TargetList};
/// # let mut fields = HeaderMap::new();
/// # fields.insert("etag", "\"v1\"".parse()?);
/// # let now = larder_http::Timestamp::from_secs(1_800_000_000);
/// # let received = ReceivedHead { status: StatusCode::OK, fields, request_time: now, response_time: now };
/// # let body = BodyPlace::Whole { len: 1000 };
/// # let stored = StoredHead::new(received, body, Default::default(), &TargetList::default());
/// use larder_http::validate;
///
/// // `stored` has the entity tag "v1".
/// let preconditions = validate::request_fields(&stored);
/// assert_eq!(preconditions[0], (http::header::IF_NONE_MATCH, "\"v1\"".parse()?));
///
/// // A 304 with the same tag confirms it; one with another tag is about another response.
/// let mut not_modified = HeaderMap::new();
/// not_modified.insert("etag", "\"v1\"".parse()?);
/// assert!(validate::selects(&not_modified, &stored));
/// not_modified.insert("etag", "\"v2\"".parse()?);
/// assert!(!validate::selects(&not_modified, &stored));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn request_fields(stored: &StoredHead) -> Vec<(HeaderName, HeaderValue)> {
    let mut fields = Vec::with_capacity(2);
    if let Some(tag) = stored.entity_tag_value() {
        fields.push((IF_NONE_MATCH, value_of(tag)));
    }
    if stored.freshness().last_modified.is_some()
        && let Some(modified) = stored.fields().first(&LAST_MODIFIED)
    {
        fields.push((IF_MODIFIED_SINCE, value_of(modified)));
    }
    fields
}

fn value_of(octets: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(octets).expect("it was a field's value")
}

/// Returns whether a 304 to our own precondition confirms the stored response (RFC 9111 4.3.4).
///
/// A strong tag must equal the stored strong tag. A weak tag must match the stored tag by weak comparison. A lone
/// Last-Modified must equal the stored one. A 304 without validators can only refer to the response that the
/// precondition named.
///
/// If the 304 names more fields in Vary than the stored response, an entity tag is required, because a page made for
/// another client may have the same date.
pub fn selects(not_modified_fields: &HeaderMap, stored: &StoredHead) -> bool {
    if varies_on_more(not_modified_fields, stored) && stored.entity_tag_value().is_none() {
        return false;
    }
    if let Some(value) = not_modified_fields.get(ETAG) {
        let tag = EntityTag::parse(value.as_bytes());
        let stored_tag = stored.entity_tag();
        return match (tag, stored_tag) {
            (Some(tag), Some(stored_tag)) if tag.weak => tag.matches_weakly(&stored_tag),
            (Some(tag), Some(stored_tag)) => tag.matches_strongly(&stored_tag),
            // If either value is not a valid tag, only identical octets count as a match.
            _ => stored.fields().first(&ETAG) == Some(value.as_bytes()),
        };
    }
    match single(not_modified_fields, &LAST_MODIFIED) {
        Some(value) if stored.freshness().last_modified.is_some() => {
            parse_http_date(value.as_bytes(), stored.response_time()) == stored.freshness().last_modified
        }
        _ => true,
    }
}

/// The effect of a response to HEAD on a stored response to GET (RFC 9111 4.3.5).
///
/// ```
/// # use http::{HeaderMap, Method, StatusCode};
/// # use larder_http::{BodyPlace, ReceivedHead, Settings, StoredHead, TargetList, Timestamp, storable::Exchange};
/// use larder_http::validate::{HeadVerdict, judge_head};
///
/// # let now = Timestamp::from_secs(1_800_000_000);
/// # let mut fields = HeaderMap::from_iter([(http::header::ETAG, "\"v1\"".parse()?)]);
/// # let (status, request_fields) = (StatusCode::OK, HeaderMap::new());
/// # let received = ReceivedHead { status, fields: fields.clone(), request_time: now, response_time: now };
/// # let body = BodyPlace::Whole { len: 1000 };
/// # let stored = StoredHead::new(received, body, Default::default(), &TargetList::default());
/// # let judge = |fields: &HeaderMap| {
/// #     let (method, request_fields, response_fields) = (&Method::HEAD, &request_fields, fields);
/// #     let (request_time, response_time) = (now, now);
/// #     let answer = Exchange { method, request_fields, status, response_fields, request_time, response_time };
/// #     judge_head(&stored, &answer, &Settings::default())
/// # };
/// // `stored` has the tag "v1". `judge` compares it with a response to HEAD with these fields.
/// assert!(matches!(judge(&fields), HeadVerdict::Holds(_)));
/// fields.insert("etag", "\"v2\"".parse()?);
/// assert_eq!(judge(&fields), HeadVerdict::Changed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum HeadVerdict {
    /// The stored response is still valid. This is its head with the fields and the lifetime of the new response.
    Holds(Box<StoredHead>),
    /// The stored response has changed: remove it, or treat it as stale.
    Changed,
    /// The response to HEAD says nothing: it is not a 200, or the stored response has another status.
    Silent,
}

/// Judges a stored response by the response to a HEAD with the same key.
///
/// The stored response is still valid if the new response has no different validator or length. If the new response
/// names more fields in Vary, both must also have an entity tag.
pub fn judge_head(stored: &StoredHead, answer: &Exchange<'_>, settings: &Settings) -> HeadVerdict {
    let fields = answer.response_fields;
    if answer.status != StatusCode::OK || stored.status() != StatusCode::OK {
        return HeadVerdict::Silent;
    }
    let same =
        |name: &HeaderName| !fields.contains_key(name) || fields.values_of(name).eq(stored.fields().values_of(name));
    let length = fields.get(CONTENT_LENGTH).map(|value| parse_u64(value.as_bytes()));
    let same_length = length.is_none_or(|length| length == Some(stored.body().len()));
    let is_known =
        !varies_on_more(fields, stored) || (fields.contains_key(ETAG) && stored.entity_tag_value().is_some());
    if same(&ETAG) && same(&LAST_MODIFIED) && same_length && is_known {
        HeadVerdict::Holds(Box::new(freshen(stored, answer, settings)))
    } else {
        HeadVerdict::Changed
    }
}

/// Returns whether a response's status and fields describe the stored response with this head and this body length (if
/// known).
///
/// The stored response must have the same 2xx status, validators and media type, and a body as long as the fields say.
/// If the URL contains the digest of its content (`names_digest`), only the length is compared, and the fields must
/// state it.
pub fn is_described(
    head: &StoredHead,
    body_len: Option<u64>,
    (status, fields): (StatusCode, &HeaderMap),
    names_digest: bool,
) -> bool {
    if status != head.status() || !status.is_success() {
        return false;
    }
    let told = fields.get(CONTENT_LENGTH).map(|value| parse_u64(value.as_bytes()));
    let has_length = told.zip(body_len).is_none_or(|(told, len)| told == Some(len));
    if names_digest {
        return has_length && told.is_some();
    }
    let same = |name: &HeaderName| fields.values_of(name).eq(head.fields().values_of(name));
    has_length && [ETAG, LAST_MODIFIED, CONTENT_TYPE].iter().all(same)
}

/// Updates the stored response by a 304 that [`selects`] it (RFC 9111 3.2).
///
/// Each end-to-end field of the 304, except Content-Length, replaces the stored field of that name. Content-Encoding,
/// Content-Type and Content-Range are updated too, because messages are stored as received. A stored Warning with a 1xx
/// code described the old freshness, so it is dropped (RFC 7234 4.3.4; RFC 9111 5.5 abolished the field). A Set-Cookie
/// is left out unless the response may be shared, see [`first_askers_own`].
///
/// If the 304 names more fields in Vary, the selecting fields are taken from its request. If no request can match,
/// [`crate::storable::decide_updated`] refuses the response.
pub fn freshen(stored: &StoredHead, answer: &Exchange<'_>, settings: &Settings) -> StoredHead {
    let request_time = answer.request_time;
    let response_time = answer.response_time;
    let mut updates = answer.response_fields.clone();
    strip_hop_by_hop(&mut updates);
    updates.remove(CONTENT_LENGTH);
    // The updates contain the rule that applies now, if there is one. The map has none.
    let mut fields = stored.fields().to_map();
    // A 304 without Date counts as created on receipt (RFC 9110 6.6.1), not at the stored Date.
    if !updates.contains_key(http::header::DATE) {
        updates.insert(http::header::DATE, format_http_date(response_time));
    }
    fields.remove(AGE);
    for name in updates.keys() {
        fields.remove(name);
    }
    drop_spent_warnings(&mut fields);
    for (name, value) in &updates {
        fields.append(name.clone(), value.clone());
    }
    if updates.contains_key(SET_COOKIE)
        && !settings.store_set_cookie
        && !ResponseDirectives::from_fields(&fields, stored.targets()).are_for_all()
    {
        fields.remove(SET_COOKIE);
    }
    let renewed = stored.selecting().renewed(&VaryRule::from_fields(&fields), answer.request_fields, settings);
    let selecting = renewed.unwrap_or_else(|| stored.selecting().clone());
    // The body answered a request with a Cookie. A rule whose lifetime is not for such a request must not give it one
    // now.
    let ruling = Ruling::of(&fields).filter(|ruling| selecting.answered_cookie() && ruling.excludes_cookies());
    if let Some(ruling) = ruling {
        ruling.for_cookies().put(&mut fields);
    }
    let received = ReceivedHead { status: stored.status(), fields, request_time, response_time };
    StoredHead::new(received, stored.body(), selecting, stored.targets())
}

/// Returns the fields of an updating response that belong only to the client whose request fetched it.
///
/// They are the fields that `private` and `no-cache` name, and a Set-Cookie that was not stored.
pub fn first_askers_own(answer_fields: &HeaderMap, updated: &StoredHead) -> HeaderMap {
    let mut own = cache_control::first_askers_own(answer_fields, updated.targets());
    if !own.contains_key(SET_COOKIE) && updated.fields().first(&SET_COOKIE).is_none() {
        for value in answer_fields.get_all(SET_COOKIE) {
            own.append(SET_COOKIE, value.clone());
        }
    }
    own
}

/// Returns whether a response names more fields in Vary than the stored selecting fields (RFC 9111 4.1).
fn varies_on_more(answer_fields: &HeaderMap, stored: &StoredHead) -> bool {
    answer_fields.contains_key(VARY) && !stored.selecting().cover(&VaryRule::from_fields(answer_fields))
}

fn drop_spent_warnings(fields: &mut HeaderMap) {
    if !fields.contains_key(WARNING) {
        return;
    }
    let lasting = fields.get_all(WARNING).iter().filter(|line| !line.as_bytes().starts_with(b"1"));
    let lasting: Vec<HeaderValue> = lasting.cloned().collect();
    fields.remove(WARNING);
    for line in lasting {
        fields.append(WARNING, line);
    }
}
