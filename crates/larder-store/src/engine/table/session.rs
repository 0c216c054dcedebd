//! The beginning and end of a run on a volume with a disk table: write numbers and the ring's write position.
//!
//! Invariant: nothing is stored before this run's session block is durable, so that its write numbers are greater than
//! all earlier ones. They are derived from the time of day, so that entries are ordered correctly even if both copies
//! of the block are lost. Cost: one block at start, one per sixteenth of the ring, one at the end.

use super::{TableEngine, TablePhase, layout::TableLayout, ring::RingState};
use crate::{
    Result,
    device::AlignedBuffer,
    engine::kit::numbers::RunNumbers,
    format::session::{RunSession, SESSION_AREA_BYTES},
    units::BLOCK_BYTES,
};
use std::sync::Arc;

/// Count of write numbers that each session block reserves.
pub(super) const NUMBERS_PER_BATCH: u64 = 1 << 40;
/// Write numbers per millisecond. The first number of a run is at least the Unix time in milliseconds, multiplied by
/// this constant.
const SEQUENCES_PER_MS: u64 = 1 << 16;
/// The position in a session block is ahead of the ring's position by the ring's length divided by this. A new block is
/// written once half of that distance is used up.
const NOTES_PER_ROUND: u64 = 16;

/// Returns the ring, the circular log, of a volume. Writing begins at the place `next`.
pub(super) fn ring(layout: &TableLayout, next: u64) -> RingState {
    RingState::new(layout.ring_start_bytes, layout.ring_len_bytes, BLOCK_BYTES, next)
}

impl TableEngine {
    /// Begins the run. It continues at the position and write number in the session block of the last run.
    pub(super) async fn begin_session(self: &Arc<Self>) {
        let outcome = self.start_session().await;
        let mut state = self.lock();
        state.phase = match outcome {
            Ok(()) => TablePhase::Ready,
            Err(error) => {
                self.volume.note_failed_start();
                if state.phase != TablePhase::Failed {
                    tracing::error!("the store accepts no entries: {error}");
                }
                TablePhase::Failed
            }
        };
        let woken = state.waiting.take();
        drop(state);
        woken.wake();
    }

    /// Writes the position of the ring, the circular log, to the session block if that is due. If the run could not
    /// begin, retries that.
    pub(super) async fn keep_session(self: &Arc<Self>) {
        if self.lock().phase == TablePhase::Failed {
            // Only one task may begin. Otherwise a second one would reset the ring after others have stored entries in
            // it.
            if let Some(_turn) = self.volume.start_turn()
                && self.lock().phase == TablePhase::Failed
            {
                self.begin_session().await;
            }
            return;
        }
        if self.session_is_due()
            && let Some(_turn) = self.volume.head_turn()
        {
            let next = self.next_session();
            // If this fails, the next run overwrites some of the newest remainders first.
            if self.write_session(next).await.is_ok() {
                let mut state = self.lock();
                state.session = next;
                // A session block contains the first of its numbers.
                state.numbers.reserve_until(next.first_sequence + NUMBERS_PER_BATCH);
            }
        }
    }

    pub(super) fn session_is_due(&self) -> bool {
        let state = self.lock();
        let margin = self.layout.ring_len_bytes / NOTES_PER_ROUND / 2;
        let is_behind = state.ring.next() + margin > state.session.ring_next;
        state.phase == TablePhase::Ready && (is_behind || state.numbers.are_scarce())
    }

    /// Writes the last position of the ring, the circular log, to the session block, for the next run.
    pub(super) async fn end_session(self: &Arc<Self>) -> Result<()> {
        if self.lock().phase != TablePhase::Ready {
            return Ok(());
        }
        let next = self.next_session();
        let next = RunSession { ring_next: self.lock().ring.next(), ..next };
        self.write_session(next).await?;
        self.lock().session = next;
        Ok(())
    }

    async fn start_session(&self) -> Result<()> {
        let area = self.volume.shape.index_area().start;
        let copies = self.volume.read_for_start(area, SESSION_AREA_BYTES).await?;
        let last = RunSession::newest(self.volume.id, copies.as_slice());
        let fresh = self.volume.is_new;
        let last = last.unwrap_or_default();
        let now_ms = u64::try_from(self.volume.clock.since_epoch().as_millis()).unwrap_or(u64::MAX);
        let above_last = last.first_sequence.saturating_add(NUMBERS_PER_BATCH);
        let first_sequence = above_last.max(now_ms.saturating_mul(SEQUENCES_PER_MS));
        let ring = ring(&self.layout, last.ring_next);
        let ahead = ring.next() + self.layout.ring_len_bytes / NOTES_PER_ROUND;
        // Set before the block is written, so that entries can be read even if it cannot be written.
        self.lock().ring = ring;
        let session = RunSession { generation: last.generation + 1, first_sequence, ring_next: ahead };
        self.write_session(session).await?;
        self.volume.sync().await?;
        let mut state = self.lock();
        state.memory = self.memory(fresh);
        state.session = session;
        assert!(first_sequence >= state.numbers.next(), "write numbers do not run back");
        assert!(state.held.is_empty(), "nothing is stored before the session has begun");
        state.numbers = RunNumbers::new(first_sequence, NUMBERS_PER_BATCH);
        state.numbers.reserve_until(first_sequence + NUMBERS_PER_BATCH);
        Ok(())
    }

    /// Returns the session block to write next. Its position is ahead of the present position of the ring, the circular
    /// log, so that a run after a crash does not begin at an earlier position.
    fn next_session(&self) -> RunSession {
        let state = self.lock();
        let ring_next = state.ring.next() + self.layout.ring_len_bytes / NOTES_PER_ROUND;
        RunSession { generation: state.session.generation + 1, ring_next, first_sequence: state.numbers.next() }
    }

    async fn write_session(&self, session: RunSession) -> Result<()> {
        let mut block = AlignedBuffer::with_len(BLOCK_BYTES as usize);
        session.encode(self.volume.id, block.as_mut_slice());
        let at = self.volume.shape.index_area().start + session.offset_bytes();
        self.volume.write(at, Arc::new(block)).await
    }
}
