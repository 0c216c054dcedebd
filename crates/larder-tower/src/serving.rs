//! Turns a stored response into the response to a request: whole, a range, or a 304.

use crate::{
    body::CacheBody,
    entries::{StoredBody, StoredResponse},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode,
    header::{AGE, CONTENT_LENGTH, CONTENT_RANGE},
};
use larder_http::{
    CacheStatus, Precondition, RangeOutcome, cache_status::RequestHandling, coding::CONTENT_DIGESTS, conditional,
    range, reuse::Age,
};

/// The name of the field that says what caches did (RFC 9211).
const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// Returns the response to a request from a stored response that may be used for it.
pub(crate) fn response<B>(
    (method, request_fields): (&Method, &HeaderMap),
    stored: StoredResponse,
    age: Age,
    status_value: HeaderValue,
) -> Response<CacheBody<B>> {
    let StoredResponse { head, body } = stored;
    let outcome = match conditional::evaluate(request_fields, &head) {
        Precondition::NotModified => {
            let mut response = Response::new(CacheBody::memory(Default::default()));
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            for (name, value) in conditional::not_modified_fields(&head) {
                response.headers_mut().append(name.clone(), value.clone());
            }
            return with_cache_fields(response, Some(age), status_value);
        }
        Precondition::Pass | Precondition::Failed => range::select(method, request_fields, &head, body.len()),
    };
    let mut status = head.status();
    let mut fields = head.into_fields();
    let len_bytes = body.len();
    if matches!(outcome, RangeOutcome::Single { .. } | RangeOutcome::NotSatisfiable) {
        // The stored digests are those of the whole body (RFC 9530 2). Repr-Digest still holds.
        CONTENT_DIGESTS.iter().for_each(|name| drop(fields.remove(name)));
    }
    let span = match outcome {
        RangeOutcome::Single { first, last } => {
            status = StatusCode::PARTIAL_CONTENT;
            fields.insert(CONTENT_RANGE, range::content_range(first, last, len_bytes));
            first..last + 1
        }
        RangeOutcome::NotSatisfiable => {
            status = StatusCode::RANGE_NOT_SATISFIABLE;
            fields.insert(CONTENT_RANGE, range::content_range_unsatisfied(len_bytes));
            0..0
        }
        // A server may ignore a request for several ranges (RFC 9110 14.2).
        RangeOutcome::Whole | RangeOutcome::Many(_) => 0..len_bytes,
    };
    if !(status == StatusCode::NO_CONTENT || status.is_informational()) {
        fields.insert(CONTENT_LENGTH, HeaderValue::from(span.end - span.start));
    }
    let body = match body {
        _ if *method == Method::HEAD => CacheBody::memory(Default::default()),
        StoredBody::Inline(bytes) => CacheBody::memory(bytes.slice(span.start as usize..span.end as usize)),
        StoredBody::Separate(value) => CacheBody::stored(value.range_reader(span.clone()), span.end - span.start),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = fields;
    with_cache_fields(response, Some(age), status_value)
}

/// Returns the 504 for a request that accepts only a stored response (RFC 9111 5.2.1.7).
pub(crate) fn unsatisfiable<B>(status_value: HeaderValue) -> Response<CacheBody<B>> {
    let mut response = Response::new(CacheBody::memory(Default::default()));
    *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
    with_cache_fields(response, None, status_value)
}

/// Sets the fields that a cache adds: Cache-Status, and the age of a stored response (RFC 9111 4).
pub(crate) fn with_cache_fields<B>(
    mut response: Response<B>,
    age: Option<Age>,
    status_value: HeaderValue,
) -> Response<B> {
    if let Some(age) = age {
        response.headers_mut().insert(AGE, HeaderValue::from(age.age_secs));
    }
    response.headers_mut().append(CACHE_STATUS, status_value);
    response
}

/// Returns the status of a request that waited for another request's fetch and is answered from the cache. `status` is
/// the reason for its own fetch.
pub(crate) fn collapsed(status: CacheStatus) -> CacheStatus {
    match status.handling {
        RequestHandling::Forwarded { why, .. } => {
            let handling = RequestHandling::Forwarded { why, status: None, stored: false, collapsed: true };
            CacheStatus { handling, ..status }
        }
        RequestHandling::Hit { .. } => status,
    }
}

/// Returns a status with what the origin answered.
pub(crate) fn answered(status: CacheStatus, answer: StatusCode, is_stored: bool) -> CacheStatus {
    match status.handling {
        RequestHandling::Forwarded { why, collapsed, .. } => {
            let handling = RequestHandling::Forwarded { why, status: Some(answer), stored: is_stored, collapsed };
            CacheStatus { handling, ..status }
        }
        RequestHandling::Hit { .. } => status,
    }
}
