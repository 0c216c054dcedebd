//! Range requests against a complete stored response (RFC 9110 13.1.5, 14).
//!
//! Single ranges are selected; a request for several is answered with the whole, as 14.2 allows. A field
//! that is not valid is ignored. Numbers saturate, so no range is ever larger than it reads.

use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{IF_RANGE, RANGE},
};

use crate::{
    StoredHead,
    date::parse_http_date,
    decimal::{parse_u64, push_u64},
    entity_tag::EntityTag,
    list::{elements, single},
};

/// What a Range field asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeRequest {
    /// Nothing: absent, of another unit, repeated, or not valid.
    Absent,
    /// One range.
    Single(ByteRange),
    /// Several ranges.
    Many,
}

/// One range as asked for, before the length is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// From a byte to a byte, both included, or to the end.
    From {
        /// The first byte.
        first: u64,
        /// The last byte, not before the first.
        last: Option<u64>,
    },
    /// So many bytes at the end.
    Suffix {
        /// How many.
        len: u64,
    },
}

/// What to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeOutcome {
    /// The whole, with its own status.
    Whole,
    /// 206 with these bytes, both included, and [`content_range`].
    Single {
        /// The first byte.
        first: u64,
        /// The last byte, below the total length.
        last: u64,
    },
    /// 416 with [`content_range_unsatisfied`].
    NotSatisfiable,
}

/// What to answer to a request from a stored response of `total_len` bytes that may be served.
pub fn select(method: &Method, request_fields: &HeaderMap, stored: &StoredHead, total_len: u64) -> RangeOutcome {
    // 14.2: Range is defined for GET only, and only a 200 has the whole to take parts of.
    if method != Method::GET || !request_fields.contains_key(RANGE) || stored.status() != StatusCode::OK {
        return RangeOutcome::Whole;
    }
    let RangeRequest::Single(range) = parse(request_fields) else { return RangeOutcome::Whole };
    if !if_range_holds(request_fields, stored) {
        return RangeOutcome::Whole;
    }
    resolve(range, total_len)
}

/// Reads a request's Range field.
pub fn parse(request_fields: &HeaderMap) -> RangeRequest {
    let Some(value) = single(request_fields, &RANGE) else { return RangeRequest::Absent };
    parse_value(value.as_bytes())
}

/// Whether If-Range allows a part of the stored response (RFC 9110 13.1.5); true when there is none.
///
/// A tag must match strongly; a date must be exactly Last-Modified, and that at least a second before
/// Date, else it is too weak to tell two versions apart (8.8.2.2).
pub fn if_range_holds(request_fields: &HeaderMap, stored: &StoredHead) -> bool {
    if !request_fields.contains_key(IF_RANGE) {
        return true;
    }
    let Some(value) = single(request_fields, &IF_RANGE) else { return false };
    if let Some(tag) = EntityTag::parse(value.as_bytes()) {
        return stored.entity_tag().is_some_and(|stored| stored.matches_strongly(&tag));
    }
    let freshness = stored.freshness();
    freshness.last_modified.is_some_and(|modified| {
        freshness.date.millis_since(modified) >= 1000
            && parse_http_date(value.as_bytes(), stored.response_time()) == Some(modified)
    })
}

/// The part of `total_len` bytes a range names (RFC 9110 14.1.2).
pub fn resolve(range: ByteRange, total_len: u64) -> RangeOutcome {
    match range {
        ByteRange::From { first, .. } if first >= total_len => RangeOutcome::NotSatisfiable,
        ByteRange::From { first, last } => {
            RangeOutcome::Single { first, last: last.unwrap_or(u64::MAX).min(total_len - 1) }
        }
        ByteRange::Suffix { len: 0 } => RangeOutcome::NotSatisfiable,
        // Satisfiable by 14.1.2, but there is no byte a Content-Range could name.
        ByteRange::Suffix { .. } if total_len == 0 => RangeOutcome::Whole,
        ByteRange::Suffix { len } => RangeOutcome::Single { first: total_len.saturating_sub(len), last: total_len - 1 },
    }
}

/// The Content-Range of a 206: `bytes first-last/total` (RFC 9110 14.4).
pub fn content_range(first: u64, last: u64, total_len: u64) -> HeaderValue {
    let mut text = b"bytes ".to_vec();
    push_u64(&mut text, first);
    text.push(b'-');
    push_u64(&mut text, last);
    text.push(b'/');
    push_u64(&mut text, total_len);
    HeaderValue::try_from(text).expect("digits and separators are a field value")
}

/// The Content-Range of a 416: `bytes */total` (RFC 9110 14.4).
pub fn content_range_unsatisfied(total_len: u64) -> HeaderValue {
    let mut text = b"bytes */".to_vec();
    push_u64(&mut text, total_len);
    HeaderValue::try_from(text).expect("digits and separators are a field value")
}

fn parse_value(value: &[u8]) -> RangeRequest {
    let Some(equals) = value.iter().position(|byte| *byte == b'=') else { return RangeRequest::Absent };
    let (unit, set) = (&value[..equals], &value[equals + 1..]);
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return RangeRequest::Absent;
    }
    let mut found = RangeRequest::Absent;
    for element in elements(set) {
        let Some(range) = parse_range(element) else { return RangeRequest::Absent };
        found = if found == RangeRequest::Absent { RangeRequest::Single(range) } else { RangeRequest::Many };
    }
    found
}

fn parse_range(element: &[u8]) -> Option<ByteRange> {
    let dash = element.iter().position(|byte| *byte == b'-')?;
    let (first, last) = (&element[..dash], &element[dash + 1..]);
    if first.is_empty() {
        return Some(ByteRange::Suffix { len: parse_u64(last)? });
    }
    let first = parse_u64(first)?;
    let last = if last.is_empty() { None } else { Some(parse_u64(last)?) };
    last.is_none_or(|last| first <= last).then_some(ByteRange::From { first, last })
}
