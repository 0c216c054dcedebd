//! A client of a body: a place in it, and nothing else.
//!
//! Invariant: bytes come in order and without gaps, or the stream ends with an error. The unsent part of a stored body
//! is protected, so that the store does not reclaim it while it is being read. Memory: the last bytes that the
//! connection got, and at most `HELD_COUNT_MAX` reclaim guards, whatever the body's length.

use std::{
    collections::VecDeque,
    future::poll_fn,
    iter,
    ops::Range,
    sync::Arc,
    task::{Context, Poll, ready},
};

use crate::object::{CursorEnd, CursorId, CursorTerms, Spans};
use bytes::Bytes;
use http_body::Frame;
use larder_store::ReclaimGuard;

use super::{continuation::ContinuedBody, error::BodyError, long_body::LongBody};
use crate::http::{entry::CHUNK_BYTES, fetcher::Fetcher};

/// A client of a body, with its position. Other clients may read the same body at the same time. Drop the cursor when
/// the client no longer reads.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # fetcher::run(async |site| {
/// use larder_cache::http::{answer::AnswerBody, fetcher::Fetcher};
/// use std::future::poll_fn;
///
/// let answer = fetcher::get(&site, "/news").await.expect("the origin answers");
/// let body = answer.response.made(site.fetcher.marks(), answer.status).into_body();
/// let AnswerBody::Cursor(mut cursor) = body else { panic!("it does not arrive") };
/// assert_eq!(cursor.remaining(), Some(10_000));
/// while let Some(bytes) = poll_fn(|context| cursor.poll_data(context)).await {
///     assert!(!bytes.expect("the origin sends all").is_empty());
/// }
/// assert_eq!(cursor.remaining(), Some(0));
/// # });
/// ```
pub struct BodyCursor<F: Fetcher> {
    body: Arc<LongBody<F>>,
    id: CursorId,
    terms: CursorTerms,
    /// Position in the body of the next byte to return.
    position: u64,
    /// End of the last span that the client wants. `u64::MAX` if the client wants a body of unknown length to its end.
    end: u64,
    is_over: bool,
    /// The first bytes, if they were read before the head of the client's response was sent.
    first: Option<Bytes>,
    /// Whether the body has ended, but its trailers have not been returned.
    awaits_trailers: bool,
    /// Guards that keep chunks in the store until they are sent, in ascending order of the chunks.
    held: VecDeque<ReclaimGuard>,
    /// Number of the first chunk for which no guard was taken yet.
    held_end: u64,
}

impl<F: Fetcher> BodyCursor<F> {
    /// Creates the cursor of a client that was added to `body` and reads `spans`.
    pub(super) fn new(body: Arc<LongBody<F>>, id: CursorId, terms: CursorTerms, spans: &Spans) -> Self {
        let position = spans.first().map_or(0, |span| span.start);
        let end = spans.last().map_or(0, |span| span.end);
        let held_end = position / CHUNK_BYTES;
        let held = VecDeque::new();
        let is_over = spans.is_empty();
        Self { body, id, terms, position, end, is_over, first: None, awaits_trailers: false, held, held_end }
    }

    /// Waits until the body promises all bytes that the client wants. Returns the response that brings the missing
    /// ones, or `None` if none are missing.
    ///
    /// # Errors
    /// The body cannot promise the bytes.
    pub(crate) async fn ready(&mut self) -> Result<Option<ContinuedBody>, CursorEnd> {
        poll_fn(|context| self.body.poll_promise(self.id, context)).await
    }

    /// Waits for the promise, as [`Self::ready`] does. If no bytes are missing, also waits for the first bytes.
    ///
    /// # Errors
    /// The body cannot promise the bytes, or the first ones cannot be read.
    pub(crate) async fn begin(&mut self) -> Result<Option<ContinuedBody>, CursorEnd> {
        let continued = self.ready().await?;
        if continued.is_none() {
            self.hold();
            let (_, bytes) = poll_fn(|context| self.body.poll_bytes(self.id, context)).await?;
            self.first = Some(bytes);
        }
        Ok(continued)
    }

    /// Returns how many bytes are still to come. Exact only for a client that reads a single span. `None` if the length
    /// of the body is unknown.
    pub fn remaining(&self) -> Option<u64> {
        if self.is_over { Some(0) } else { (self.end < u64::MAX).then(|| self.end - self.position) }
    }

    /// Continues with `span`: the next of the spans that the client wants, or any other part of the body.
    pub(super) fn seek(&mut self, span: Range<u64>) {
        let is_begun = self.first.is_some() && self.position == span.start;
        if is_begun || self.first.is_none() && self.body.position(self.id) == Some(span.start) {
            self.position = span.start;
            return;
        }
        self.first = None;
        self.body.leave(self.id);
        let spans: Spans = iter::once(span.clone()).collect();
        self.id = self.body.enter(None, spans, self.terms);
        (self.position, self.end) = (span.start, span.end);
        self.is_over = false;
        self.held.clear();
        self.held_end = self.position / CHUNK_BYTES;
    }

    /// Returns the next bytes, or the trailers after the last bytes. `None` is the end.
    pub fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let piece = ready!(self.poll_data(context));
        Poll::Ready(match piece {
            Some(piece) => Some(piece.map(Frame::data)),
            None if std::mem::take(&mut self.awaits_trailers) => {
                self.body.trailers().map(|trailers| Ok(Frame::trailers(trailers)))
            }
            None => None,
        })
    }

    /// Returns the next bytes. `None` is the end of the body or of the wanted spans.
    pub fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if let Some(bytes) = self.first.take() {
            return Poll::Ready(Some(Ok(self.advance(self.position, bytes))));
        }
        self.hold();
        match ready!(self.body.poll_bytes(self.id, context)) {
            Ok((position, bytes)) => Poll::Ready(Some(Ok(self.advance(position, bytes)))),
            Err(end) => {
                self.is_over = true;
                let is_short = self.end < u64::MAX && self.position < self.end;
                if end == CursorEnd::Whole && !is_short {
                    self.awaits_trailers = true;
                    return Poll::Ready(None);
                }
                Poll::Ready(Some(Err(self.body.error(end))))
            }
        }
    }

    /// Moves the position behind `bytes`, which are about to be returned.
    fn advance(&mut self, position: u64, bytes: Bytes) -> Bytes {
        self.position = position + bytes.len() as u64;
        self.is_over = self.position == self.end;
        bytes
    }

    /// Protects the chunks that are still to be sent from eviction, up to `HELD_COUNT_MAX`. Releases those that were
    /// sent.
    fn hold(&mut self) {
        let current = self.position / CHUNK_BYTES;
        let end = self.end.div_ceil(CHUNK_BYTES).min(current.saturating_add(HELD_COUNT_MAX));
        if self.held_end < end {
            self.held.extend((self.held_end..end).map_while(|number| self.body.protect(number)));
            self.held_end = end;
        }
        let still_to_come = usize::try_from(self.held_end - current).unwrap_or(usize::MAX);
        self.held.drain(..self.held.len().saturating_sub(still_to_come));
    }
}

impl<F: Fetcher> Drop for BodyCursor<F> {
    fn drop(&mut self) {
        self.body.leave(self.id);
    }
}

/// Maximum number of chunks that one client protects from eviction. They are 1 GiB of a body. The store has a limit for
/// all clients together.
const HELD_COUNT_MAX: u64 = 1024;
