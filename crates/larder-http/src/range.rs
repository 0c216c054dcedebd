//! Selects ranges of a complete stored response (RFC 9110 13.1.5, 14).
//!
//! A single range is returned as requested. Several ranges keep the order of the request; ranges that overlap, or whose
//! gap is shorter than a part's head, are joined (15.3.7.2). The whole response is sent instead if the ranges look like
//! abuse (14.2), or if the 206 would be longer than the whole response. That bounds the sum of their lengths. An
//! invalid field is ignored. Numbers saturate, so a range is never larger than requested. Cost: at most
//! [`RANGE_COUNT_MAX`] ranges, sorted twice.

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
    partial::STRONG_DATE_MILLIS_MIN,
    span::Span,
    steps,
};

/// Largest number of ranges in a request. A request for more receives the whole response. Delta updaters, such as
/// zchunk, request a few hundred.
pub const RANGE_COUNT_MAX: usize = 512;

/// A parsed Range field.
///
/// ```
/// use http::HeaderMap;
/// use larder_http::range::{ByteRange, RangeRequest, parse};
///
/// let mut fields = HeaderMap::new();
/// fields.insert("range", "bytes=500-".parse()?);
/// assert_eq!(parse(&fields), RangeRequest::Single(ByteRange::From { first: 500, last: None }));
/// fields.insert("range", "lines=1-2".parse()?);
/// assert_eq!(parse(&fields), RangeRequest::Absent);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeRequest {
    /// No usable range: the field is absent, of another unit, repeated or invalid, or it has too many ranges.
    Absent,
    /// One range.
    Single(ByteRange),
    /// Several ranges, at most [`RANGE_COUNT_MAX`].
    Many(Vec<ByteRange>),
}

/// One requested range, as the Range field states it. Its bytes are known once it is resolved against the length of the
/// representation, see [`select`].
///
/// ```
/// use http::HeaderMap;
/// use larder_http::range::{ByteRange, RangeRequest, parse};
///
/// let mut fields = HeaderMap::new();
/// fields.insert("range", "bytes=0-99, -1".parse()?);
/// let first = ByteRange::From { first: 0, last: Some(99) };
/// assert_eq!(parse(&fields), RangeRequest::Many(vec![first, ByteRange::Suffix { len: 1 }]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// The bytes from `first` to `last`, both included, or from `first` to the end.
    From {
        /// The first byte.
        first: u64,
        /// The last byte, not before the first. `None` stands for the end of the representation.
        last: Option<u64>,
    },
    /// The last bytes of the representation.
    Suffix {
        /// The number of bytes.
        len: u64,
    },
}

/// The response to a request with a Range field.
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
/// use larder_http::{RangeOutcome, range};
///
/// let mut request = HeaderMap::new();
/// request.insert("range", "bytes=-100".parse()?);
/// let outcome = range::select(&http::Method::GET, &request, &stored, 1000);
/// assert_eq!(outcome, RangeOutcome::Single { first: 900, last: 999 });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeOutcome {
    /// The whole response, with its own status.
    Whole,
    /// A 206 with the bytes from `first` to `last`, both included. [`content_range`] formats its Content-Range.
    Single {
        /// The first byte.
        first: u64,
        /// The last byte, below the total length.
        last: u64,
    },
    /// A 206 with these parts in this order, as [`crate::multipart::Multipart`] formats them. There are at least two
    /// parts, and none overlap.
    Many(Vec<Span>),
    /// A 416. [`content_range_unsatisfied`] formats its Content-Range.
    NotSatisfiable,
}

/// Selects the ranges of a usable stored response of `total_len` bytes that a request asks for.
pub fn select(method: &Method, request_fields: &HeaderMap, stored: &StoredHead, total_len: u64) -> RangeOutcome {
    // Most requests have few fields, and no Range: comparing the names costs less than hashing one.
    // 14.2: Range is defined only for GET, and only a 200 holds the whole representation.
    if method != Method::GET || !request_fields.keys().any(|name| *name == RANGE) || stored.status() != StatusCode::OK {
        return RangeOutcome::Whole;
    }
    let requested = parse(request_fields);
    if requested == RangeRequest::Absent || !if_range_holds(request_fields, stored) {
        return RangeOutcome::Whole;
    }
    match requested {
        RangeRequest::Absent => RangeOutcome::Whole,
        RangeRequest::Single(range) => resolve(range, total_len),
        RangeRequest::Many(ranges) => resolve_many(&ranges, total_len),
    }
}

