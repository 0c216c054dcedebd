//! One reader of a flight: a client that gets the bytes of a shared fetch.
//!
//! Owns: the reader's position, which is released when the reader is dropped. Invariant: bytes come in order and
//! without gaps, or the stream ends with an error. Cost: pieces in memory are passed by reference. A reader that fell
//! behind the window reads one chunk at a time from the store. If its bytes are not stored either, it fetches the
//! remainder itself, which needs a strong validator.

use std::{
    ops::Range,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::Frame;

use crate::{
    errors::BodyError,
    flight::{
        chunk_reader::ChunkReader,
        shared::{Flight, ReaderPiece},
        source::BodySource,
        stage::FetchStage,
    },
};

/// A reader of a flight.
pub(crate) struct FlightReader {
    flight: Arc<Flight>,
    index: usize,
    first: bool,
    position: u64,
    /// The position at which to stop, if it is before the body's end.
    end: Option<u64>,
    /// Whether everything except trailers, or an error, has been returned.
    finished: bool,
    /// Whether trailers may still have to be returned.
    awaits_trailers: bool,
    /// The reader of the stored chunks, while this reader is behind the window.
    behind: Option<Box<ChunkReader>>,
}

impl FlightReader {
    /// Creates the reader for the request that started the flight.
    pub(crate) fn first(flight: Arc<Flight>) -> Self {
        let index = flight.add_reader().expect("a new flight is open");
        Self::at(flight, index, true)
    }

    /// Creates another reader, or returns `None` if it is too late to join.
    pub(crate) fn join(flight: &Arc<Flight>) -> Option<Self> {
        let index = flight.add_reader()?;
        Some(Self::at(Arc::clone(flight), index, false))
    }

    /// Creates a reader from `position` on. Returns `None` if the flight will not reach that position soon.
    pub(crate) fn join_at(flight: &Arc<Flight>, position: u64) -> Option<Self> {
        let index = flight.add_reader_at(position)?;
        let mut reader = Self::at(Arc::clone(flight), index, false);
        reader.position = position;
        Some(reader)
    }

    /// Returns whether the flight was started for this reader.
    pub(crate) fn is_first(&self) -> bool {
        self.first
    }

    pub(crate) fn flight(&self) -> &Arc<Flight> {
        &self.flight
    }

    /// Returns the fetch that brings the part that this flight has requested, if the part is longer than a chunk.
    pub(crate) fn part_flight(&self) -> Option<Arc<Flight>> {
        self.flight.source()?.begun_flight()
    }

    /// Waits until the fetch has a result to report.
    pub(crate) async fn stage(&mut self) -> FetchStage {
        std::future::poll_fn(|context| self.flight.poll_stage(self.index, context)).await
    }

    /// Restricts the reader to a span of the body.
    pub(crate) fn set_span(&mut self, span: Range<u64>) {
        self.position = span.start;
        self.end = Some(span.end);
        self.finished = span.is_empty();
    }

    /// Returns the number of bytes still to come, if it is known.
    pub(crate) fn remaining(&self) -> Option<u64> {
        if self.finished { Some(0) } else { self.end.map(|end| end - self.position) }
    }

    /// Returns the next bytes, or the trailers after the whole body.
    pub(crate) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let piece = ready!(self.poll_data(context));
        Poll::Ready(match piece {
            Some(piece) => Some(piece.map(Frame::data)),
            None if std::mem::take(&mut self.awaits_trailers) => {
                self.flight.trailers().map(|trailers| Ok(Frame::trailers(trailers)))
            }
            None => None,
        })
    }

    /// Returns the next bytes.
    pub(crate) fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            if self.finished {
                return Poll::Ready(None);
            }
            if let Some(behind) = &mut self.behind {
                match ready!(behind.poll_data(context)) {
                    Some(Ok(bytes)) => return Poll::Ready(Some(Ok(self.advance(bytes)))),
                    Some(Err(error)) => return Poll::Ready(Some(Err(self.fail(error)))),
                    None => self.behind = None,
                }
                continue;
            }
            match ready!(self.flight.poll_piece(self.index, self.position, context)) {
                ReaderPiece::Bytes(bytes) => return Poll::Ready(Some(Ok(self.advance(bytes)))),
                // Only one chunk is read. After it, the reader may have caught up with the window, which saves reads.
                ReaderPiece::InStore(source, number) => {
                    let end = source.chunks.span(number).end.min(self.end.unwrap_or(u64::MAX));
                    self.behind = Some(Box::new(ChunkReader::new(source, self.position..end)));
                }
                // The flight has dropped bytes that this reader still needs. An error here would cut off every slow
                // client, so the reader fetches the remainder itself.
                ReaderPiece::End(Err(BodyError::TooSlow)) if let Some((source, len)) = self.way_on() => {
                    let end = *self.end.get_or_insert(len);
                    self.behind = Some(Box::new(ChunkReader::new(source, self.position..end)));
                }
                ReaderPiece::End(result) => {
                    self.finished = true;
                    // If the body ends before the end of this reader's span, that is an error.
                    let short = self.end.is_some_and(|end| self.position < end);
                    self.awaits_trailers = result.is_ok() && self.end.is_none();
                    return Poll::Ready(match result {
                        Ok(()) if short => Some(Err(BodyError::OriginBroke)),
                        Ok(()) => None,
                        Err(error) => Some(Err(error)),
                    });
                }
            }
        }
    }

    /// Returns the body and its length, if dropped bytes can be read from another source.
    fn way_on(&self) -> Option<(Arc<BodySource>, u64)> {
        let source = self.flight.source().filter(|source| source.chunks.can_go_on())?;
        let len = source.chunks.len.filter(|len| self.position < *len)?;
        Some((source, len))
    }

    fn fail(&mut self, error: BodyError) -> BodyError {
        self.finished = true;
        error
    }

    /// Records that bytes are returned, and cuts them at the end of the span.
    fn advance(&mut self, mut bytes: Bytes) -> Bytes {
        if let Some(end) = self.end {
            bytes.truncate(usize::try_from(end - self.position).unwrap_or(usize::MAX));
        }
        self.position += bytes.len() as u64;
        self.finished = self.end == Some(self.position);
        bytes
    }

    fn at(flight: Arc<Flight>, index: usize, first: bool) -> Self {
        Self { flight, index, first, position: 0, end: None, finished: false, awaits_trailers: false, behind: None }
    }
}

impl Drop for FlightReader {
    fn drop(&mut self) {
        self.flight.remove_reader(self.index);
    }
}
