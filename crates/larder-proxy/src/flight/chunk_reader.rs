//! Streams a span of a body that is stored in chunks, with read-ahead. Bytes that the store does not supply come from
//! the origin.
//!
//! Owns: the running reads, and the order of sources for the next byte. The store comes first, as long as it responds
//! in time. Then the origin continues from there (`flight::rest`) up to the next chunk that seems to be stored. If the
//! origin cannot continue, the store is tried again, for as long as the client may be without progress.
//!
//! Invariant: bytes come in order and without gaps. The stream ends with an error only if no source has the next byte.
//! The unsent part is protected, so that the store does not reclaim it while it is being read.
//!
//! Memory: the client's share of the memory for bodies, at most [`AHEAD_COUNT`] chunks or a part of one, or a flight's
//! window. In addition at most [`HELD_COUNT_MAX`] reclaim guards, whatever the body's length.

use std::{
    collections::VecDeque,
    future::Future,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use larder_store::ReclaimGuard;

use crate::{
    cache::{chunks::PlacedBytes, entry::CHUNK_BYTES, patience::ReadPatience, shared_reads::AbsenceReason},
    errors::BodyError,
    flight::{reader::FlightReader, rest, source::BodySource, stage::FetchStage},
};

/// A span of a chunked body on its way to a client.
pub(crate) struct ChunkReader {
    source: Arc<BodySource>,
    /// The range that has not been handed out yet.
    span: Range<u64>,
    /// The next chunk to begin reading.
    next: u64,
    ahead: VecDeque<ChunkRead>,
    /// The guards of the unsent chunks, in order.
    held: VecDeque<ReclaimGuard>,
    /// The first chunk without a guard.
    held_end: u64,
    rest: OriginTail,
    /// The chunk that is being probed again, because it was stored after the first probe.
    looked_again: Option<u64>,
    /// Number of times the store was in trouble.
    trouble_count: u32,
    /// Whether the store is the only source, because the origin does not continue this body.
    is_alone: bool,
}

type Reading = Pin<Box<dyn Future<Output = Result<PlacedBytes, AbsenceReason>> + Send>>;

/// The state of one chunk: being read, present, or absent.
enum ChunkRead {
    Pending(Reading),
    Done(Result<PlacedBytes, AbsenceReason>),
}

/// The origin as a source in place of the store.
enum OriginTail {
    Nothing,
    /// The remainder from this position on has been requested.
    Asked(u64, Pin<Box<dyn Future<Output = Option<FlightReader>> + Send>>),
    /// The origin continues the body since this position.
    Comes(u64, Box<FlightReader>),
}

impl ChunkReader {
    /// Creates a reader of `span` in `source`. The span must lie within the body.
    pub(crate) fn new(source: Arc<BodySource>, span: Range<u64>) -> Self {
        let next = span.start / CHUNK_BYTES;
        let is_alone = !source.chunks.can_go_on();
        let ahead = VecDeque::new();
        let held = VecDeque::new();
        let rest = OriginTail::Nothing;
        Self { source, span, next, ahead, held, held_end: next, rest, looked_again: None, trouble_count: 0, is_alone }
    }

    /// Returns the number of bytes still to come.
    pub(crate) fn remaining(&self) -> u64 {
        self.span.end - self.span.start
    }

    /// Returns the next bytes.
    pub(crate) fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            if self.span.is_empty() {
                return Poll::Ready(None);
            }
            if !matches!(self.rest, OriginTail::Nothing) {
                if let Some(bytes) = ready!(self.poll_rest(context)) {
                    return Poll::Ready(Some(Ok(bytes)));
                }
                continue;
            }
            // Chunks that were read ahead come first. The fetch of the remainder begins where they end.
            if self.ahead.is_empty()
                && let Some(reader) = self.source.take_rest(self.span.start)
            {
                self.rest = OriginTail::Comes(self.span.start, Box::new(reader));
                continue;
            }
            self.read_ahead(context);
            match self.ahead.pop_front() {
                Some(ChunkRead::Done(Ok(chunk))) => return Poll::Ready(Some(self.take_from(&chunk))),
                Some(ChunkRead::Done(Err(absence))) => {
                    // A missing chunk is not an error yet: the origin may have it, or the store may have it at a second
                    // try.
                    if !self.go_on_without(absence) {
                        return Poll::Ready(Some(Err(self.give_up())));
                    }
                }
                Some(pending @ ChunkRead::Pending(_)) => {
                    self.ahead.push_front(pending);
                    return Poll::Pending;
                }
                // `read_ahead` begins no read only if the span is empty.
                None => return Poll::Ready(Some(Err(self.give_up()))),
            }
        }
    }

    /// Begins reads up to the limit, and polls those that are running.
    fn read_ahead(&mut self, context: &mut Context<'_>) {
        self.hold();
        // If there is no other source, giving up early would be useless.
        let waiting = if self.is_alone { ReadPatience::Long } else { ReadPatience::Short };
        // A fetch of missing bytes must be read from its start on. Past that point the store would report its chunks as
        // missing, and they would be requested twice.
        let end = self.source.next_rest_start(&self.span).unwrap_or(self.span.end);
        let count = self.ahead_count();
        while self.ahead.len() > count {
            // Memory no longer suffices for the chunk furthest ahead.
            self.ahead.pop_back();
            self.next -= 1;
        }
        while self.ahead.len() < count && self.next * CHUNK_BYTES < end {
            self.ahead.push_back(self.begin_reading(self.next, waiting));
            self.next += 1;
        }
        for read in &mut self.ahead {
            if let ChunkRead::Pending(future) = read
                && let Poll::Ready(result) = future.as_mut().poll(context)
            {
                *read = ChunkRead::Done(result);
            }
        }
    }

    /// Returns how many chunks may be in memory or being read.
    fn ahead_count(&self) -> usize {
        let share = self.source.chunks.cache.shared.bodies.share_bytes();
        usize::try_from(share / CHUNK_BYTES).unwrap_or(usize::MAX).clamp(1, AHEAD_COUNT)
    }

    /// Protects the unsent part from reclaim, up to the limit, and releases the sent part.
    fn hold(&mut self) {
        let Some(store) = &self.source.chunks.cache.shared.store else { return };
        let current = self.span.start / CHUNK_BYTES;
        let end = self.span.end.div_ceil(CHUNK_BYTES).min(current + HELD_COUNT_MAX);
        for number in self.held_end..end {
            self.held.push_back(store.protect(&self.source.chunks.chunk_key(number)));
        }
        self.held_end = self.held_end.max(end);
        let still_to_come = usize::try_from(self.held_end - current).unwrap_or(usize::MAX);
        self.held.drain(..self.held.len().saturating_sub(still_to_come));
    }

    fn begin_reading(&self, number: u64, waiting: ReadPatience) -> ChunkRead {
        ChunkRead::Pending(Box::pin(Arc::clone(&self.source).read(number, self.span.clone(), waiting)))
    }

    /// Continues from the origin, or tries the store once more. Returns `false` if neither is possible.
    fn go_on_without(&mut self, absence: AbsenceReason) -> bool {
        if self.is_alone {
            return false;
        }
        let start = self.span.start;
        let end = self.span.end;
        self.ahead.clear();
        if let Some(reader) = self.source.take_rest(start) {
            self.rest = OriginTail::Comes(start, Box::new(reader));
            return true;
        }
        let number = start / CHUNK_BYTES;
        if absence == AbsenceReason::Gap && self.looked_again != Some(number) && self.source.chunks.was_seen(number) {
            // This chunk was read ahead too early: since then, another reader's fetch has stored it.
            (self.looked_again, self.next) = (Some(number), number);
            return true;
        }
        let end = match absence {
            AbsenceReason::Gap => rest::gap_end(&self.source.chunks, start, end),
            // The origin supplies more each time. Brief trouble of the store then costs few bytes, and lasting trouble
            // few requests.
            AbsenceReason::Trouble => {
                let bytes = TROUBLE_BYTES << self.trouble_count.min(TROUBLE_DOUBLINGS_MAX);
                self.trouble_count += 1;
                end.min((start + bytes).next_multiple_of(CHUNK_BYTES))
            }
        };
        let source = Arc::clone(&self.source);
        let asking = async move {
            // The response has begun, so nobody else can complete it. Where an origin's servers disagree in their
            // entity tag, the next request may reach another server.
            for _ in 0..CHANGED_ATTEMPT_COUNT {
                let mut reader = rest::board(&source, start, end).await;
                match reader.stage().await {
                    FetchStage::Continued(_) => return Some(reader),
                    FetchStage::Changed => {}
                    _ => return None,
                }
            }
            None
        };
        self.rest = OriginTail::Asked(start, Box::pin(asking));
        true
    }

    /// Returns the next bytes from the origin. `None` means that the origin sends no more now, and the store must be
    /// checked again.
    fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match &mut self.rest {
            OriginTail::Nothing => return Poll::Ready(None),
            OriginTail::Asked(start, asking) => {
                let start = *start;
                match ready!(asking.as_mut().poll(context)) {
                    Some(reader) => self.rest = OriginTail::Comes(start, Box::new(reader)),
                    None => self.end_rest(true),
                }
                return Poll::Ready(None);
            }
            OriginTail::Comes(_, reader) => {
                if let Some(Ok(mut bytes)) = ready!(reader.poll_data(context)) {
                    bytes.truncate(usize::try_from(self.remaining()).unwrap_or(usize::MAX));
                    self.span.start += bytes.len() as u64;
                    return Poll::Ready(Some(bytes));
                }
            }
        }
        let brought_nothing = matches!(&self.rest, OriginTail::Comes(start, _) if *start == self.span.start);
        self.end_rest(brought_nothing);
        Poll::Ready(None)
    }

    /// Returns to the store, permanently if the origin could not help.
    fn end_rest(&mut self, was_useless: bool) {
        self.is_alone |= was_useless;
        self.rest = OriginTail::Nothing;
        self.next = self.span.start / CHUNK_BYTES;
    }

    fn give_up(&mut self) -> BodyError {
        self.span.start = self.span.end;
        self.ahead.clear();
        BodyError::PartMissing
    }

    /// Returns the part of the bytes that lies in the span.
    fn take_from(&mut self, placed: &PlacedBytes) -> Result<Bytes, BodyError> {
        let end = placed.span().end.min(self.span.end);
        let Some(bytes) = placed.slice(self.span.start..end).filter(|bytes| !bytes.is_empty()) else {
            return Err(self.give_up());
        };
        self.span.start = end;
        // The stored part of the chunk may end before the position.
        if end < self.span.end && !end.is_multiple_of(CHUNK_BYTES) {
            (self.next, self.ahead) = (end / CHUNK_BYTES, VecDeque::new());
        }
        Ok(bytes)
    }
}

/// Most chunks in memory for one client.
const AHEAD_COUNT: usize = 3;
/// Most chunks that one client protects, which is 1 GiB of a body. The store has a limit for all clients together.
const HELD_COUNT_MAX: u64 = 1024;
/// Number of bytes to take from the origin at the store's first trouble.
const TROUBLE_BYTES: u64 = 8 << 20;
const TROUBLE_DOUBLINGS_MAX: u32 = 20;
/// Most requests for missing bytes to an origin that sends another representation each time.
const CHANGED_ATTEMPT_COUNT: usize = 3;
