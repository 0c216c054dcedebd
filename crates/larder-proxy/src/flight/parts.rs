//! Streams several parts of a stored body in one response: multipart/byteranges (RFC 9110 15.3.7.2).
//!
//! Owns: the order of texts and parts. `larder_http::multipart` creates the texts. Invariant: the stream has exactly
//! the announced number of bytes, or ends with an error. Memory: one chunk reader, whatever the number of parts,
//! because only the part being sent is read.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use larder_http::{
    multipart::{Multipart, Piece},
    span::Span,
};

use crate::{
    errors::BodyError,
    flight::{chunk_reader::ChunkReader, source::BodySource},
};

/// The parts of a body that are sent in one response.
pub(crate) struct PartsReader {
    source: PartsSource,
    pieces: VecDeque<Piece>,
    /// The part that is being read, if it is read in chunks.
    reading: Option<ChunkReader>,
    remaining: u64,
}

/// The source of the parts.
pub(crate) enum PartsSource {
    /// The whole body, in memory.
    Whole(Bytes),
    /// A body in chunks.
    Chunks(Arc<BodySource>),
}

impl PartsReader {
    /// Creates a reader of the pieces of `multipart`, whose parts must lie within the body.
    pub(crate) fn new(multipart: &Multipart, source: PartsSource) -> Self {
        let pieces = multipart.pieces().iter().cloned().collect();
        Self { source, pieces, reading: None, remaining: multipart.content_length() }
    }

    /// Returns the number of bytes still to come.
    pub(crate) fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Returns the next bytes.
    pub(crate) fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            if let Some(reader) = &mut self.reading {
                match std::task::ready!(reader.poll_data(context)) {
                    Some(result) => return Poll::Ready(Some(self.note(result))),
                    None => self.reading = None,
                }
            }
            let Some(piece) = self.pieces.pop_front() else { return Poll::Ready(None) };
            match (piece, &self.source) {
                (Piece::Text(text), _) => return Poll::Ready(Some(self.note(Ok(text)))),
                (Piece::Part(span), PartsSource::Whole(body)) => {
                    let part = slice(body, &span).ok_or(BodyError::PartMissing);
                    return Poll::Ready(Some(self.note(part)));
                }
                (Piece::Part(span), PartsSource::Chunks(body)) => {
                    self.reading = Some(ChunkReader::new(Arc::clone(body), span.first..span.last + 1));
                }
            }
        }
    }

    /// Counts the bytes returned. After an error, no bytes follow.
    fn note(&mut self, result: Result<Bytes, BodyError>) -> Result<Bytes, BodyError> {
        match &result {
            Ok(bytes) => self.remaining -= bytes.len() as u64,
            Err(_) => {
                self.pieces.clear();
                self.reading = None;
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
