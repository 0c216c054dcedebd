//! Streams a span of a body that is stored in chunks, reading ahead.
//!
//! Owns: the reads in flight. Invariant: bytes come in order and without gaps, or the stream ends in an
//! error. Memory: at most [`AHEAD_COUNT`] chunks per client, whatever the body's length.

use std::{
    collections::VecDeque,
    future::Future,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;

use crate::{
    cache::chunks::{CHUNK_BYTES, ChunkedBody, Placed},
    client::response_body::BodyError,
};

/// A span of a chunked body on its way to a client.
pub(crate) struct ChunkReader {
    body: Arc<ChunkedBody>,
    /// What has not been handed out yet.
    span: Range<u64>,
    /// The next chunk to begin reading.
    next: u64,
    ahead: VecDeque<Read>,
}

/// One chunk: being read, or there.
enum Read {
    Pending(Pin<Box<dyn Future<Output = Result<Placed, BodyError>> + Send>>),
    Done(Result<Placed, BodyError>),
}

impl ChunkReader {
    /// Reads `span` of `body`; the span lies within it.
    pub(crate) fn new(body: Arc<ChunkedBody>, span: Range<u64>) -> Self {
        let next = span.start / CHUNK_BYTES;
        Self { body, span, next, ahead: VecDeque::with_capacity(AHEAD_COUNT) }
    }

    /// Bytes still to come.
    pub(crate) fn remaining(&self) -> u64 {
        self.span.end - self.span.start
    }

    /// The next bytes.
    pub(crate) fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        if self.span.is_empty() {
            return Poll::Ready(None);
        }
        self.read_ahead(context);
        match self.ahead.pop_front() {
            Some(Read::Done(Ok(chunk))) => Poll::Ready(Some(self.take_from(&chunk))),
            Some(Read::Done(Err(error))) => {
                self.span.start = self.span.end;
                self.ahead.clear();
                Poll::Ready(Some(Err(error)))
            }
            Some(pending @ Read::Pending(_)) => {
                self.ahead.push_front(pending);
                Poll::Pending
            }
            // `read_ahead` leaves none only when the span is empty.
            None => Poll::Ready(Some(Err(BodyError::PartMissing))),
        }
    }

    /// Begins reads up to the bound, and drives those that are begun.
    fn read_ahead(&mut self, context: &mut Context<'_>) {
        while self.ahead.len() < AHEAD_COUNT && self.next * CHUNK_BYTES < self.span.end {
            let reading = Arc::clone(&self.body).read_within(self.next, self.span.clone());
            self.ahead.push_back(Read::Pending(Box::pin(reading)));
            self.next += 1;
        }
        for read in &mut self.ahead {
            if let Read::Pending(future) = read
                && let Poll::Ready(result) = future.as_mut().poll(context)
            {
                *read = Read::Done(result);
            }
        }
    }

    /// The bytes that lie in the span.
    fn take_from(&mut self, placed: &Placed) -> Result<Bytes, BodyError> {
        let end = placed.span().end.min(self.span.end);
        let bytes = placed.slice(self.span.start..end).filter(|bytes| !bytes.is_empty());
        let bytes = bytes.ok_or(BodyError::PartMissing)?;
        self.span.start = end;
        Ok(bytes)
    }
}

/// Chunks a client may have in memory at once.
const AHEAD_COUNT: usize = 3;
