//! Moves a body from the origin to the readers of a flight and, in chunks, into the store.
//!
//! Owns: how much has arrived, how much is stored and in which form, and the pace. The module does not know whether the
//! body is a whole response (`carry`) or the remainder of one (`rest`). Heads are stored elsewhere.
//!
//! Invariants: chunks are stored in order. Bytes that are not stored stay in the window until the slowest reader has
//! them.
//!
//! Memory: the window in `shared` and, while memory permits, one unstored chunk. If memory is short, fetches fill their
//! chunks in turn: each turn ends at a point where the store has all bytes of the fetch and memory has none. A fetch
//! that does not reach this point in its turn is no longer stored.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use larder_http::framing::CompletedBody;
use tokio::time::timeout_at;

use crate::{
    asked::RequestHead,
    body_budget::FillTurn,
    cache::{
        Cache,
        chunks::{ChunkedBody, PlacedBytes},
        entry::CHUNK_BYTES,
    },
    errors::BodyError,
    flight::{
        continuation::{BreakCount, ContinuationAnswer, MissingRange},
        copying,
        hold_up::HoldUp,
        shared::{FetchPace, Flight},
        source::FetchContext,
    },
    origin::body::OriginBody,
};

/// A body that is being moved.
pub(super) struct BodyCarrier {
    cache: Arc<Cache>,
    pub(super) flight: Arc<Flight>,
    pub(super) storage: BodyStorage,
    /// Position after the last byte that arrived.
    pub(super) produced: u64,
    /// Position after the last byte that is stored.
    pub(super) committed: u64,
    /// Number of the next bytes to skip, because they are already present.
    pub(super) skip: u64,
    breaks: BreakCount,
    hold_up: HoldUp,
    /// The turn in which this fetch fills a chunk, while it lasts.
    turn: Option<FillTurn>,
}

/// The form in which the body is being stored.
pub(super) enum BodyStorage {
    /// In one piece, at the end.
    Whole,
    /// In chunks, each stored when it is full.
    Chunks(Arc<ChunkedBody>),
    /// Not stored.
    Off,
}

/// The next piece of a body.
pub(super) enum CarriedPiece {
    Data(Bytes),
    Trailers(HeaderMap),
    /// The end of a complete body.
    End(CompletedBody),
    Broken(BodyError),
    /// No reader is left, and the fetch is not worth finishing.
    Abandoned,
}

/// The outcome of one step.
enum CarryStep {
    Next(CarriedPiece),
    /// The fetch must wait until the readers have advanced.
    Wait,
    /// The fetch needs a turn.
    TakeTurn,
    /// The fetch's turn is over.
    TurnOver,
}

/// A request for which the remainder may be fetched, and the context to fetch it.
#[derive(Clone, Copy)]
pub(super) struct AskedBy<'a> {
    pub(super) means: &'a FetchContext,
    pub(super) asked: &'a RequestHead,
}

impl BodyCarrier {
    /// Creates a carrier of the bytes from `start` on. Those before the first border of chunks are not stored.
    pub(super) fn new(cache: &Arc<Cache>, flight: &Arc<Flight>, storage: BodyStorage, start: u64) -> Self {
        let cache = Arc::clone(cache);
        let flight = Arc::clone(flight);
        Self {
            cache,
            flight,
            storage,
            produced: start,
            committed: start.next_multiple_of(CHUNK_BYTES),
            skip: 0,
            breaks: BreakCount::default(),
            hold_up: HoldUp::default(),
            turn: None,
        }
    }

