//! Streams several parts of a body in one response: multipart/byteranges (RFC 9110 15.3.7.2).
//!
//! Owns: the order of texts and parts. `larder_http::multipart` creates the texts. Invariant: the stream has exactly
//! the announced number of bytes, or ends with an error. Memory: one cursor at a time.

use std::{
    collections::VecDeque,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use larder_http::{
    multipart::{Multipart, Piece},
    span::Span,
};

use super::{cursor::BodyCursor, error::BodyError};
use crate::http::fetcher::Fetcher;

/// A multipart body: the parts of a body that a request for several ranges gets in one response.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # fetcher::run(async |site| {
/// # use fetcher::PageRequest;
/// use http::{HeaderMap, HeaderValue, header::RANGE};
/// use larder_cache::http::{answer::{AnswerBody, CacheQuery}, fetcher::Fetcher};
/// use std::{future::poll_fn, sync::Arc};
///
/// fetcher::store(&site, "/news").await;
/// let fields = HeaderMap::from_iter([(RANGE, HeaderValue::from_static("bytes=0-7, 9000-9007"))]);
/// let asked = Arc::new(PageRequest::new("/news", fields));
/// let answer = CacheQuery { http: &site, asked: &asked }.answer().await.expect("it is stored");
/// let body = answer.response.made(site.fetcher.marks(), answer.status).into_body();
/// let AnswerBody::Parts(mut parts) = body else { panic!("one part") };
/// while let Some(bytes) = poll_fn(|context| parts.poll_data(context)).await {
///     assert!(bytes.is_ok());
/// }
/// assert_eq!(parts.remaining(), 0);
/// # });
/// ```
pub struct PartsReader<F: Fetcher> {
    source: PartsSource<F>,
    pieces: VecDeque<Piece>,
    /// Number of bytes that are left of the part that is being sent.
    part_bytes: u64,
    remaining: u64,
}

/// The source of the bytes for the parts of a multipart response.
pub(crate) enum PartsSource<F: Fetcher> {
    /// The whole body in memory.
    Whole(Bytes),
    /// A cursor over all parts. If the parts are not in ascending order, the cursor is moved to each of them.
    Cursor(Box<BodyCursor<F>>),
}

impl<F: Fetcher> PartsReader<F> {
    /// Creates a reader that sends the pieces of `multipart`. Its parts must lie within the body.
    pub(crate) fn new(multipart: &Multipart, source: PartsSource<F>) -> Self {
        let pieces = multipart.pieces().iter().cloned().collect();
        Self { source, pieces, part_bytes: 0, remaining: multipart.content_length() }
    }

    /// Returns the number of bytes still to come, including the delimiters between the parts.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Returns the next bytes. `None` is the end.
    pub fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            if self.part_bytes > 0 {
                let part = ready!(self.poll_part(context));
                return Poll::Ready(Some(self.note(part)));
            }
            let Some(piece) = self.pieces.pop_front() else { return Poll::Ready(None) };
            match (piece, &mut self.source) {
                (Piece::Text(text), _) => return Poll::Ready(Some(self.note(Ok(text)))),
                (Piece::Part(span), PartsSource::Whole(body)) => {
                    let part = slice(body, &span).ok_or(BodyError::PartMissing);
                    return Poll::Ready(Some(self.note(part)));
                }
                (Piece::Part(span), PartsSource::Cursor(cursor)) => {
                    self.part_bytes = span.len();
                    cursor.seek(span.first..span.last + 1);
                }
            }
        }
    }

    /// Returns the next bytes of the part that is being sent.
    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, BodyError>> {
        let PartsSource::Cursor(cursor) = &mut self.source else { return Poll::Ready(Err(BodyError::PartMissing)) };
        let part = ready!(cursor.poll_data(context)).unwrap_or(Err(BodyError::PartMissing));
        self.part_bytes -= part.as_ref().map_or(0, |bytes| bytes.len() as u64).min(self.part_bytes);
        Poll::Ready(part)
    }

    /// Subtracts the returned bytes from those still to come. After an error, no bytes follow.
    fn note(&mut self, result: Result<Bytes, BodyError>) -> Result<Bytes, BodyError> {
        match &result {
            Ok(bytes) => self.remaining -= bytes.len() as u64,
            Err(_) => {
                self.pieces.clear();
                self.part_bytes = 0;
                self.remaining = 0;
            }
        }
        result
    }
}

fn slice(body: &Bytes, span: &Span) -> Option<Bytes> {
    let first = usize::try_from(span.first).ok()?;
    let last = usize::try_from(span.last).ok()?;
    (last < body.len()).then(|| body.slice(first..=last))
}
