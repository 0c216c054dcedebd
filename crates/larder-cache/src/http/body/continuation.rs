//! Continues a body from the origin: where the transfer broke off, or at a gap in the stored body.
//!
//! Owns: the request, and the check that the response has the same representation. The caller sends the request;
//! the core decides when.
//!
//! Invariant: a body is continued only with bytes that have the same strong validator and total length. They come from
//! a 206, or from a 200 (RFC 9110 13.1.5, 15.3.7.3). Cost: one request per attempt.

use std::ops::Range;

use http::{HeaderName, HeaderValue, StatusCode, header, response};
use larder_http::{Timestamp, partial};

use crate::http::fetcher::IncomingBody;

/// A missing range of a body, which is requested from the origin.
///
/// ```
/// use http::{HeaderValue, header};
/// use larder_cache::http::body::continuation::MissingRange;
///
/// let validator = HeaderValue::from_static("\"v1\"");
/// let missing = MissingRange { validator: &validator, len: 1000, end: 600, is_divisible: true };
/// let fields = missing.fields(400);
/// assert_eq!(fields[0], (header::RANGE, HeaderValue::from_static("bytes=400-599")));
/// assert_eq!(fields[1], (header::IF_RANGE, validator.clone()));
/// ```
pub struct MissingRange<'a> {
    /// The validator (an entity tag or a date) that distinguishes the body's representation from others.
    pub validator: &'a HeaderValue,
    /// Length of the whole body in bytes.
    pub len: u64,
    /// End of the missing range: the position after its last byte.
    pub end: u64,
    /// Whether the origin serves ranges, so that any part of the body can be requested.
    pub is_divisible: bool,
}

/// The response, of the origin or of another node, that brings the missing bytes of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContinuedBody {
    /// The status of the response.
    pub(crate) status: StatusCode,
    /// Whether this node stores the bytes of the response.
    pub(crate) is_stored: bool,
}

/// Whether the origin's response continues the bytes that are present. [`MissingRange::judge`] returns it.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # use fetcher::PageBody;
/// use http::{HeaderValue, Response, StatusCode};
/// use larder_cache::http::body::continuation::{ContinuationAnswer, MissingRange};
/// use larder_http::Timestamp;
///
/// let validator = HeaderValue::from_static("\"v1\"");
/// let missing = MissingRange { validator: &validator, len: 10, end: 10, is_divisible: true };
/// let now = Timestamp::from_secs(1_800_000_000);
/// // A new version of the body cannot continue the old one.
/// let response = Response::builder().status(StatusCode::PARTIAL_CONTENT).header("content-range", "bytes 5-9/10");
/// let (head, ()) = response.header("etag", "\"v2\"").body(()).unwrap().into_parts();
/// let answer = missing.judge(5, &head, PageBody::new("world".into()), now);
/// assert!(matches!(answer, ContinuationAnswer::Changed));
/// ```
pub enum ContinuationAnswer<B> {
    /// The response has the same representation as the present bytes, and brings this part of it.
    Continued {
        /// The status of the response.
        status: StatusCode,
        /// The body of the response, as it arrives.
        body: Box<B>,
        /// The range of the whole body that the response brings.
        span: Range<u64>,
    },
    /// The response has another representation, so it cannot continue the present bytes.
    Changed,
    /// The response has this status, and does not show which representation it has.
    Unclear(StatusCode),
    /// There is no response, for this reason.
    Failed(String),
}

impl MissingRange<'_> {
    /// Returns the request fields, Range and If-Range, for the missing range from `start` on.
    pub fn fields(&self, start: u64) -> Vec<(HeaderName, HeaderValue)> {
        let last = if self.end == self.len { String::new() } else { (self.end - 1).to_string() };
        let range = HeaderValue::try_from(format!("bytes={start}-{last}")).expect("digits and a dash are a value");
        vec![(header::RANGE, range), (header::IF_RANGE, self.validator.clone())]
    }

    /// Classifies the response to a request with [`MissingRange::fields`], which arrived at `now`.
    pub fn judge<B: IncomingBody>(
        &self,
        start: u64,
        head: &response::Parts,
        incoming: B,
        now: Timestamp,
    ) -> ContinuationAnswer<B> {
        let answered = partial::validator(&head.headers, now);
        let is_same = answered == Some(self.validator.as_bytes());
        match head.status {
            StatusCode::PARTIAL_CONTENT if is_same => match partial::part(head.status, &head.headers) {
                Ok(part) if part.total_len != self.len => ContinuationAnswer::Changed,
                Ok(part) if part.span.first == start => ContinuationAnswer::Continued {
                    status: head.status,
                    body: Box::new(incoming),
                    span: part.span.first..part.span.last + 1,
                },
                _ => ContinuationAnswer::Unclear(head.status),
            },
            StatusCode::OK if is_same && incoming.remaining() == Some(self.len) => {
                ContinuationAnswer::Continued { status: head.status, body: Box::new(incoming), span: 0..self.len }
            }
            StatusCode::PARTIAL_CONTENT if answered.is_none() => ContinuationAnswer::Unclear(head.status),
            StatusCode::PARTIAL_CONTENT
            | StatusCode::OK
            | StatusCode::RANGE_NOT_SATISFIABLE
            | StatusCode::PRECONDITION_FAILED
            | StatusCode::NOT_FOUND
            | StatusCode::GONE => ContinuationAnswer::Changed,
            status => ContinuationAnswer::Unclear(status),
        }
    }
}