/// Reads a request's Range field.
pub fn parse(request_fields: &HeaderMap) -> RangeRequest {
    let Some(value) = single(request_fields, &RANGE) else { return RangeRequest::Absent };
    steps::take(value.len());
    parse_value(value.as_bytes())
}

/// Returns whether If-Range permits a part of the stored response (RFC 9110 13.1.5).
///
/// A request without If-Range always permits it. A tag in If-Range must match the stored tag strongly. A date must
/// equal the stored Last-Modified, and that must be at least a second before Date, because otherwise it cannot
/// distinguish two versions (8.8.2.2).
pub(crate) fn if_range_holds(request_fields: &HeaderMap, stored: &StoredHead) -> bool {
    if !request_fields.contains_key(IF_RANGE) {
        return true;
    }
    let Some(value) = single(request_fields, &IF_RANGE) else { return false };
    if let Some(tag) = EntityTag::parse(value.as_bytes()) {
        return stored.entity_tag().is_some_and(|stored| stored.matches_strongly(&tag));
    }
    let freshness = stored.freshness();
    freshness.last_modified.is_some_and(|modified| {
        freshness.date.millis_since(modified) >= STRONG_DATE_MILLIS_MIN
            && parse_http_date(value.as_bytes(), stored.response_time()) == Some(modified)
    })
}

/// Resolves one range of a representation of `total_len` bytes (RFC 9110 14.1.2).
pub fn resolve(range: ByteRange, total_len: u64) -> RangeOutcome {
    match range {
        ByteRange::From { first, .. } if first >= total_len => RangeOutcome::NotSatisfiable,
        ByteRange::From { first, last } => {
            RangeOutcome::Single { first, last: last.unwrap_or(u64::MAX).min(total_len - 1) }
        }
        ByteRange::Suffix { len: 0 } => RangeOutcome::NotSatisfiable,
        // Satisfiable by 14.1.2, but Content-Range cannot name an empty range.
        ByteRange::Suffix { .. } if total_len == 0 => RangeOutcome::Whole,
        ByteRange::Suffix { len } => RangeOutcome::Single { first: total_len.saturating_sub(len), last: total_len - 1 },
    }
}

/// Resolves several ranges of a representation of `total_len` bytes.
pub(crate) fn resolve_many(ranges: &[ByteRange], total_len: u64) -> RangeOutcome {
    let mut spans = Vec::with_capacity(ranges.len());
    for range in ranges {
        match resolve(*range, total_len) {
            RangeOutcome::Single { first, last } => spans.push(Span { first, last }),
            RangeOutcome::Whole => return RangeOutcome::Whole,
            RangeOutcome::Many(_) | RangeOutcome::NotSatisfiable => {}
        }
    }
    if spans.is_empty() {
        return RangeOutcome::NotSatisfiable;
    }
    if is_abusive(&spans) {
        return RangeOutcome::Whole;
    }
    let parts = joined(&spans);
    // Even with gaps between them, the parts can be longer than the whole because of their heads.
    let len = parts.iter().fold(0u64, |len, part| len.saturating_add(part.len()).saturating_add(PART_HEAD_BYTES));
    match parts[..] {
        [Span { first, last }] => RangeOutcome::Single { first, last },
        _ if len >= total_len => RangeOutcome::Whole,
        _ => RangeOutcome::Many(parts),
    }
}

/// Formats the Content-Range of a 206: `bytes first-last/total` (RFC 9110 14.4).
pub fn content_range(first: u64, last: u64, total_len: u64) -> HeaderValue {
    let mut text = b"bytes ".to_vec();
    push_u64(&mut text, first);
    text.push(b'-');
    push_u64(&mut text, last);
    text.push(b'/');
    push_u64(&mut text, total_len);
    HeaderValue::try_from(text).expect("digits and separators are a field value")
}

