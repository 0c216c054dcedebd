//! Carries a body from the origin to the readers of a flight and, in chunks, into the store.
//!
//! Owns: how much has arrived, how much is stored and in which form, and the pace. Whether the body is a whole response
//! (`carry`) or the remainder of one (`rest`) is unknown here. Heads are stored elsewhere.
//!
//! Invariants: chunks are stored in order. Bytes that are not stored stay in the window until the slowest reader has
//! them. Memory: what `shared` keeps and, while there is memory for it, one unstored chunk. Without memory, fetches
//! fill their chunks in turn, so that each reaches a point where the store has all its bytes and memory none. A fetch
//! that does not get there in its turn is no longer stored.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use http::HeaderMap;
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
        hold_up::HoldUp,
        shared::{FetchPace, Flight},
        source::FetchContext,
    },
    origin::body::OriginBody,
};

/// A body on its way.
pub(super) struct BodyCarrier {
    cache: Arc<Cache>,
    pub(super) flight: Arc<Flight>,
    pub(super) storage: BodyStorage,
    /// Place after the last byte that arrived.
    pub(super) produced: u64,
    /// Place after the last byte that is stored.
    pub(super) committed: u64,
    /// Number of the next bytes that are already present.
    pub(super) skip: u64,
    breaks: BreakCount,
    hold_up: HoldUp,
    /// The turn to fill a chunk, while it lasts.
    turn: Option<FillTurn>,
}

/// The way in which the body is being stored.
pub(super) enum BodyStorage {
    /// In one piece, at the end.
    Whole,
    /// In chunks, each as it fills.
    Chunks(Arc<ChunkedBody>),
    /// Not stored.
    Off,
}

/// The next piece of a body.
pub(super) enum CarriedPiece {
    Data(Bytes),
    Trailers(HeaderMap),
    End,
    Broken(BodyError),
    /// No reader is left, and the body is not worth finishing.
    Abandoned,
}

/// The outcome of one step.
enum CarryStep {
    Next(CarriedPiece),
    /// The readers have to come further.
    Wait,
    /// A turn is needed.
    TakeTurn,
    /// The turn is over.
    TurnOver,
}

/// A request whose remainder may be requested, and the means for that.
#[derive(Clone, Copy)]
pub(super) struct AskedBy<'a> {
    pub(super) means: &'a FetchContext,
    pub(super) asked: &'a RequestHead,
}

impl BodyCarrier {
    /// Creates a carrier of the bytes from `start` on.
    pub(super) fn new(cache: &Arc<Cache>, flight: &Arc<Flight>, storage: BodyStorage, start: u64) -> Self {
        let (cache, flight) = (Arc::clone(cache), Arc::clone(flight));
        Self {
            cache,
            flight,
            storage,
            produced: start,
            committed: start,
            skip: 0,
            breaks: BreakCount::default(),
            hold_up: HoldUp::default(),
            turn: None,
        }
    }

    /// Returns the next piece, once the readers have advanced far enough. `is_worth_finishing`: continue even without
    /// readers.
    pub(super) async fn next(&mut self, body: &mut OriginBody, is_worth_finishing: bool) -> CarriedPiece {
        loop {
            let turn_end = self.turn.as_ref().map(|turn| turn.end);
            let step = std::future::poll_fn(|context| self.poll_step(body, is_worth_finishing, context));
            let step = match turn_end {
                // The future with a timer is boxed, so that it does not enlarge the usual one.
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
        // A fetch in its turn fills its chunk, however far behind the readers are: only a full chunk frees its memory.
        let has_turn = leaves_window && self.turn.is_some();
        match self.flight.poll_pace(leaves_window, context) {
            FetchPace::Wait if !has_turn => return Poll::Ready(CarryStep::Wait),
            // Closing and the last reader's departure must be one step, or a reader could join a flight that is about
            // to stop.
            FetchPace::Unread if !is_worth_finishing && self.flight.close_if_unread() => {
                return Poll::Ready(CarryStep::Next(CarriedPiece::Abandoned));
            }
            FetchPace::Go | FetchPace::Unread | FetchPace::Wait => {}
        }
        let is_used_up = leaves_window && self.cache.shared.bodies.is_used_up();
        // Without turns, all fetches could hold part of a chunk each, with no memory left to complete any of them.
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
            None => CarriedPiece::End,
        }))
    }

    /// Stops storing a body that could not be stored in its turn, if the memory is needed elsewhere. After that it has
    /// its least share.
    fn end_turn(&mut self) {
        self.turn = None;
        if self.cache.shared.bodies.is_used_up() {
            self.storage = BodyStorage::Off;
            self.cache.metrics.storing_given_up.add(1);
            tracing::debug!(
                stored = self.committed,
                "a response is not stored: memory is short and the origin is slow"
            );
        }
    }

    /// Continues a body that broke off, and retries while that can succeed. `is_worth_finishing`: continue even without
    /// readers. Returns `None` if the origin does not continue it, or if no reader is left.
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
                    return Some(body);
                }
                ContinuationAnswer::Changed => {
                    // The bytes that have arrived belong to no chunk any more.
                    self.storage = BodyStorage::Off;
                    return None;
                }
                ContinuationAnswer::Unclear(_) | ContinuationAnswer::Failed(_) => {}
            }
        }
        None
    }

    /// Stores the chunks that have filled.
    pub(super) async fn commit_full_chunks(&mut self) {
        while let BodyStorage::Chunks(chunks) = &self.storage
            && self.produced - self.committed >= CHUNK_BYTES
        {
            let chunks = Arc::clone(chunks);
            self.commit_chunk(&chunks, CHUNK_BYTES).await;
        }
    }

    /// Stores the bytes since the last chunk as a chunk: the body ends there.
    pub(super) async fn commit_last_chunk(&mut self) {
        self.commit_full_chunks().await;
        if let BodyStorage::Chunks(chunks) = &self.storage
            && self.produced > self.committed
        {
            let chunks = Arc::clone(chunks);
            self.commit_chunk(&chunks, self.produced - self.committed).await;
        }
    }

    /// Stores the bytes that have arrived since the last chunk as a fragment, because no more will arrive.
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

    /// Waits for `storing`, as long as the store may hold up the readers. `None` if it takes longer.
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
                self.cache.metrics.storing_given_up.add(1);
                self.cache.shared.patience.note_behind();
                tracing::debug!(stored = self.committed, "a response is not stored: the store cannot keep up");
            }
        }
    }

    /// Waits until the readers have come further. Where nothing is stored the slowest sets the pace, but it
    /// must not hold up others for long.
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
