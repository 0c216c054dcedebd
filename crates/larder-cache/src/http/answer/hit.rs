//! Answers from a stored response: preconditions, ranges, and the fields that describe the cache.
//!
//! Whether the stored response may be used is decided elsewhere. Cost: a response in another form than the
//! stored octets takes a map of their fields. The body is sent by reference.

use std::{iter, ops::Range};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use larder_http::{
    CacheStatus, Precondition, RangeOutcome, StoredHead,
    coding::CONTENT_DIGESTS,
    conditional,
    fields::{NameFilter, via::CDN_LOOP},
    multipart::Multipart,
    range::{self, content_range, content_range_unsatisfied},
};

use super::{
    marks::ResponseMarks,
    query::{AnswerBody, AnswerResponse, CacheQuery},
};
use crate::{
    http::{
        body::{
            cursor::BodyCursor,
            parts::{PartsReader, PartsSource},
        },
        entry::{CachedEntry, EntryBody, random},
        fetcher::{ClientRequest as _, Fetcher},
    },
    object::Spans,
};

/// A response from the cache, and whether it is a 304.
pub struct HitAnswer<F: Fetcher> {
    /// The response.
    pub response: Response<AnswerBody<F>>,
    /// Whether the response is a 304.
    pub is_conditional: bool,
}

/// A request that is answered with a stored response, and the facts that the answer needs.
pub struct HitRequest<'a> {
    /// The entries that the cache adds to fields of the response, such as its name in Via.
    pub marks: &'a ResponseMarks,
    /// The method of the request.
    pub method: &'a Method,
    /// The fields of the request.
    pub fields: &'a HeaderMap,
    /// The names in `fields`, to rule most lookups out.
    pub names: NameFilter,
    /// Age of the stored response in seconds.
    pub age_secs: u64,
    /// The content of the Cache-Status field for this answer.
    pub status: CacheStatus,
}

impl<'a, F: Fetcher> CacheQuery<'a, F> {
    /// Returns this request in the form that [`answer`] takes. `age_secs` is the age of the stored response that
    /// answers it.
    pub(super) fn hit(self, age_secs: u64, status: CacheStatus) -> HitRequest<'a> {
        let Self { http, asked } = self;
        let marks = http.fetcher.marks();
        HitRequest { marks, method: asked.method(), fields: asked.fields(), names: asked.names(), age_secs, status }
    }
}

/// Answers a request with a stored response. Returns `None` if only the origin can evaluate the request's
/// preconditions, or if the body is in chunks and `chunked` is missing.
pub fn answer<F: Fetcher>(
    wanted: &HitRequest<'_>,
    entry: &CachedEntry,
    chunked: Option<BodyCursor<F>>,
) -> Option<HitAnswer<F>> {
    match conditional::evaluate(wanted.fields, &entry.head) {
        Precondition::Pass => {}
        Precondition::NotModified => {
            let by = (wanted.marks, wanted.fields);
            let response = not_modified(by, &entry.head, Some(wanted.age_secs), wanted.status);
            return Some(HitAnswer { response, is_conditional: true });
        }
        Precondition::Failed => return None,
    }
    let total_len = entry.body_len();
    let mut fields = wanted.marks.outgoing_fields(entry.head.fields());
    wanted.marks.put_times(&mut fields, Some(wanted.age_secs), wanted.status);
    let (status, portion) = portion(wanted.method, wanted.fields, &entry.head, total_len, &mut fields);
    let body = if wanted.method == Method::HEAD {
        if status != StatusCode::NO_CONTENT {
            fields.insert(header::CONTENT_LENGTH, HeaderValue::from(total_len));
        }
        AnswerBody::Empty
    } else {
        body_of(entry, portion, chunked)?
    };
    Some(HitAnswer { response: respond(status, fields, body), is_conditional: false })
}

/// Returns whether the answer to a request is the stored head with the whole body, which has `body_len` bytes.
pub fn is_plain(wanted: &HitRequest<'_>, stored: &StoredHead, body_len: usize) -> bool {
    let is_whole = || range::select(wanted.method, wanted.fields, stored, body_len as u64) == RangeOutcome::Whole;
    let is_met = || conditional::evaluate(wanted.fields, stored) == Precondition::Pass;
    *wanted.method == Method::GET
        && stored.status() != StatusCode::NO_CONTENT
        && (!wanted.names.may_have_any(OTHER_ANSWERS) || is_met() && is_whole())
}

/// The fields that ask for another answer than the whole response.
const OTHER_ANSWERS: NameFilter =
    NameFilter::of_names(&["if-match", "if-modified-since", "if-none-match", "if-unmodified-since", "range"]);