/// Formats the Content-Range of a 416: `bytes */total` (RFC 9110 14.4).
pub fn content_range_unsatisfied(total_len: u64) -> HeaderValue {
    let mut text = b"bytes */".to_vec();
    push_u64(&mut text, total_len);
    HeaderValue::try_from(text).expect("digits and separators are a field value")
}

fn parse_value(value: &[u8]) -> RangeRequest {
    let Some(equals) = value.iter().position(|byte| *byte == b'=') else { return RangeRequest::Absent };
    let unit = &value[..equals];
    let set = &value[equals + 1..];
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return RangeRequest::Absent;
    }
    let mut ranges = Vec::new();
    for element in elements(set) {
        match parse_range(element) {
            Some(range) if ranges.len() < RANGE_COUNT_MAX => ranges.push(range),
            _ => return RangeRequest::Absent,
        }
    }
    match ranges[..] {
        [] => RangeRequest::Absent,
        [range] => RangeRequest::Single(range),
        _ => RangeRequest::Many(ranges),
    }
}

/// Returns whether the ranges are abusive as RFC 9110 14.2 describes: more than two overlap others, many small ones are
/// not in ascending order, or very many are not ascending and disjoint.
fn is_abusive(spans: &[Span]) -> bool {
    let is_disjoint = spans.is_sorted_by(|before, after| before.last < after.first);
    if spans.len() > MIXED_COUNT_MAX && !is_disjoint {
        return true;
    }
    let mut sorted = spans.to_vec();
    sorted.sort_unstable();
    let mut overlapping = 0;
    let mut reach: Option<u64> = None;
    for (index, span) in sorted.iter().enumerate() {
        let before = reach.is_some_and(|reach| span.first <= reach);
        let after = sorted.get(index + 1).is_some_and(|next| next.first <= span.last);
        overlapping += usize::from(before || after);
        reach = Some(reach.map_or(span.last, |reach| reach.max(span.last)));
    }
    let small = spans.iter().filter(|span| span.len() < SMALL_RANGE_BYTES).count();
    overlapping > OVERLAPPING_COUNT_MAX || (small > SMALL_COUNT_MAX && !spans.is_sorted())
}

/// Joins spans that overlap, or whose gap is shorter than the head of a part. A joined span takes the place of the
/// first requested of its ranges (RFC 9110 15.3.7.2).
fn joined(spans: &[Span]) -> Vec<Span> {
    let mut sorted: Vec<(Span, usize)> = spans.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    let mut groups: Vec<(Span, usize)> = Vec::with_capacity(sorted.len());
    for (span, order) in sorted {
        match groups.last_mut() {
            Some((group, first_order)) if group.overlaps(&span) || group.gap(&span) < PART_HEAD_BYTES => {
                *group = group.hull(&span);
                *first_order = order.min(*first_order);
            }
            _ => groups.push((span, order)),
        }
    }
    groups.sort_unstable_by_key(|(_, order)| *order);
    groups.into_iter().map(|(span, _)| span).collect()
}

fn parse_range(element: &[u8]) -> Option<ByteRange> {
    let dash = element.iter().position(|byte| *byte == b'-')?;
    let first = &element[..dash];
    let last = &element[dash + 1..];
    if first.is_empty() {
        return Some(ByteRange::Suffix { len: parse_u64(last)? });
    }
    let first = parse_u64(first)?;
    let last = if last.is_empty() { None } else { Some(parse_u64(last)?) };
    last.is_none_or(|last| first <= last).then_some(ByteRange::From { first, last })
}

/// Largest number of ranges in a request that need not be ascending and disjoint.
const MIXED_COUNT_MAX: usize = 64;
/// Largest number of ranges in a request that may overlap another (RFC 9110 14.2: more than two are suspect).
const OVERLAPPING_COUNT_MAX: usize = 2;
/// Ranges below this length, in bytes, count as small.
const SMALL_RANGE_BYTES: u64 = 1024;
/// Largest number of small ranges that may come in any order. If there are more, they must be ascending.
const SMALL_COUNT_MAX: usize = 8;
/// Overhead of a part in bytes. RFC 9110 15.3.7.2 calls 80 typical.
const PART_HEAD_BYTES: u64 = 80;
