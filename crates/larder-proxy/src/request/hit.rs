//! Answers from a stored response: preconditions, ranges, and the fields that describe the cache.
//!
//! Whether the stored response may be used is decided elsewhere. Cost: a hit from memory copies the lines of its head,
//! or its map of fields for another form than a plain GET over HTTP/1.1, and adds what changes with time. The body is
//! sent by reference.

use std::{iter, ops::Range, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use larder_cache::object::Spans;
use larder_http::{
    CacheStatus, Precondition, RangeOutcome, StoredHead,
    coding::CONTENT_DIGESTS,
    conditional,
    decimal::push_u64,
    multipart::Multipart,
    range::{self, content_range, content_range_unsatisfied},
};

use crate::{
    asked::RequestHead,
    body::{
        cursor::BodyCursor,
        parts::{PartsReader, PartsSource},
    },
    cache::entry::{CACHE_STATUS, CachedEntry, EntryBody, random},
    client::{
        encoded::{EncodedHit, scratch},
        response_body::ResponseBody,
    },
    marks::{ResponseMarkers, outgoing_fields},
};

/// A response from the cache, with the kind of its body.
pub(crate) struct HitAnswer {
    pub(crate) response: Response<ResponseBody>,
    pub(crate) conditional: bool,
}

/// A request that a stored response answers.
pub(crate) struct HitRequest<'a> {
    pub(crate) marks: &'a ResponseMarkers,
    pub(crate) method: &'a Method,
    pub(crate) fields: &'a HeaderMap,
    /// Age of the stored response in seconds.
    pub(crate) age_secs: u64,
    /// The Cache-Status of the response.
    pub(crate) status: CacheStatus,
}

impl<'a> HitRequest<'a> {
    /// Returns the request for a stored response of this age.
    pub(crate) fn by(marks: &'a ResponseMarkers, asked: &'a RequestHead, age_secs: u64, status: CacheStatus) -> Self {
        Self { marks, method: &asked.method, fields: &asked.fields, age_secs, status }
    }
}

/// The source of a response's body, if the body is in chunks.
pub(crate) type Chunked = Option<BodyCursor>;

/// Answers from a stored response. Returns `None` if only the origin can evaluate the preconditions, or if the body is
/// in chunks and `chunked` is missing.
pub(crate) fn answer(wanted: &HitRequest<'_>, entry: &Arc<CachedEntry>, chunked: Chunked) -> Option<HitAnswer> {
    match conditional::evaluate(wanted.fields, &entry.head) {
        Precondition::Pass => {}
        Precondition::NotModified => {
            let by = (wanted.marks, wanted.fields);
            let response = not_modified(by, &entry.head, Some(wanted.age_secs), wanted.status);
            return Some(HitAnswer { response, conditional: true });
        }
        Precondition::Failed => return None,
    }
    let total_len = entry.body_len();
    let mut fields = outgoing_fields(entry.head.fields(), wanted.marks);
    set_times(wanted.marks, &mut fields, Some(wanted.age_secs), wanted.status);
    let (status, portion) = portion(wanted.method, wanted.fields, &entry.head, total_len, &mut fields);
    let body = if wanted.method == Method::HEAD {
        if status != StatusCode::NO_CONTENT {
            fields.insert(header::CONTENT_LENGTH, HeaderValue::from(total_len));
        }
        ResponseBody::empty()
    } else {
        body_of(entry, portion, chunked)?
    };
    Some(HitAnswer { response: respond(status, fields, body), conditional: false })
}

/// Answers a plain GET over HTTP/1.1 from a response in memory, with the stored lines. Returns `None` if the response
/// has another form.
pub(crate) fn encoded(wanted: &HitRequest<'_>, entry: &CachedEntry) -> Option<EncodedHit> {
    let EntryBody::Whole(body) = &entry.body else { return None };
    let status = entry.head.status();
    let has_body = *wanted.method == Method::GET && status != StatusCode::NO_CONTENT;
    if !has_body
        || conditional::evaluate(wanted.fields, &entry.head) != Precondition::Pass
        || range::select(wanted.method, wanted.fields, &entry.head, body.len() as u64) != RangeOutcome::Whole
    {
        return None;
    }
    let marks = wanted.marks;
    let mut head = scratch();
    head.extend_from_slice(entry.lines(|head| marks.head_lines(head)));
    head.extend_from_slice(b"age: ");
    push_u64(&mut head, wanted.age_secs);
    if marks.add_cache_status {
        head.extend_from_slice(b"\r\ncache-status: ");
        wanted.status.push(&mut head, &marks.cache_name);
    }
    head.extend_from_slice(b"\r\n");
    Some(EncodedHit { head, status, body: body.clone() })
}

/// The part of a body that is sent.
pub(crate) enum BodyPortion {
    /// This span of the body.
    Span(Range<u64>),
    /// Several parts in one body.
    Parts(Multipart),
}

impl BodyPortion {
    /// Returns the bytes of the body that are sent, in ascending order.
    pub(crate) fn spans(&self) -> Spans {
        let mut spans: Spans = match self {
            Self::Span(span) if span.is_empty() => Spans::new(),
            Self::Span(span) => iter::once(span.clone()).collect(),
            Self::Parts(multipart) => multipart.parts().map(|part| part.first..part.last + 1).collect(),
        };
        spans.sort_by_key(|span| span.start);
        spans
    }
}