impl<F: Fetcher> AnswerResponse<F> {
    /// Returns the response with all fields that the client gets, except those of its connection.
    pub fn made(self, marks: &ResponseMarks, status: CacheStatus) -> Response<AnswerBody<F>> {
        match self {
            Self::Made(response) => response,
            Self::Plain(plain) => {
                let mut fields = marks.outgoing_fields(plain.head().fields());
                marks.put_times(&mut fields, plain.age_secs, status);
                add(&mut fields, &plain.own);
                respond(plain.head().status(), fields, AnswerBody::Whole(plain.body))
            }
        }
    }
}

/// The portion of a body that a response sends.
pub(super) enum BodyPortion {
    /// One contiguous span of the body, possibly the whole body.
    Span(Range<u64>),
    /// Several parts of the body, sent as one multipart body.
    Parts(Multipart),
}

impl BodyPortion {
    /// Returns the spans of the body that are sent, in ascending order.
    pub(super) fn spans(&self) -> Spans {
        let mut spans: Spans = match self {
            Self::Span(span) if span.is_empty() => Spans::new(),
            Self::Span(span) => iter::once(span.clone()).collect(),
            Self::Parts(multipart) => multipart.parts().map(|part| part.first..part.last + 1).collect(),
        };
        spans.sort_by_key(|span| span.start);
        spans
    }
}

/// Returns the portion of the body that a request wants, with the status of its response. Adds the fields that describe
/// the portion to `fields`.
pub(super) fn portion(
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

/// Appends `added` to `fields`.
pub(super) fn add(fields: &mut HeaderMap, added: &HeaderMap) {
    for (name, value) in added {
        fields.append(name.clone(), value.clone());
    }
}

/// Creates a response with this status, these fields and this body.
pub(super) fn respond<F: Fetcher>(
    status: StatusCode,
    fields: HeaderMap,
    body: AnswerBody<F>,
) -> Response<AnswerBody<F>> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = fields;
    response
}

/// Creates the 304 of RFC 9110 15.4.5 for a request with these fields.
///
/// A client that is a cache itself gets all stored fields, because it updates its own copy by them (RFC 9111 3.2).
/// Otherwise a tag that the origin's 304 changed would not reach that cache, and a purge of the tag would not concern
/// its copy.
pub(super) fn not_modified<F: Fetcher>(
    (marks, request_fields): (&ResponseMarks, &HeaderMap),
    head: &StoredHead,
    age_secs: Option<u64>,
    status: CacheStatus,
) -> Response<AnswerBody<F>> {
    let mut fields = if is_by_cache(request_fields) {
        marks.outgoing_fields(head.fields())
    } else {
        let mut fields = conditional::not_modified_fields(head);
        marks.put_via(&mut fields);
        fields
    };
    marks.put_times(&mut fields, age_secs, status);
    respond(StatusCode::NOT_MODIFIED, fields, AnswerBody::Empty)
}

/// Returns whether the request came through a proxy that may have a cache: another node, a child proxy, or a CDN.
fn is_by_cache(request_fields: &HeaderMap) -> bool {
    request_fields.contains_key(header::VIA) || request_fields.contains_key(&CDN_LOOP)
}

/// Returns the body that sends `portion` of a body in chunks. `cursor` must read the same spans.
pub(super) fn cursor_body<F: Fetcher>(portion: BodyPortion, cursor: BodyCursor<F>) -> AnswerBody<F> {
    match portion {
        BodyPortion::Span(_) => AnswerBody::Cursor(Box::new(cursor)),
        BodyPortion::Parts(multipart) => {
            AnswerBody::Parts(Box::new(PartsReader::new(&multipart, PartsSource::Cursor(Box::new(cursor)))))
        }
    }
}

/// Returns the body that sends `portion` of a body in memory.
pub(super) fn whole_body<F: Fetcher>(whole: &Bytes, portion: BodyPortion) -> AnswerBody<F> {
    match portion {
        BodyPortion::Span(span) => AnswerBody::Whole(whole.slice(span.start as usize..span.end as usize)),
        BodyPortion::Parts(multipart) => {
            AnswerBody::Parts(Box::new(PartsReader::new(&multipart, PartsSource::Whole(whole.clone()))))
        }
    }
}

fn body_of<F: Fetcher>(
    entry: &CachedEntry,
    portion: BodyPortion,
    chunked: Option<BodyCursor<F>>,
) -> Option<AnswerBody<F>> {
    match &entry.body {
        EntryBody::Whole(bytes) => Some(whole_body(bytes, portion)),
        EntryBody::Chunks { .. } => {
            if matches!(&portion, BodyPortion::Span(span) if span.is_empty()) {
                return Some(AnswerBody::Empty);
            }
            Some(cursor_body(portion, chunked?))
        }
    }
}