    /// Returns the next piece, once the readers have advanced far enough. With `is_worth_finishing`, the fetch
    /// continues even without readers.
    pub(super) async fn next(&mut self, body: &mut OriginBody, is_worth_finishing: bool) -> CarriedPiece {
        loop {
            let turn_end = self.turn.as_ref().map(|turn| turn.end);
            let step = std::future::poll_fn(|context| self.poll_step(body, is_worth_finishing, context));
            let step = match turn_end {
                // The future with a timer is boxed, so that the usual future stays small.
                Some(end) => Box::pin(timeout_at(end, step)).await.unwrap_or(CarryStep::TurnOver),
                None => step.await,
            };
            match step {
                CarryStep::Next(next) => return next,
                CarryStep::Wait => self.wait_for_readers().await,
                CarryStep::TakeTurn => self.turn = Box::pin(self.cache.shared.bodies.take_turn()).await,
                CarryStep::TurnOver => self.end_turn(),
            }
        }
    }

    fn poll_step(
        &mut self,
        body: &mut OriginBody,
        is_worth_finishing: bool,
        context: &mut Context<'_>,
    ) -> Poll<CarryStep> {
        let leaves_window = self.leaves_window();
        // A fetch in its turn fills its chunk, however far behind the readers are, because only a full chunk frees its
        // memory.
        let has_turn = leaves_window && self.turn.is_some();
        match self.flight.poll_pace(leaves_window, context) {
            FetchPace::Wait if !has_turn => return Poll::Ready(CarryStep::Wait),
            // Checking for readers and closing the flight must be one step. Otherwise a reader could join a flight that
            // is about to stop.
            FetchPace::Unread if !is_worth_finishing && self.flight.close_if_unread() => {
                return Poll::Ready(CarryStep::Next(CarriedPiece::Abandoned));
            }
            FetchPace::Go | FetchPace::Unread | FetchPace::Wait => {}
        }
        let is_used_up = leaves_window && self.cache.shared.bodies.is_used_up();
        // Without turns, all fetches could hold a part of a chunk each, with no memory left to complete any of them.
        if is_used_up && !has_turn && self.flight.is_beyond_least_share() {
            return Poll::Ready(CarryStep::TakeTurn);
        }
        let piece = ready!(body.poll_frame(context));
        Poll::Ready(CarryStep::Next(match piece {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) => CarriedPiece::Data(self.without_skipped(bytes)),
                Err(frame) => CarriedPiece::Trailers(frame.into_trailers().unwrap_or_default()),
            },
            Some(Err(error)) => CarriedPiece::Broken(error),
            None => body.end().map_or(CarriedPiece::Broken(BodyError::OriginBroke), CarriedPiece::End),
        }))
    }

    /// Stops storing a body that was not stored in its turn, if the memory is needed elsewhere. The body then keeps
    /// only the smallest share.
    fn end_turn(&mut self) {
        self.turn = None;
        if self.cache.shared.bodies.is_used_up() {
            self.storage = BodyStorage::Off;
            self.cache.metrics.store_aborts.add(1);
            tracing::debug!(
                stored = self.committed,
                "a response is not stored: memory is short and the origin is slow"
            );
        }
    }

    /// Continues a body that broke off, and retries while that can succeed.
    ///
    /// With `is_worth_finishing`, the fetch continues even without readers. Returns `None` if the origin does not
    /// continue the body, or if no reader is left.
    pub(super) async fn go_on(
        &mut self,
        AskedBy { means, asked }: AskedBy<'_>,
        missing: &MissingRange<'_>,
        is_worth_finishing: bool,
    ) -> Option<OriginBody> {
        while let Some(wait) = self.breaks.next_wait(self.produced) {
            tokio::time::sleep(wait).await;
            if !is_worth_finishing && self.flight.close_if_unread() {
                return None;
            }
            match Box::pin(means.ask_rest(asked, missing, self.produced)).await {
                ContinuationAnswer::Continued { body, skip, .. } => {
                    self.skip = skip;
                    self.limit_copy(&body, missing.end.saturating_sub(self.produced));
                    return Some(body);
                }
                ContinuationAnswer::Changed => {
                    // The bytes that have arrived no longer belong to a chunk.
                    self.storage = BodyStorage::Off;
                    return None;
                }
                ContinuationAnswer::Unclear(_) | ContinuationAnswer::Failed(_) => {}
            }
        }
        None
    }

    /// Stops storing chunks if another node sends the remaining `len` bytes and they are not stored here too.
    fn limit_copy(&mut self, body: &OriginBody, len: u64) {
        if let BodyStorage::Chunks(chunks) = &self.storage
            && body.is_from_sibling
            && !copying::admits_part(&self.cache, &chunks.place.primary, len)
        {
            self.storage = BodyStorage::Off;
        }
    }

    /// Stores the chunks that are full.
    pub(super) async fn commit_full_chunks(&mut self) {
        while let BodyStorage::Chunks(chunks) = &self.storage
            && self.produced >= self.committed + CHUNK_BYTES
        {
            let chunks = Arc::clone(chunks);
            self.commit_chunk(&chunks, CHUNK_BYTES).await;
        }
    }

    /// Stores the bytes after the last full chunk as a chunk, because the body has ended.
    pub(super) async fn commit_last_chunk(&mut self) {
        self.commit_full_chunks().await;
        if let BodyStorage::Chunks(chunks) = &self.storage
            && self.produced > self.committed
        {
            let chunks = Arc::clone(chunks);
            self.commit_chunk(&chunks, self.produced - self.committed).await;
        }
    }

    /// Stores the bytes after the last full chunk as a fragment, because no more will arrive.
    pub(super) async fn keep_fragment(&mut self) {
        self.commit_full_chunks().await;
        if let BodyStorage::Chunks(chunks) = &self.storage
            && self.produced > self.committed
        {
            let pieces = self.flight.copy_out(self.committed, self.produced - self.committed);
            let arrived = PlacedBytes { start: self.committed, bytes: pieces.concat().into() };
            Box::pin(chunks.keep(&arrived)).await;
        }
    }

    /// Awaits `storing` for as long as the store may delay the readers. Returns `None` if it takes longer.
    pub(super) async fn hold_up_for<T>(&mut self, storing: impl Future<Output = T>) -> Option<T> {
        self.hold_up.bounded(0, storing).await
    }

    fn without_skipped(&mut self, mut bytes: Bytes) -> Bytes {
        let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
        bytes.advance(skipped);
        self.skip -= skipped as u64;
        bytes
    }

    async fn commit_chunk(&mut self, chunks: &ChunkedBody, len: u64) {
        let pieces = self.flight.copy_out(self.committed, len);
        let storing = Box::pin(chunks.store_chunk(self.committed / CHUNK_BYTES, pieces));
        let stored = self.hold_up.bounded(len, storing).await;
        self.turn = None;
        match stored {
            Some(true) => {
                self.committed += len;
                self.flight.note_committed(self.committed);
            }
            Some(false) => self.storage = BodyStorage::Off,
            None => {
                self.storage = BodyStorage::Off;
                self.cache.metrics.store_aborts.add(1);
                self.cache.shared.patience.note_behind();
                tracing::debug!(stored = self.committed, "a response is not stored: the store cannot keep up");
            }
        }
    }

    /// Waits until the readers have advanced. If nothing is stored, the slowest reader sets the pace, but it may delay
    /// the others only for a limited time.
    async fn wait_for_readers(&self) {
        let stored = self.leaves_window();
        let moved = std::future::poll_fn(|context| match self.flight.poll_pace(stored, context) {
            FetchPace::Wait => Poll::Pending,
            FetchPace::Go | FetchPace::Unread => Poll::Ready(()),
        });
        if stored {
            moved.await;
        } else if tokio::time::timeout(LAG_PATIENCE, moved).await.is_err() {
            self.flight.drop_slowest();
        }
    }

    /// Returns whether bytes that leave the window can be read from the store.
    fn leaves_window(&self) -> bool {
        match self.storage {
            BodyStorage::Whole => self.produced <= CHUNK_BYTES,
            BodyStorage::Chunks(_) => true,
            BodyStorage::Off => false,
        }
    }
}

/// Time for which one reader may delay the others if the body is not being stored.
const LAG_PATIENCE: Duration = Duration::from_secs(10);
