//! Reads 206 responses and combines parts of one representation (RFC 9111 3.3, 3.4, RFC 9110 14.4, 15.3.7).
//!
//! Parts are combined only if they have the same strong validator. A part without one is kept alone. A part is used
//! only if its Content-Range agrees with its length. A number too large for `u64` makes a Content-Range invalid,
//! because a saturated number would put the part in the wrong place. The caller stores the bytes.

use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_RANGE, LAST_MODIFIED, RANGE},
};

use crate::{
    BodyPlace, Reason, ReceivedHead, SelectingFields, Settings, StoredHead, Timestamp,
    coding::CONTENT_DIGESTS,
    date::parse_http_date,
    decimal::{DIGITS_MAX, parse_u64, push_u64},
    entity_tag::EntityTag,
    fields::Fields,
    list::{single, trim},
    span::Span,
    storable::Exchange,
    targeted::TargetList,
    validate::freshen,
};

/// A parsed Content-Range field (RFC 9110 14.4).
///
/// ```
/// use larder_http::{partial::{ContentRange, parse_content_range}, span::Span};
///
/// let span = Span { first: 0, last: 99 };
/// assert_eq!(parse_content_range(b"bytes 0-99/1000"), Some(ContentRange::Part { span, total_len: Some(1000) }));
/// assert_eq!(parse_content_range(b"bytes */1000"), Some(ContentRange::Unsatisfied { total_len: 1000 }));
/// assert_eq!(parse_content_range(b"bytes 0-1000/1000"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentRange {
    /// A part of a representation whose length may be unknown.
    Part {
        /// The bytes of the part.
        span: Span,
        /// Length of the whole representation in bytes.
        total_len: Option<u64>,
    },
    /// No requested range lies inside the representation.
    Unsatisfied {
        /// Length of the whole representation in bytes.
        total_len: u64,
    },
}

/// The part of a representation that a 206 contains.
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use larder_http::partial;
///
/// let mut fields = HeaderMap::new();
/// fields.insert("content-range", "bytes 100-199/1000".parse()?);
/// fields.insert("content-length", "100".parse()?);
/// let part = partial::part(StatusCode::PARTIAL_CONTENT, &fields).expect("a part of a known length");
/// assert_eq!((part.span.first, part.span.len(), part.total_len), (100, 100, 1000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The bytes of the part.
    pub span: Span,
    /// Length of the whole representation in bytes, greater than the position of the part's last byte.
    pub total_len: u64,
}

/// The relation of a response to the stored representation, of which [`request_fields`] requested a missing part. It
/// decides whether the received bytes may be put together with the stored ones.
///
/// ```
/// # use http::{HeaderMap, StatusCode};
/// # use larder_http::{BodyPlace, ReceivedHead, StoredHead, TargetList, Timestamp};
/// use larder_http::{partial::{Continuation, continuation}, span::Span};
///
/// # let now = Timestamp::from_secs(1_800_000_000);
/// # let mut fields = HeaderMap::new();
/// # fields.insert("etag", "\"v1\"".parse()?);
/// # let received =
/// #     ReceivedHead { status: StatusCode::OK, fields: fields.clone(), request_time: now, response_time: now };
/// # let body = BodyPlace::Chunks { len: 1000, representation: 1 };
/// # let stored = StoredHead::new(received, body, Default::default(), &TargetList::default());
/// // `stored` has 1000 bytes and the tag "v1". Its bytes from 500 on are missing.
/// let missing = Span { first: 500, last: 999 };
/// fields.insert("content-range", "bytes 500-999/1000".parse()?);
/// let relation = |fields: &HeaderMap| continuation(&stored, &missing, StatusCode::PARTIAL_CONTENT, fields, now);
/// assert_eq!(relation(&fields), Continuation::Same(missing));
/// fields.insert("etag", "\"v2\"".parse()?);
/// assert_eq!(relation(&fields), Continuation::Changed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continuation {
    /// The response contains these bytes of the stored representation.
    Same(Span),
    /// The resource has changed: the stored parts cannot be combined with this response.
    Changed,
    /// The response says nothing about the representation, as for an error status.
    Unknown,
}