/// Returns the requested portion of a body of known length, with the matching status. Describes the portion in
/// `fields`.
pub(crate) fn portion(
    method: &Method,
    request_fields: &HeaderMap,
    head: &StoredHead,
    total_len: u64,
    fields: &mut HeaderMap,
) -> (StatusCode, BodyPortion) {
    let outcome = range::select(method, request_fields, head, total_len);
    if outcome != RangeOutcome::Whole {
        // The stored digests are those of the whole body (RFC 9530 2). Repr-Digest still holds.
        CONTENT_DIGESTS.iter().for_each(|name| drop(fields.remove(name)));
    }
    match outcome {
        RangeOutcome::Whole => (head.status(), BodyPortion::Span(0..total_len)),
        RangeOutcome::Single { first, last } => {
            fields.insert(header::CONTENT_RANGE, content_range(first, last, total_len));
            (StatusCode::PARTIAL_CONTENT, BodyPortion::Span(first..last + 1))
        }
        RangeOutcome::Many(parts) => {
            let boundary = u128::from(random()) << 64 | u128::from(random());
            let multipart = Multipart::new(&parts, total_len, fields.get(header::CONTENT_TYPE), boundary);
            fields.insert(header::CONTENT_TYPE, multipart.content_type());
            (StatusCode::PARTIAL_CONTENT, BodyPortion::Parts(multipart))
        }
        RangeOutcome::NotSatisfiable => {
            fields.insert(header::CONTENT_RANGE, content_range_unsatisfied(total_len));
            (StatusCode::RANGE_NOT_SATISFIABLE, BodyPortion::Span(0..0))
        }
    }
}

/// Sets Age, and appends the member of Cache-Status.
pub(crate) fn set_times(marks: &ResponseMarkers, fields: &mut HeaderMap, age_secs: Option<u64>, status: CacheStatus) {
    if let Some(age_secs) = age_secs {
        fields.insert(header::AGE, HeaderValue::from(age_secs));
    }
    if marks.add_cache_status {
        fields.append(&CACHE_STATUS, status.to_value(&marks.cache_name));
    }
}

/// Appends `added` to `fields`.
pub(crate) fn add(fields: &mut HeaderMap, added: &HeaderMap) {
    for (name, value) in added {
        fields.append(name.clone(), value.clone());
    }
}

/// Creates a response from these parts.
pub(crate) fn respond(status: StatusCode, fields: HeaderMap, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = fields;
    response
}

/// Creates the 304 of RFC 9110 15.4.5 for a request with these fields.
///
/// A cache gets all stored fields, because it updates its own copy by them (RFC 9111 3.2). Otherwise a tag that the
/// origin's 304 changed would not reach it, and a purge of that tag would not concern its copy.
pub(crate) fn not_modified(
    (marks, request_fields): (&ResponseMarkers, &HeaderMap),
    head: &StoredHead,
    age_secs: Option<u64>,
    status: CacheStatus,
) -> Response<ResponseBody> {
    let mut fields = if is_by_cache(request_fields) {
        outgoing_fields(head.fields(), marks)
    } else {
        let mut fields = HeaderMap::with_capacity(NOT_MODIFIED_FIELD_COUNT);
        for (name, value) in conditional::not_modified_fields(head) {
            fields.append(name.clone(), value.clone());
        }
        if let Some(via) = &marks.via {
            fields.append(header::VIA, via.clone());
        }
        fields
    };
    set_times(marks, &mut fields, age_secs, status);
    respond(StatusCode::NOT_MODIFIED, fields, ResponseBody::empty())
}

/// Returns whether a request was sent by a proxy, which may have a cache: another node, a child, or a CDN.
fn is_by_cache(request_fields: &HeaderMap) -> bool {
    request_fields.contains_key(header::VIA) || request_fields.contains_key(&CDN_LOOP)
}

/// Returns the body that sends this portion. `cursor` reads the same parts.
pub(crate) fn response_body(portion: BodyPortion, cursor: BodyCursor) -> ResponseBody {
    match portion {
        BodyPortion::Span(_) => ResponseBody::body(cursor),
        BodyPortion::Parts(multipart) => {
            ResponseBody::parts(PartsReader::new(&multipart, PartsSource::Cursor(Box::new(cursor))))
        }
    }
}

/// Returns the body that sends this portion of a whole body.
pub(crate) fn whole_body(whole: &Bytes, portion: BodyPortion) -> ResponseBody {
    match portion {
        BodyPortion::Span(span) => ResponseBody::full(whole.slice(span.start as usize..span.end as usize)),
        BodyPortion::Parts(multipart) => {
            ResponseBody::parts(PartsReader::new(&multipart, PartsSource::Whole(whole.clone())))
        }
    }
}

fn body_of(entry: &Arc<CachedEntry>, portion: BodyPortion, chunked: Chunked) -> Option<ResponseBody> {
    match &entry.body {
        EntryBody::Whole(bytes) => Some(whole_body(bytes, portion)),
        EntryBody::Chunks { .. } => {
            if matches!(&portion, BodyPortion::Span(span) if span.is_empty()) {
                return Some(ResponseBody::empty());
            }
            Some(response_body(portion, chunked?))
        }
    }
}

/// The field by which CDNs recognize loops (RFC 8586).
static CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");
/// Expected number of fields in a 304.
const NOT_MODIFIED_FIELD_COUNT: usize = 12;
