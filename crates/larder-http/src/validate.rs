//! Validation of a stored response with its origin (RFC 9111 4.3.1, 4.3.3, 4.3.4, 4.3.5, 3.2).
//!
//! Makes the preconditions to send, tells whether a 304 or the answer to a HEAD speaks of the stored
//! response, and merges the two.

use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{AGE, CONTENT_LENGTH, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, WARNING},
};

use crate::{
    Received, StoredHead, Timestamp,
    date::{format_http_date, parse_http_date},
    decimal::parse_u64,
    entity_tag::EntityTag,
    fields::strip_hop_by_hop,
    list::single,
};

/// The preconditions by which the origin can say that the stored response still holds (RFC 9111 4.3.1):
/// its entity tag as received, and its Last-Modified. None when it has no validator.
pub fn request_fields(stored: &StoredHead) -> Vec<(HeaderName, HeaderValue)> {
    let mut fields = Vec::with_capacity(2);
    if let Some(tag) = stored.entity_tag_value() {
        fields.push((IF_NONE_MATCH, tag.clone()));
    }
    if stored.freshness().last_modified.is_some()
        && let Some(modified) = stored.fields().get(LAST_MODIFIED)
    {
        fields.push((IF_MODIFIED_SINCE, modified.clone()));
    }
    fields
}

/// Whether a 304 that answers our own precondition speaks of the stored response (RFC 9111 4.3.4).
///
/// A strong tag must equal the stored strong tag, a weak one the stored tag by weak comparison, a lone
/// Last-Modified the stored one. Without any validator the 304 can only mean the one we asked about.
pub fn selects(not_modified_fields: &HeaderMap, stored: &StoredHead) -> bool {
    if let Some(value) = not_modified_fields.get(ETAG) {
        let (tag, stored_tag) = (EntityTag::parse(value.as_bytes()), stored.entity_tag());
        return match (tag, stored_tag) {
            (Some(tag), Some(stored_tag)) if tag.weak => tag.matches_weakly(&stored_tag),
            (Some(tag), Some(stored_tag)) => tag.matches_strongly(&stored_tag),
            // A tag that is none on either side says nothing, unless it is the same octets.
            _ => stored.fields().get(ETAG) == Some(value),
        };
    }
    match single(not_modified_fields, &LAST_MODIFIED) {
        Some(value) if stored.freshness().last_modified.is_some() => {
            parse_http_date(value.as_bytes(), stored.response_time()) == stored.freshness().last_modified
        }
        _ => true,
    }
}

/// What the answer to a HEAD says of a stored response to GET (RFC 9111 4.3.5).
#[derive(Clone, Debug, PartialEq)]
pub enum HeadVerdict {
    /// It still holds: the stored response with the fields and the lifetime of the answer.
    Holds(Box<StoredHead>),
    /// It does not: forget it, or take it as stale.
    Changed,
    /// Nothing: the answer is not a 200, or the stored response is another kind of answer.
    Silent,
}

/// Judges a stored response by the answer to a HEAD for the same key: each validator and the length that the
/// answer has must be those of the stored response.
pub fn judge_head(
    stored: &StoredHead,
    (status, fields): (StatusCode, &HeaderMap),
    request_time: Timestamp,
    response_time: Timestamp,
) -> HeadVerdict {
    if status != StatusCode::OK || stored.status() != StatusCode::OK {
        return HeadVerdict::Silent;
    }
    let same = |name: &HeaderName| !fields.contains_key(name) || fields.get_all(name) == stored.fields().get_all(name);
    let length = fields.get(CONTENT_LENGTH).map(|value| parse_u64(value.as_bytes()));
    if same(&ETAG) && same(&LAST_MODIFIED) && length.is_none_or(|length| length == Some(stored.body().len())) {
        HeadVerdict::Holds(Box::new(freshen(stored, fields, request_time, response_time)))
    } else {
        HeadVerdict::Changed
    }
}

/// The stored response updated by a 304 that [`selects`] it (RFC 9111 3.2): each end-to-end field of the 304
/// replaces the stored one of that name, Content-Length excepted. Content-Encoding, Content-Type and
/// Content-Range are updated too, since messages are stored as received. A stored Warning of the 1xx kind spoke
/// of the freshness that is now renewed, and goes (RFC 7234 4.3.4; RFC 9111 5.5 has no more of them).
pub fn freshen(
    stored: &StoredHead,
    not_modified_fields: &HeaderMap,
    request_time: Timestamp,
    response_time: Timestamp,
) -> StoredHead {
    let mut updates = not_modified_fields.clone();
    strip_hop_by_hop(&mut updates);
    updates.remove(CONTENT_LENGTH);
    let mut fields = stored.fields().clone();
    // Without a Date of its own the 304 was made when it came in (RFC 9110 6.6.1), not at the stored Date.
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
    let received = Received { status: stored.status(), fields, request_time, response_time };
    StoredHead::new(received, stored.body(), stored.selecting().clone(), stored.targets())
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