/// Parses a Content-Range value strictly: `bytes`, one space, plain numbers, and a range inside the total length.
pub fn parse_content_range(value: &[u8]) -> Option<ContentRange> {
    let (unit, rest) = value.split_at_checked(b"bytes ".len())?;
    if !unit.eq_ignore_ascii_case(b"bytes ") {
        return None;
    }
    let slash = rest.iter().position(|byte| *byte == b'/')?;
    let range = &rest[..slash];
    let total = &rest[slash + 1..];
    let total_len = if total == b"*" { None } else { Some(exact_u64(total)?) };
    if range == b"*" {
        return total_len.map(|total_len| ContentRange::Unsatisfied { total_len });
    }
    let dash = range.iter().position(|byte| *byte == b'-')?;
    let span = Span::new(exact_u64(&range[..dash])?, exact_u64(&range[dash + 1..])?)?;
    total_len.is_none_or(|total_len| span.last < total_len).then_some(ContentRange::Part { span, total_len })
}

/// Returns the part that a 206 contains.
///
/// # Errors
/// The 206 cannot be stored: it has several parts, its Content-Range is absent, repeated, invalid or contradicts
/// Content-Length, or the length of the representation is unknown. The caller forwards it.
pub fn part(status: StatusCode, fields: &HeaderMap) -> Result<Part, Reason> {
    if status != StatusCode::PARTIAL_CONTENT || is_multipart(fields) {
        return Err(Reason::Partial);
    }
    let range = single(fields, &CONTENT_RANGE).and_then(|value| parse_content_range(value.as_bytes()));
    let Some(ContentRange::Part { span, total_len: Some(total_len) }) = range else { return Err(Reason::Partial) };
    let length = fields.get(CONTENT_LENGTH).map(|value| exact_u64(value.as_bytes()));
    if length.is_some_and(|length| length != Some(span.len())) {
        return Err(Reason::Partial);
    }
    Ok(Part { span, total_len })
}

/// Returns the head under which parts of a representation are stored: the head of the 206, turned into that of a 200
/// for the whole representation.
pub fn whole_head(
    received: ReceivedHead,
    part: &Part,
    representation: u64,
    selecting: SelectingFields,
    targets: &TargetList,
) -> StoredHead {
    let mut fields = received.fields;
    fields.remove(CONTENT_RANGE);
    // They are those of the part (RFC 9530 2).
    CONTENT_DIGESTS.iter().for_each(|name| drop(fields.remove(name)));
    fields.insert(CONTENT_LENGTH, HeaderValue::from(part.total_len));
    let received = ReceivedHead { status: StatusCode::OK, fields, ..received };
    StoredHead::new(received, BodyPlace::Chunks { len: part.total_len, representation }, selecting, targets)
}

/// Returns a response's strong validator in the form of If-Range (RFC 9110 13.1.5), if it has one.
///
/// Two responses for the same resource with the same strong validator have the same bytes.
pub fn validator(fields: &impl Fields, response_time: Timestamp) -> Option<&[u8]> {
    // Tags are quoted and dates are not, so values of both kinds can be compared directly.
    strong_validator(fields, response_time).map(|(StrongValidator::Tag(value) | StrongValidator::Date(value))| value)
}

/// Returns the fields that request a part of the stored representation, or all of it if it has changed (RFC 9110
/// 13.1.5).
///
/// `None` if the stored response has no strong validator.
pub fn request_fields(stored: &StoredHead, wanted: &Span) -> Option<[(HeaderName, HeaderValue); 2]> {
    let validator = validator(stored.fields(), stored.response_time())?;
    let validator = HeaderValue::from_bytes(validator).expect("it was a field's value");
    let mut range = b"bytes=".to_vec();
    push_u64(&mut range, wanted.first);
    range.push(b'-');
    push_u64(&mut range, wanted.last);
    let range = HeaderValue::try_from(range).expect("digits and separators are a field value");
    Some([(RANGE, range), (IF_RANGE, validator)])
}

