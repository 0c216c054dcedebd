//! How an origin goes on with a body: from where it broke off, or where what is stored has a gap.
//!
//! Owns: what is asked, whether the answer is of the same representation, and how often and after which waits it is asked
//! again. Does not: ask (see `asking`), or move and store bytes (see `carrier`). Invariant: only bytes of the same strong validator and the same length
//! of the whole go on with a body: those of a 206, or of a 200 behind as many as lie before (RFC 9110 13.1.5, 15.3.7.3).
//! Cost: one request each time; [`WAITS`] together, unless a megabyte has come in between.

use std::time::Duration;

use http::{HeaderValue, Method, StatusCode, header, response};
use larder_http::partial;

use crate::{
    asked::RequestEdits, cache::entry::CHUNK_BYTES, clock, errors::Failure, flight::stage::OpenHead,
    origin::body::OriginBody,
};

/// What is missing of a body.
pub(super) struct MissingRange<'a> {
    /// What tells its representation from others.
    pub(super) validator: &'a HeaderValue,
    /// Length of the whole.
    pub(super) len: u64,
    /// Place after the last byte to ask for.
    pub(super) end: u64,
}

/// What the origin's answer is to what is there.
pub(super) enum ContinuationAnswer {
    /// The same: so many bytes lie before what is missing.
    Continued {
        status: StatusCode,
        body: OriginBody,
        skip: u64,
    },
    /// Another representation.
    Changed,
    /// Nothing is said of it.
    Unclear(StatusCode),
    Failed(Failure),
}

/// How often a body was asked to go on.
#[derive(Default)]
pub(super) struct BreakCount {
    count: usize,
    /// Where it broke the first time of those that count.
    place: u64,
}

impl<'a> MissingRange<'a> {
    /// What is missing of a response that is on its way, if its rest can be asked for.
    pub(super) fn of_open(method: &Method, open: &'a OpenHead) -> Option<Self> {
        let len = open.total_len.filter(|_| *method == Method::GET && open.head.status() == StatusCode::OK)?;
        let validator = partial::validator(open.head.fields(), open.head.response_time())?;
        Some(Self { validator, len, end: len })
    }

    /// What a request for what is missing from `start` on says.
    pub(super) fn edits(&self, start: u64) -> RequestEdits {
        let last = if self.end == self.len { String::new() } else { (self.end - 1).to_string() };
        let range = HeaderValue::try_from(format!("bytes={start}-{last}")).expect("digits and a dash are a value");
        let added = vec![(header::RANGE, range), (header::IF_RANGE, self.validator.clone())];
        RequestEdits { whole: true, added, only_at: None }
    }

    /// What the answer is to that request.
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
            | StatusCode::NOT_FOUND
            | StatusCode::GONE => ContinuationAnswer::Changed,
            status => ContinuationAnswer::Unclear(status),
        }
    }
}

impl BreakCount {
    /// How long to wait before a body is asked to go on that broke off at `place`; `None` if that was done often enough.
    pub(super) fn next_wait(&mut self, place: u64) -> Option<Duration> {
        if self.count == 0 || place - self.place >= CHUNK_BYTES {
            *self = Self { count: 0, place };
        }
        let wait = WAITS.get(self.count).copied();
        self.count += 1;
        wait
    }
}

/// How long is waited before a body is asked to go on, time after time: a connection that was cut can be made anew at once, and a
/// server that starts again takes seconds.
const WAITS: [Duration; 6] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_that_brings_little_each_time_is_not_asked_for_ever() {
        let mut breaks = BreakCount::default();
        let count = (0..100).take_while(|number| breaks.next_wait(number * 10).is_some()).count();
        assert_eq!(count, WAITS.len());
        assert_eq!(breaks.next_wait(CHUNK_BYTES), Some(WAITS[0]), "a megabyte is progress");
        assert_eq!(breaks.next_wait(CHUNK_BYTES), Some(WAITS[1]));
    }
}
