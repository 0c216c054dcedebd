//! One fetch and its readers: the bytes that have arrived, the readers' positions, and the wakers.
//!
//! Owns: the window of bytes in memory and the readers' positions. `fetch` has the exchange with the origin, and
//! `reader` serves the clients.
//!
//! Invariants: bytes are returned in order, and only once their position is known. The end is announced as complete
//! only after the origin's response has ended. Memory: a window of at most the body's share of the budget. Readers that
//! fall behind the window read from the store. Cost: one short lock per piece and reader.

use larder_device::IgnorePoison;
use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use larder_http::StoredHead;
use slab::Slab;

use crate::{
    body_budget::{BodyBudget, SHARE_BYTES_MIN},
    cache::{entry::CHUNK_BYTES, work::ResourceWork},
    errors::{BodyError, Failure},
    flight::{
        source::BodySource,
        stage::{Audience, FetchStage, PrivateResponse},
        window::Window,
    },
    origin::target::Origin,
};

/// A fetch and its readers.
pub(crate) struct Flight {
    /// The work on the resource, to detect invalidations since the flight began.
    pub(crate) work: ResourceWork,
    /// Whether the request that started the flight demands a response no older than itself.
    is_reload: bool,
    /// Whether the request may have been sent to the origin.
    left: AtomicBool,
    state: Mutex<FlightState>,
}

struct FlightState {
    stage: FetchStage,
    private: Option<Box<PrivateResponse>>,
    /// Whether the response is a 304 to the first requester's condition.
    answered_condition: bool,
    window: Window,
    /// The position in the body at which the flight starts.
    start: u64,
    /// The position at which the flight ends, if it is before the body's end.
    limit: u64,
    /// Position up to which readers may read from the window.
    visible: u64,
    /// Length of the part that is stored, in whole chunks.
    committed: u64,
    /// The source for reading the stored chunks.
    source: Option<Arc<BodySource>>,
    /// The trailers after the body.
    trailers: Option<HeaderMap>,
    /// The result of the body, once it has ended.
    ended: Option<Result<(), BodyError>>,
    /// Whether the flight is closed to new readers.
    closed: bool,
    readers: Slab<ReaderSlot>,
    fetcher: Option<Waker>,
}

#[derive(Default)]
struct ReaderSlot {
    position: u64,
    too_slow: bool,
    waker: Option<Waker>,
}

/// The data at a reader's position.
pub(crate) enum ReaderPiece {
    /// The next bytes.
    Bytes(Bytes),
    /// The bytes are no longer in memory, but in this chunk of the store.
    InStore(Arc<BodySource>, u64),
    /// The end of the body, or the error that ended it.
    End(Result<(), BodyError>),
}

/// Whether the fetcher may continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchPace {
    /// Continue reading.
    Go,
    /// Wait until a reader has advanced.
    Wait,
    /// No reader is left.
    Unread,
}

impl Flight {
    /// Creates a fetch of a whole response.
    pub(crate) fn new(work: ResourceWork, is_reload: bool, budget: Arc<BodyBudget>) -> Self {
        Self { is_reload, ..Self::of_span(work, budget, None, 0..u64::MAX) }
    }

    /// Creates a fetch of a span of a stored body. The span starts and ends at a chunk boundary or at the body's end.
    pub(crate) fn continuing(work: ResourceWork, source: Arc<BodySource>, span: Range<u64>) -> Self {
        Self::of_span(work, Arc::clone(&source.chunks.cache.shared.bodies), Some(source), span)
    }

    fn of_span(work: ResourceWork, budget: Arc<BodyBudget>, source: Option<Arc<BodySource>>, span: Range<u64>) -> Self {
        let state = FlightState {
            stage: FetchStage::Waiting,
            private: None,
            answered_condition: false,
            window: Window::at_place(span.start, budget),
            start: span.start,
            limit: span.end,
            visible: span.start,
            committed: span.start,
            source,
            trailers: None,
            ended: None,
            closed: false,
            readers: Slab::new(),
            fetcher: None,
        };
        Self { work, is_reload: false, left: AtomicBool::new(false), state: Mutex::new(state) }
    }

    /// Marks the request as sent. Reloads that arrive later do not share this flight.
    pub(crate) fn leave(&self) {
        self.left.store(true, SeqCst);
    }

    pub(super) fn has_left(&self) -> bool {
        self.left.load(SeqCst)
    }

    pub(super) fn is_reload(&self) -> bool {
        self.is_reload
    }

    /// Returns the head of the response, once it has arrived and is shared.
    pub(crate) fn head(&self) -> Option<StoredHead> {
        match &self.lock().stage {
            FetchStage::Open(open) => Some(open.head.clone()),
            _ => None,
        }
    }