/// Interprets the response to a request with [`request_fields`].
pub fn continuation(
    stored: &StoredHead,
    wanted: &Span,
    status: StatusCode,
    fields: &HeaderMap,
    response_time: Timestamp,
) -> Continuation {
    match status {
        StatusCode::PARTIAL_CONTENT if strong_validator(fields, response_time).is_none() => Continuation::Unknown,
        StatusCode::PARTIAL_CONTENT => match part(status, fields) {
            Ok(part)
                if !is_same_representation(stored, fields, response_time) || part.total_len != stored.body().len() =>
            {
                Continuation::Changed
            }
            Ok(part) if wanted.contains(&part.span) => Continuation::Same(part.span),
            _ => Continuation::Unknown,
        },
        StatusCode::OK | StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::NOT_FOUND | StatusCode::GONE => {
            Continuation::Changed
        }
        _ => Continuation::Unknown,
    }
}

/// Returns whether a response is of the stored representation: both have the same strong validator (RFC 9111 3.4).
pub fn is_same_representation(stored: &StoredHead, fields: &HeaderMap, response_time: Timestamp) -> bool {
    let stored = strong_validator(stored.fields(), stored.response_time());
    stored.is_some() && stored == strong_validator(fields, response_time)
}

/// Returns the stored head, updated by a part of the same representation.
///
/// The result has the part's fields and the framing of the whole representation (RFC 9111 3.4, 3.2).
pub fn combined(stored: &StoredHead, part: &Exchange<'_>, settings: &Settings) -> StoredHead {
    let mut updates = part.response_fields.clone();
    updates.remove(CONTENT_RANGE);
    CONTENT_DIGESTS.iter().for_each(|name| drop(updates.remove(name)));
    freshen(stored, &Exchange { response_fields: &updates, ..*part }, settings)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StrongValidator<'a> {
    Tag(&'a [u8]),
    Date(&'a [u8]),
}

/// Returns the strong entity tag, or, if there is no tag at all, a strong Last-Modified (RFC 9110 8.8.1, 8.8.2.2).
fn strong_validator(fields: &impl Fields, response_time: Timestamp) -> Option<StrongValidator<'_>> {
    if fields.first(&ETAG).is_some() {
        let value = fields.single(&ETAG)?;
        return EntityTag::parse(value).filter(|tag| !tag.weak).map(|_| StrongValidator::Tag(value));
    }
    let value = fields.single(&LAST_MODIFIED)?;
    let modified = parse_http_date(value, response_time)?;
    let date = fields.single(&http::header::DATE)?;
    let date = parse_http_date(date, response_time)?;
    (date.millis_since(modified) >= STRONG_DATE_MILLIS_MIN).then_some(StrongValidator::Date(value))
}

fn is_multipart(fields: &HeaderMap) -> bool {
    const TYPE: &[u8] = b"multipart/byteranges";
    let is_one = |value: &HeaderValue| {
        let kind = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        trim(kind).eq_ignore_ascii_case(TYPE)
    };
    fields.get_all(CONTENT_TYPE).iter().any(is_one)
}

/// Parses a decimal number that fits `u64`.
fn exact_u64(digits: &[u8]) -> Option<u64> {
    parse_u64(digits).filter(|value| digits.len() <= DIGITS_MAX && *value < u64::MAX)
}

/// Minimum distance from a strong Last-Modified to Date. Within one second a resource can change again and keep its
/// Last-Modified (RFC 9110 8.8.2.2).
pub(crate) const STRONG_DATE_MILLIS_MIN: i64 = 1000;
