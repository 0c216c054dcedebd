//! Evaluates a client's preconditions against a stored response (RFC 9111 4.3.2, RFC 9110 13.1, 13.2).
//!
//! The stored response must be usable without validation. If it does not meet If-Match or If-Unmodified-Since, the
//! request is forwarded and never answered with 412, because only the origin can judge these two. Cost: four lookups in
//! the request's fields if there are no preconditions.

use http::{
    HeaderMap, HeaderName,
    header::{
        CACHE_CONTROL, CONTENT_LOCATION, DATE, ETAG, EXPIRES, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH,
        IF_UNMODIFIED_SINCE, LAST_MODIFIED, VARY,
    },
};

use crate::{
    StoredHead, Timestamp,
    date::parse_http_date,
    entity_tag::EntityTag,
    list::{single, trim},
};

/// The outcome of a request's preconditions.
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
/// use larder_http::{Precondition, conditional};
///
/// let mut request = HeaderMap::new();
/// request.insert("if-none-match", "\"v1\"".parse()?);
/// assert_eq!(conditional::evaluate(&request, &stored), Precondition::NotModified);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// No precondition decides: serve the stored response.
    Pass,
    /// The client already has the response: send a 304 with [`not_modified_fields`].
    NotModified,
    /// The stored response does not meet If-Match or If-Unmodified-Since: forward the request, so that the origin
    /// decides (RFC 9111 4.3.2).
    Failed,
}

/// Evaluates the preconditions of a GET or HEAD in the order of RFC 9110 13.2.2.
pub fn evaluate(request_fields: &HeaderMap, stored: &StoredHead) -> Precondition {
    // 13.2.1: preconditions are ignored if the response without them would not be a success.
    if !stored.status().is_success() || !request_fields.keys().any(is_condition) {
        return Precondition::Pass;
    }
    if request_fields.contains_key(IF_MATCH) {
        if !any_tag_matches(request_fields, &IF_MATCH, stored, |tag, stored| tag.matches_strongly(stored)) {
            return Precondition::Failed;
        }
    } else if let Some(since) = date(request_fields, &IF_UNMODIFIED_SINCE, stored)
        && modified(stored) > since
    {
        return Precondition::Failed;
    }
    if request_fields.contains_key(IF_NONE_MATCH) {
        if any_tag_matches(request_fields, &IF_NONE_MATCH, stored, |tag, stored| tag.matches_weakly(stored)) {
            return Precondition::NotModified;
        }
    } else if let Some(since) = date(request_fields, &IF_MODIFIED_SINCE, stored)
        && modified(stored) <= since
    {
        return Precondition::NotModified;
    }
    Precondition::Pass
}

/// Returns whether a field could be a precondition. Most requests have few fields and no such field.
fn is_condition(name: &HeaderName) -> bool {
    name.as_str().starts_with("if-")
}

/// Returns the stored fields that a 304 carries (RFC 9110 15.4.5). The caller adds Age.
pub fn not_modified_fields(stored: &StoredHead) -> HeaderMap {
    let mut fields = stored.fields().to_map();
    // Last-Modified helps a client only if there is no entity tag.
    let with_modified = !fields.contains_key(ETAG);
    let is_left_out =
        |name: &HeaderName| !(NOT_MODIFIED_FIELDS.contains(name) || with_modified && *name == LAST_MODIFIED);
    let left_out: Vec<HeaderName> = fields.keys().filter(|name| is_left_out(name)).cloned().collect();
    left_out.iter().for_each(|name| drop(fields.remove(name)));
    fields
}

static NOT_MODIFIED_FIELDS: [HeaderName; 6] = [CACHE_CONTROL, CONTENT_LOCATION, DATE, ETAG, EXPIRES, VARY];

fn any_tag_matches(
    request_fields: &HeaderMap,
    name: &HeaderName,
    stored: &StoredHead,
    matches: impl Fn(&EntityTag<'_>, &EntityTag<'_>) -> bool,
) -> bool {
    let stored_tag = stored.entity_tag();
    request_fields.get_all(name).iter().any(|line| {
        let line = trim(line.as_bytes());
        line == b"*" || stored_tag.is_some_and(|stored| EntityTag::list(line).any(|tag| matches(&tag, &stored)))
    })
}

fn date(request_fields: &HeaderMap, name: &HeaderName, stored: &StoredHead) -> Option<Timestamp> {
    single(request_fields, name).and_then(|value| parse_http_date(value.as_bytes(), stored.response_time()))
}

/// Returns the best known time of the last change: Last-Modified, otherwise Date or the time of receipt.
fn modified(stored: &StoredHead) -> Timestamp {
    stored.freshness().last_modified.unwrap_or(stored.freshness().date)
}