    /// Announces the fetch's stage to the readers. Nobody may join a flight whose response is for its first requester
    /// alone.
    pub(crate) fn set_stage(&self, stage: FetchStage) {
        let mut state = self.lock();
        // After `Changed` a later request may get another result.
        state.closed |= stage.audience() == Audience::FirstAsker || matches!(stage, FetchStage::Changed);
        state.stage = stage;
        state.wake_readers();
    }

    /// Announces a response for the first requester alone.
    pub(crate) fn set_private(&self, response: PrivateResponse) {
        let mut state = self.lock();
        state.answered_condition = response.status == StatusCode::NOT_MODIFIED;
        state.private = Some(Box::new(response));
        drop(state);
        self.set_stage(FetchStage::Private);
    }

    /// Takes the response that is for the first requester alone. Only the first call returns it.
    pub(crate) fn take_private(&self) -> Option<Box<PrivateResponse>> {
        self.lock().private.take()
    }

    /// Returns whether the response was a 304 to the first requester's condition.
    pub(crate) fn answered_a_condition(&self) -> bool {
        self.lock().answered_condition
    }

    /// Returns whether the whole body has arrived.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.lock().ended, Some(Ok(())))
    }

    /// Returns the position in the body at which the flight starts.
    pub(crate) fn start(&self) -> u64 {
        self.lock().start
    }

    /// Returns the position at which the flight ends, if it is before the body's end.
    pub(crate) fn limit(&self) -> u64 {
        self.lock().limit
    }

    /// Ends the flight where another one has begun that brings all of its remaining bytes, unless it has already passed
    /// that position.
    pub(crate) fn end_before(&self, other: &Range<u64>) {
        let mut state = self.lock();
        let has_passed = state.window.end() > other.start;
        if !has_passed && state.start < other.start && other.start < state.limit && state.limit <= other.end {
            state.limit = other.start;
            state.wake_readers();
            state.wake_fetcher();
        }
    }

    /// Returns the position after the last byte that arrived.
    pub(crate) fn produced(&self) -> u64 {
        self.lock().window.end()
    }

    /// Appends received bytes.
    pub(crate) fn push(&self, bytes: Bytes) {
        let mut state = self.lock();
        state.window.push(bytes);
        state.visible = state.window.end();
        state.wake_readers();
    }

    /// Appends received bytes of a body that is checked at its end. Hides the last [`HELD_BACK_BYTES`] of the body, so
    /// that no reader takes a wrong body for a complete one. `total_len` is the body's length, if it is known.
    pub(crate) fn push_unchecked(&self, bytes: Bytes, total_len: Option<u64>) {
        let mut state = self.lock();
        state.window.push(bytes);
        let end = total_len.unwrap_or(state.window.end());
        let shown = end.saturating_sub(HELD_BACK_BYTES).min(state.window.end());
        state.visible = state.visible.max(shown);
        state.wake_readers();
    }

    /// Appends the last bytes, but hides them from readers until the end is announced.
    pub(crate) fn withhold(&self, bytes: Bytes) {
        self.lock().window.push(bytes);
    }

    /// Sets the trailers. Must be called before the end is announced.
    pub(crate) fn set_trailers(&self, trailers: HeaderMap) {
        self.lock().trailers = Some(trailers);
    }

    /// Returns the trailers, once the end has been announced.
    pub(super) fn trailers(&self) -> Option<HeaderMap> {
        self.lock().trailers.clone()
    }

    /// Announces the end.
    pub(crate) fn end(&self, result: Result<(), BodyError>) {
        let mut state = self.lock();
        state.ended = Some(result);
        if result.is_ok() {
            state.visible = state.window.end();
        }
        state.closed |= result.is_err();
        state.wake_readers();
    }

    /// Closes the flight to new readers if it has none. Returns whether it is closed.
    pub(crate) fn close_if_unread(&self) -> bool {
        let mut state = self.lock();
        state.closed |= state.readers.is_empty();
        state.readers.is_empty()
    }

    /// Ends an unfinished flight with an error, because its fetch was aborted.
    pub(crate) fn abandon_if_unfinished(&self, origin: &Origin) {
        let mut state = self.lock();
        state.closed |= !matches!(state.ended, Some(Ok(())))
            && !matches!(state.stage, FetchStage::Confirmed(_) | FetchStage::Part(_));
        if matches!(state.stage, FetchStage::Waiting) {
            let why = "the fetch was cancelled".into();
            state.stage = FetchStage::Failed(Failure::Broken { host: origin.to_string(), why });
        }
        state.ended.get_or_insert(Err(BodyError::OriginBroke));
        state.wake_readers();
    }

    /// Sets where the stored chunks are read from.
    pub(crate) fn set_source(&self, source: Arc<BodySource>) {
        self.lock().source = Some(source);
    }

    /// Records that the first `committed` bytes are stored, and drops bytes that are far behind from memory.
    ///
    /// Bytes that the fastest reader has not received yet stay while memory permits, because a store can still lose
    /// bytes that it has accepted.
    pub(crate) fn note_committed(&self, committed: u64) {
        let mut state = self.lock();
        state.committed = committed;
        let keep = match state.window.share_bytes() < BEHIND_BYTES {
            true => committed,
            false => committed.saturating_sub(BEHIND_BYTES).min(state.fastest().unwrap_or(u64::MAX)),
        };
        // A chunk is read from the store as a whole, so one with hidden bytes stays in the window.
        let shown = state.visible - state.visible % CHUNK_BYTES;
        let keep = if state.visible < committed { keep.min(shown) } else { keep };
        state.window.trim(keep);
    }

    /// Returns `len` bytes from `start` on, which must still be in the window.
    pub(crate) fn copy_out(&self, start: u64, len: u64) -> Vec<Bytes> {
        self.lock().window.copy_out(start, len)
    }

    /// Returns whether the fetcher may continue reading. If not, the fetcher is woken when that changes.
    ///
    /// `stored` says that the store has the bytes that leave the window. In that case, only the fastest reader sets the
    /// pace.
    pub(crate) fn poll_pace(&self, stored: bool, context: &Context<'_>) -> FetchPace {
        let mut state = self.lock();
        let pace = state.pace(stored);
        if pace != FetchPace::Unread {
            state.fetcher = Some(context.waker().clone());
        }
        pace
    }

    /// Returns whether the window exceeds a body's smallest share.
    pub(crate) fn is_beyond_least_share(&self) -> bool {
        self.lock().window.len() > SHARE_BYTES_MIN
    }

    /// Drops the reader that is furthest behind, if it delays others.
    pub(crate) fn drop_slowest(&self) {
        let mut state = self.lock();
        if state.readers.len() < 2 {
            return;
        }
        let slowest = state.readers.iter().min_by_key(|(_, slot)| slot.position).map(|(index, _)| index);
        if let Some(index) = slowest {
            let slot = &mut state.readers[index];
            slot.too_slow = true;
            slot.position = u64::MAX;
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        }
    }

    /// Adds a reader, unless the start of the body is no longer available.
    pub(super) fn add_reader(&self) -> Option<usize> {
        let mut state = self.lock();
        if state.closed || (state.window.start() > 0 && state.source.is_none()) {
            return None;
        }
        Some(state.readers.insert(ReaderSlot::default()))
    }

    /// Adds a reader from `position` on, if those bytes are available or will be soon.
    pub(super) fn add_reader_at(&self, position: u64) -> Option<usize> {
        let mut state = self.lock();
        let near = state.window.start()..state.limit.min(state.window.end() + CHUNK_BYTES + 1);
        if state.closed || !near.contains(&position) {
            return None;
        }
        let index = state.readers.insert(ReaderSlot { position, ..ReaderSlot::default() });
        // The fetcher may be waiting for the reader that leaves.
        state.wake_fetcher();
        Some(index)
    }

    /// Returns the source of the stored chunks, if there are any.
    pub(super) fn source(&self) -> Option<Arc<BodySource>> {
        self.lock().source.clone()
    }

    pub(super) fn remove_reader(&self, index: usize) {
        let mut state = self.lock();
        state.readers.remove(index);
        state.wake_fetcher();
    }

    /// Returns the fetch's stage, once there is one to report.
    pub(super) fn poll_stage(&self, index: usize, context: &Context<'_>) -> Poll<FetchStage> {
        let mut state = self.lock();
        if matches!(state.stage, FetchStage::Waiting) {
            state.readers[index].waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(state.stage.clone())
    }

    /// Returns the data at a reader's position, and records the position.
    pub(super) fn poll_piece(&self, index: usize, position: u64, context: &Context<'_>) -> Poll<ReaderPiece> {
        let mut state = self.lock();
        if state.readers[index].too_slow {
            return Poll::Ready(ReaderPiece::End(Err(BodyError::TooSlow)));
        }
        if state.readers[index].position != position {
            state.readers[index].position = position;
            state.wake_fetcher();
        }
        if position >= state.limit {
            return Poll::Ready(ReaderPiece::End(Ok(())));
        }
        if position < state.window.start() {
            let number = position / CHUNK_BYTES;
            return Poll::Ready(match &state.source {
                Some(source) if position < state.committed => ReaderPiece::InStore(Arc::clone(source), number),
                _ => ReaderPiece::End(Err(BodyError::TooSlow)),
            });
        }
        if position < state.visible
            && let Some(mut bytes) = state.window.at(position)
        {
            let end = state.visible.min(state.limit);
            bytes.truncate(usize::try_from(end - position).unwrap_or(usize::MAX));
            return Poll::Ready(ReaderPiece::Bytes(bytes));
        }
        if let Some(ended) = state.ended {
            return Poll::Ready(ReaderPiece::End(ended));
        }
        state.readers[index].waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, FlightState> {
        self.state.lock().ignore_poison()
    }
}

impl FlightState {
    fn pace(&mut self, stored: bool) -> FetchPace {
        if self.readers.is_empty() {
            return FetchPace::Unread;
        }
        // The slowest reader can always advance. The limit is on how far the others may be ahead of it. Nobody can read
        // hidden bytes, so they do not count.
        let ahead = self.window.share_bytes() + (self.window.end() - self.visible);
        if stored {
            let fastest = self.fastest().unwrap_or(u64::MAX);
            return if self.window.end().saturating_sub(fastest) < ahead { FetchPace::Go } else { FetchPace::Wait };
        }
        let slowest = self.positions().min().unwrap_or(u64::MAX);
        if self.window.end() > CHUNK_BYTES || ahead < CHUNK_BYTES {
            self.window.trim(slowest.min(self.window.end()));
        }
        if self.window.len() < ahead { FetchPace::Go } else { FetchPace::Wait }
    }

    /// Returns the positions of the active readers.
    fn positions(&self) -> impl Iterator<Item = u64> {
        self.readers.iter().filter(|(_, slot)| !slot.too_slow).map(|(_, slot)| slot.position)
    }

    fn fastest(&self) -> Option<u64> {
        self.positions().max()
    }

    fn wake_readers(&mut self) {
        for (_, slot) in &mut self.readers {
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        }
    }

    fn wake_fetcher(&mut self) {
        if let Some(waker) = self.fetcher.take() {
            waker.wake();
        }
    }
}

/// Number of bytes at the end of a body that readers get only once the whole body has passed its check.
const HELD_BACK_BYTES: u64 = 64 << 10;
/// Number of stored bytes that stay in memory for readers that are slightly behind, if the body's share allows.
const BEHIND_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;
    use crate::body_budget::SHARE_BYTES_MAX;

    fn work() -> ResourceWork {
        ResourceWork::new(&Arc::default(), &b"key"[..].into(), 0, 0)
    }

    /// Records whether a waker was called.
    #[derive(Default)]
    struct WokenFlag(AtomicBool);

    impl Wake for WokenFlag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, SeqCst);
        }
    }

    #[test]
    fn fetcher_that_waits_for_readers_goes_on_when_one_joins_further_on() {
        let flight = Flight::new(work(), false, Arc::new(BodyBudget::new(u64::MAX)));
        flight.add_reader().expect("it is open");
        flight.push(vec![0; SHARE_BYTES_MAX as usize].into());
        let woken = Arc::new(WokenFlag::default());
        let waker = Waker::from(Arc::clone(&woken));
        let context = Context::from_waker(&waker);
        assert_eq!(flight.poll_pace(true, &context), FetchPace::Wait);
        flight.add_reader_at(SHARE_BYTES_MAX).expect("its bytes come next");
        assert!(woken.0.load(SeqCst));
        assert_eq!(flight.poll_pace(true, &context), FetchPace::Go);
    }

    #[test]
    fn what_the_fastest_reader_has_not_had_stays_while_there_is_memory() {
        let budget = Arc::new(BodyBudget::new(u64::MAX));
        let flight = Flight::new(work(), false, Arc::clone(&budget));
        let index = flight.add_reader().expect("it is open");
        let context = Context::from_waker(Waker::noop());
        (0..SHARE_BYTES_MAX / CHUNK_BYTES).for_each(|_| flight.push(vec![0; CHUNK_BYTES as usize].into()));
        flight.note_committed(SHARE_BYTES_MAX);
        assert!(matches!(flight.poll_piece(index, 0, &context), Poll::Ready(ReaderPiece::Bytes(_))));
        let half = SHARE_BYTES_MAX / 2;
        assert!(matches!(flight.poll_piece(index, half, &context), Poll::Ready(ReaderPiece::Bytes(_))));
        flight.note_committed(SHARE_BYTES_MAX);
        assert_eq!(flight.lock().window.start(), half, "what it has had goes");
        budget.set_max_bytes(0);
        flight.note_committed(SHARE_BYTES_MAX);
        assert_eq!(flight.lock().window.start(), SHARE_BYTES_MAX, "the store has it");
    }
}
