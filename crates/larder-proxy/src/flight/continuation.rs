//! Continues a body from the origin: where the transfer broke off, or at a gap in the stored body.
//!
//! Owns: the request, the check that the response has the same representation, and the number and timing of retries.
//! `asking` sends the request; `carrier` moves and stores the bytes.
//!
//! Invariant: a body is continued only with bytes that have the same strong validator and total length. They come from
//! a 206, or from a 200 whose first bytes are skipped (RFC 9110 13.1.5, 15.3.7.3). Cost: one request per attempt. At
//! most as many attempts in a row as [`WAITS`] has entries bring nothing, and at most [`ATTEMPT_COUNT_MAX`] less than a
//! megabyte.

use std::time::Duration;

use http::{HeaderValue, Method, StatusCode, header, response};
use larder_http::partial;

use crate::{
    asked::RequestEdits,
    cache::{chunks::is_divisible, entry::CHUNK_BYTES},
    clock,
    errors::Failure,
    flight::stage::OpenHead,
    origin::body::OriginBody,
};

/// The missing range of a body.
pub(super) struct MissingRange<'a> {
    /// The validator that distinguishes the body's representation from others.
    pub(super) validator: &'a HeaderValue,
    /// Length of the whole body.
    pub(super) len: u64,
    /// Position after the last byte to request.
    pub(super) end: u64,
    /// Whether the origin sends any part of the body on request.
    pub(super) is_divisible: bool,
}

/// The relation of the origin's response to the bytes that are present.
pub(super) enum ContinuationAnswer {
    /// The response has the same representation. This many bytes precede the missing range.
    Continued {
        status: StatusCode,
        body: OriginBody,
        skip: u64,
    },
    /// The response has another representation.
    Changed,
    /// The response does not tell, and has this status.
    Unclear(StatusCode),
    Failed(Failure),
}

/// The number of times a body was continued, to limit retries.
#[derive(Default)]
pub(super) struct BreakCount {
    count: usize,
    /// The position of the first of these breaks.
    place: u64,
    /// The position of the last break, and the number of attempts since that brought nothing.
    last_place: u64,
    vain_count: usize,
}

impl<'a> MissingRange<'a> {
    /// Returns the missing range of a response that broke off, if its remainder can be requested.
    pub(super) fn of_open(method: &Method, open: &'a OpenHead) -> Option<Self> {
        let len = open.total_len.filter(|_| *method == Method::GET && open.head.status() == StatusCode::OK)?;
        let validator = partial::validator(open.head.fields(), open.head.response_time())?;
        Some(Self { validator, len, end: len, is_divisible: is_divisible(open.head.fields()) })
    }

    /// Returns the request edits that ask for the missing range from `start` on.
    pub(super) fn edits(&self, start: u64) -> RequestEdits {
        let last = if self.end == self.len { String::new() } else { (self.end - 1).to_string() };
        let range = HeaderValue::try_from(format!("bytes={start}-{last}")).expect("digits and a dash are a value");
        let added = vec![(header::RANGE, range), (header::IF_RANGE, self.validator.clone())];
        RequestEdits { whole: true, added, only_at: None }
    }

    /// Classifies the response to that request.
    pub(super) fn judge(&self, start: u64, head: &response::Parts, incoming: OriginBody) -> ContinuationAnswer {
        let answered = partial::validator(&head.headers, clock::now());
        let is_same = answered == Some(self.validator);
        match head.status {
            StatusCode::PARTIAL_CONTENT if is_same => match partial::part(head.status, &head.headers) {
                Ok(part) if part.total_len != self.len => ContinuationAnswer::Changed,
                Ok(part) if part.span.first == start => {
                    ContinuationAnswer::Continued { status: head.status, body: incoming, skip: 0 }
                }
                _ => ContinuationAnswer::Unclear(head.status),
            },
            StatusCode::OK if is_same && incoming.remaining() == Some(self.len) => {
                ContinuationAnswer::Continued { status: head.status, body: incoming, skip: start }
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

impl BreakCount {
    /// Returns the wait before a body that broke off at `place` is continued, or `None` after too many attempts.
    pub(super) fn next_wait(&mut self, place: u64) -> Option<Duration> {
        if self.count == 0 || place - self.place >= CHUNK_BYTES {
            *self = Self { count: 0, place, last_place: place, vain_count: 0 };
        } else if place == self.last_place {
            self.vain_count += 1;
        } else {
            self.last_place = place;
            self.vain_count = 0;
        }
        self.count += 1;
        WAITS.get(self.vain_count).copied().filter(|_| self.count <= ATTEMPT_COUNT_MAX)
    }
}

/// Times to wait before the attempts to continue a body that bring nothing. A connection that was cut can be reopened
/// at once. Beyond two seconds, the client should rather learn that its response broke off.
const WAITS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(1500)];
/// Most attempts that together bring less than a megabyte.
const ATTEMPT_COUNT_MAX: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_that_brings_little_each_time_is_not_asked_for_ever() {
        let mut breaks = BreakCount::default();
        let count = (0..100).take_while(|number| breaks.next_wait(number * 10).is_some()).count();
        assert_eq!(count, ATTEMPT_COUNT_MAX);
        assert_eq!(breaks.next_wait(CHUNK_BYTES), Some(WAITS[0]), "a megabyte is progress");
        assert_eq!(breaks.next_wait(CHUNK_BYTES), Some(WAITS[1]));
    }

    #[test]
    fn origin_that_brings_nothing_is_asked_twice_within_two_seconds() {
        let mut breaks = BreakCount::default();
        for place in [0, 10] {
            assert_eq!([(); 3].map(|()| breaks.next_wait(place)), [Some(WAITS[0]), Some(WAITS[1]), None]);
        }
        assert!(WAITS.iter().sum::<Duration>() < Duration::from_secs(2));
    }
}
