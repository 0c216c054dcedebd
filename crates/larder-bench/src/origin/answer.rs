//! One response of the origin: status, fields, and a body that is computed as it is sent.
//!
//! Owns: conditional and range requests, as far as the workloads use them. Counting and waiting are elsewhere.
//! Invariant: the bytes of a body are those of [`ObjectNature::fill`] for the object and the version in the response's
//! field.

use crate::{
    content::{BenchObject, ObjectNature},
    fields,
};
use http::{
    HeaderMap, Method, Response, StatusCode,
    header::{self, HeaderName, HeaderValue},
};
use larder_wire::RequestHead;
use std::{
    ops::Range,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A response of the origin, and the number of the request for which it was made.
pub(super) struct MadeAnswer {
    pub(super) response: Response<ObjectBody>,
    pub(super) request_number: u64,
}

/// The body of a response: a range of an object's bytes, which are computed when they are sent.
pub(super) struct ObjectBody {
    nature: ObjectNature,
    version: u64,
    rest: Range<u64>,
    /// The position in the object at which the body breaks off. `None` if it is complete.
    end: Option<u64>,
}

/// Returns the response to `request`. Of the responses with a body, the share `abort_share` breaks off.
pub(super) fn answer(request: &RequestHead, abort_share: f64) -> MadeAnswer {
    let request_number = fields::number(&request.fields, &fields::REQUEST).unwrap_or_default();
    let mut response = match BenchObject::at(request.target.path()) {
        Some(object) => answer_object(request, object),
        None => empty(StatusCode::NOT_FOUND),
    };
    response.headers_mut().insert(fields::ANSWERED, HeaderValue::from(request_number));
    if fields::breaks_off(request_number, abort_share) && response.body().len_bytes() > 1 {
        let body = response.body_mut();
        body.end = Some(body.rest.start + body.len_bytes() / 2);
    }
    MadeAnswer { response, request_number }
}

fn answer_object(request: &RequestHead, object: BenchObject) -> Response<ObjectBody> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let nature = object.nature();
    let version = nature.version_at(now);
    let modified = UNIX_EPOCH + Duration::from_secs(version.since_s);
    let is_get = request.method == Method::GET;
    let since = request.fields.get(header::IF_MODIFIED_SINCE).and_then(|value| value.to_str().ok());
    let since = since.and_then(|value| httpdate::parse_http_date(value).ok());
    let whole = 0..nature.len_bytes;
    let range = requested(&request.fields, nature.len_bytes).filter(|_| is_get);
    let mut response = match (&request.method, since, &range) {
        (&Method::POST, ..) => empty(StatusCode::OK),
        (_, Some(since), _) if since >= modified => empty(StatusCode::NOT_MODIFIED),
        (_, _, Some(range)) => {
            let mut response = with_body(nature, version.number, range.clone());
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            let shown = format!("bytes {}-{}/{}", range.start, range.end - 1, nature.len_bytes);
            insert(&mut response, header::CONTENT_RANGE, &shown);
            response
        }
        (&Method::HEAD, ..) => {
            let mut response = empty(StatusCode::OK);
            insert(&mut response, header::CONTENT_LENGTH, &nature.len_bytes.to_string());
            response
        }
        _ => with_body(nature, version.number, whole),
    };
    if request.method == Method::POST {
        insert(&mut response, header::CACHE_CONTROL, "no-store");
        return response;
    }
    insert(&mut response, header::CONTENT_TYPE, object.content_type());
    insert(&mut response, header::LAST_MODIFIED, &httpdate::fmt_http_date(modified));
    insert(&mut response, fields::VERSION, &version.number.to_string());
    if nature.is_storable {
        let until = UNIX_EPOCH + Duration::from_secs(version.until_s);
        insert(&mut response, header::EXPIRES, &httpdate::fmt_http_date(until));
    } else {
        insert(&mut response, header::CACHE_CONTROL, "no-store");
    }
    response
}

/// Returns the range that the field Range names. `None` if it names several, or one outside the object.
fn requested(headers: &HeaderMap, len_bytes: u64) -> Option<Range<u64>> {
    let value = headers.get(header::RANGE)?.to_str().ok()?;
    let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    let first: u64 = first.parse().ok()?;
    let last = if last.is_empty() { len_bytes.checked_sub(1)? } else { last.parse().ok()? };
    (first <= last && first < len_bytes).then(|| first..last.saturating_add(1).min(len_bytes))
}

fn insert(response: &mut Response<ObjectBody>, name: HeaderName, value: &str) {
    let value = HeaderValue::from_str(value).expect("digits, dates and tokens are field values");
    response.headers_mut().insert(name, value);
}

fn with_body(nature: ObjectNature, version: u64, rest: Range<u64>) -> Response<ObjectBody> {
    Response::new(ObjectBody { nature, version, rest, end: None })
}

fn empty(status: StatusCode) -> Response<ObjectBody> {
    let nature = BenchObject { class: crate::content::ObjectClass::Fixed(0), number: 0 }.nature();
    let mut response = with_body(nature, 0, 0..0);
    *response.status_mut() = status;
    response
}

impl ObjectBody {
    pub(super) fn len_bytes(&self) -> u64 {
        self.rest.end - self.rest.start
    }

    pub(super) fn breaks_off(&self) -> bool {
        self.end.is_some()
    }

    /// Appends the next piece of the body to `octets`. Returns whether more follows.
    pub(super) fn fill_next(&mut self, octets: &mut Vec<u8>) -> bool {
        let stop = self.end.unwrap_or(self.rest.end);
        let end = stop.min(self.rest.start + PIECE_BYTES);
        let before = octets.len();
        octets.resize(before + (end - self.rest.start) as usize, 0);
        self.nature.fill(self.version, self.rest.start, &mut octets[before..]);
        self.rest.start = end;
        end < stop
    }
}

const PIECE_BYTES: u64 = 64 << 10;
