//! The memory of all bodies' bytes, and the share of each body.
//!
//! Owns: the count of the bytes in memory, and the turns of bodies that exceed their share. Nothing is freed here.
//! Invariant: a piece of a body is counted from its arrival in memory until its last reference is dropped, by a window,
//! a reader, or the HTTP library. Every body may always have [`SHARE_BYTES_MIN`], so none waits for another forever.
//! Cost: an allocation and two atomic additions for each piece.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit},
    time::Instant,
};

/// The memory for bytes of bodies on their way, of all workers together.
#[derive(Debug)]
pub(crate) struct BodyBudget {
    held_bytes: AtomicU64,
    max_bytes: AtomicU64,
    turns: Arc<Semaphore>,
    reads: Semaphore,
}

/// The right of one fetch to go beyond its share while the budget is used up, so that it comes to a place where it
/// can let go.
#[derive(Debug)]
pub(crate) struct FillTurn {
    /// The end of the turn.
    pub(crate) end: Instant,
    _permit: Option<OwnedSemaphorePermit>,
}

impl BodyBudget {
    /// Returns a budget of `max_bytes` of which nothing is used.
    pub(crate) fn new(max_bytes: u64) -> Self {
        let turns = Arc::new(Semaphore::new(TURNS_AT_ONCE));
        let reads = Semaphore::new(READS_AT_ONCE);
        Self { held_bytes: AtomicU64::new(0), max_bytes: AtomicU64::new(max_bytes), turns, reads }
    }

    /// Changes the limit.
    pub(crate) fn set_max_bytes(&self, max_bytes: u64) {
        self.max_bytes.store(max_bytes, Relaxed);
    }

    /// Returns the bytes in memory.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Relaxed)
    }

    /// Returns the bytes beyond which each body has the least share.
    pub(crate) fn max_bytes(&self) -> u64 {
        self.max_bytes.load(Relaxed)
    }

    /// Returns whether the budget is used up.
    pub(crate) fn is_used_up(&self) -> bool {
        self.held_bytes() > self.max_bytes()
    }

    /// Returns the bytes that one more body, or a growing one, may have: a fraction of the free bytes.
    pub(crate) fn share_bytes(&self) -> u64 {
        let free = self.max_bytes().saturating_sub(self.held_bytes());
        (free / FREE_SHARE).clamp(SHARE_BYTES_MIN, SHARE_BYTES_MAX)
    }

    /// Returns whether bodies have to do with less than a block of the store.
    pub(crate) fn is_scarce(&self) -> bool {
        self.share_bytes() < SCARCE_BYTES
    }

    /// Counts a piece until its last reference is gone.
    pub(crate) fn count(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        self.reserve(bytes.len() as u64).hold(bytes)
    }

    /// Counts bytes that are about to come into memory.
    pub(crate) fn reserve(self: &Arc<Self>, len: u64) -> Reservation {
        self.held_bytes.fetch_add(len, Relaxed);
        Reservation { len, budget: Arc::clone(self) }
    }

    /// Waits until few others read from the store, if memory is short.
    pub(crate) async fn begin_read(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        if self.is_scarce() { self.reads.acquire().await.ok() } else { None }
    }

    /// Waits for a turn; `None` if others take too long. The caller then looks again whether it needs one.
    pub(crate) async fn take_turn(&self) -> Option<FillTurn> {
        let permit = tokio::time::timeout(TURN_PATIENCE, Arc::clone(&self.turns).acquire_owned()).await.ok()?;
        // The semaphore is never closed.
        Some(FillTurn { end: Instant::now() + TURN_LENGTH, _permit: permit.ok() })
    }
}

/// Bytes that are counted, whether they are there already or not.
#[derive(Debug)]
pub(crate) struct Reservation {
    len: u64,
    budget: Arc<BodyBudget>,
}

impl Reservation {
    /// Returns a piece of as many bytes, which is counted until its last reference is gone.
    pub(crate) fn hold(self, bytes: Bytes) -> Bytes {
        debug_assert_eq!(self.len, bytes.len() as u64);
        Bytes::from_owner(CountedPiece { bytes, _reservation: self })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let before = self.budget.held_bytes.fetch_sub(self.len, Relaxed);
        assert!(before >= self.len, "{} bytes of a body were counted, of all only {before}", self.len);
    }
}

/// A piece that is counted.
struct CountedPiece {
    bytes: Bytes,
    _reservation: Reservation,
}

impl AsRef<[u8]> for CountedPiece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Divisor of the free bytes that gives the share of one body.
const FREE_SHARE: u64 = 4;
/// The most that one body may have in memory.
pub(crate) const SHARE_BYTES_MAX: u64 = 4 << 20;
/// Least share of a body, whatever others take.
pub(crate) const SHARE_BYTES_MIN: u64 = 16 << 10;
/// With fewer bytes than this for each body, no more are read before the client has received those read.
const SCARCE_BYTES: u64 = 64 << 10;
/// Number of fetches that may exceed their share at once. More would fill memory; with one, a slow origin would delay
/// all.
const TURNS_AT_ONCE: usize = 4;
/// Blocks that are read at once while memory is short.
const READS_AT_ONCE: usize = 16;
/// The time that a fetch has for it.
const TURN_LENGTH: Duration = Duration::from_secs(1);
/// The time after which a fetch that waits for a turn looks whether it still needs one.
const TURN_PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_count_until_their_last_reference_is_gone() {
        let budget = Arc::new(BodyBudget::new(1000));
        let piece = budget.count(vec![7; 1500].into());
        let part = piece.slice(100..200);
        drop(piece);
        assert_eq!((budget.held_bytes(), budget.is_used_up()), (1500, true));
        assert_eq!(part, vec![7; 100]);
        drop(part);
        assert_eq!((budget.held_bytes(), budget.is_used_up()), (0, false));
    }

    #[test]
    fn share_is_a_part_of_what_is_free_and_never_less_than_the_least() {
        let budget = Arc::new(BodyBudget::new(16 << 20));
        assert_eq!(budget.share_bytes(), SHARE_BYTES_MAX);
        let most = budget.count(vec![0; 15 << 20].into());
        assert_eq!(budget.share_bytes(), 256 << 10);
        let rest = budget.count(vec![0; 2 << 20].into());
        assert_eq!(budget.share_bytes(), SHARE_BYTES_MIN);
        assert!(budget.is_scarce());
        drop((most, rest));
        assert!(!budget.is_scarce());
    }
}
