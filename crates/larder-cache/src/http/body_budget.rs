//! Limits the memory of all bodies, and the share of each body.
//!
//! Owns: the count of bytes in memory, and the turns of bodies that exceed their share. The module frees nothing
//! itself. Invariant: a piece of a body is counted from its arrival until a window, a reader or a connection drops
//! its last reference. Every body may always have [`SHARE_BYTES_MIN`], so no body waits for another forever. Cost: an
//! allocation and two atomic additions per piece.

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

/// The limit for the memory of all bodies that are being transferred, and a count of their bytes. All workers share it.
///
/// ```
/// use larder_cache::http::body_budget::BodyBudget;
/// use std::sync::Arc;
///
/// let budget = Arc::new(BodyBudget::new(1 << 20));
/// let piece = budget.count("a piece of a body".into());
/// assert_eq!(budget.held_bytes(), 17);
/// drop(piece);
/// assert_eq!(budget.held_bytes(), 0);
/// ```
#[derive(Debug)]
pub struct BodyBudget {
    held_bytes: AtomicU64,
    max_bytes: AtomicU64,
    turns: Arc<Semaphore>,
    reads: Semaphore,
}

/// A turn: the permission for one fetch to exceed its memory share while the budget is used up.
///
/// Without it, a fetch that waits for memory could never complete a chunk, and so never free memory by storing one.
#[derive(Debug)]
pub struct FillTurn {
    /// The time at which the permission to exceed the memory share ends.
    pub end: Instant,
    _permit: Option<OwnedSemaphorePermit>,
}

impl BodyBudget {
    /// Creates a budget with a limit in bytes.
    pub fn new(max_bytes: u64) -> Self {
        let turns = Arc::new(Semaphore::new(TURNS_AT_ONCE));
        let reads = Semaphore::new(READS_AT_ONCE);
        Self { held_bytes: AtomicU64::new(0), max_bytes: AtomicU64::new(max_bytes), turns, reads }
    }

    /// Changes the limit for the bytes of all bodies together.
    pub fn set_max_bytes(&self, max_bytes: u64) {
        self.max_bytes.store(max_bytes, Relaxed);
    }

    /// Returns the number of bytes of bodies in memory, with those that are reserved.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Relaxed)
    }

    /// Returns the limit for the bytes of all bodies together. While it is exceeded, each body may use only
    /// `SHARE_BYTES_MIN`.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes.load(Relaxed)
    }

    /// Returns whether bodies use more memory than the limit.
    pub fn is_used_up(&self) -> bool {
        self.held_bytes() > self.max_bytes()
    }

    /// Returns how many bytes of the budget a body may use that already has `own` bytes in memory: a fraction of the
    /// bytes that other bodies leave free, within fixed bounds.
    pub fn share_bytes(&self, own: u64) -> u64 {
        let free = self.max_bytes().saturating_sub(self.held_bytes().saturating_sub(own));
        (free / FREE_SHARE).clamp(SHARE_BYTES_MIN, SHARE_BYTES_MAX)
    }

    /// Returns whether memory is so short that bodies must not read ahead: the next bytes are read only when the client
    /// has received those before.
    pub fn is_scarce(&self) -> bool {
        self.share_bytes(0) < SCARCE_BYTES
    }

    /// Counts the bytes of a piece until its last reference is dropped. Returns the counted piece.
    pub fn count(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        self.reserve(bytes.len() as u64).hold(bytes)
    }

    /// Counts `len` bytes that will soon be in memory.
    pub fn reserve(self: &Arc<Self>, len: u64) -> Reservation {
        self.held_bytes.fetch_add(len, Relaxed);
        Reservation { len, budget: Arc::clone(self) }
    }

    /// Waits, if memory is short, until few other reads of the store are in progress. The read lasts until the permit
    /// is dropped.
    pub async fn begin_read(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        if self.is_scarce() { self.reads.acquire().await.ok() } else { None }
    }

    /// Waits for a turn, the permission to exceed a memory share. Returns `None` after `TURN_PATIENCE`, so that the
    /// caller can check whether it still needs one.
    pub async fn take_turn(&self) -> Option<FillTurn> {
        let permit = tokio::time::timeout(TURN_PATIENCE, Arc::clone(&self.turns).acquire_owned()).await.ok()?;
        // The semaphore is never closed.
        Some(FillTurn { end: Instant::now() + TURN_LENGTH, _permit: permit.ok() })
    }
}

/// A number of counted bytes, which may not be in memory yet.
#[derive(Debug)]
pub struct Reservation {
    len: u64,
    budget: Arc<BodyBudget>,
}

impl Reservation {
    /// Turns the reservation into a counted piece: its bytes count until its last reference is dropped. `bytes` must
    /// have the reserved length.
    pub fn hold(self, bytes: Bytes) -> Bytes {
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

/// A piece of a body whose bytes are counted.
struct CountedPiece {
    bytes: Bytes,
    _reservation: Reservation,
}

impl AsRef<[u8]> for CountedPiece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Ratio of the bytes that other bodies leave free to the share of one body.
const FREE_SHARE: u64 = 4;
/// Maximum share of a body in bytes: enough for the chunks that a dozen parallel requests for parts of it fill.
pub const SHARE_BYTES_MAX: u64 = 16 << 20;
/// Minimum share of a body in bytes. A body may always use that much.
pub const SHARE_BYTES_MIN: u64 = 8 << 10;
/// Share in bytes below which a body does not read ahead: it reads from the store only when its client has received the
/// bytes before.
const SCARCE_BYTES: u64 = 64 << 10;
/// Maximum number of fetches that may exceed their memory share at a time. More would fill the memory; with only one, a
/// slow origin would delay all others.
const TURNS_AT_ONCE: usize = 4;
/// Maximum number of concurrent reads from the store while memory is short.
const READS_AT_ONCE: usize = 16;
/// Time for which a fetch may exceed its memory share, once it gets a turn.
const TURN_LENGTH: Duration = Duration::from_secs(1);
/// Time for which a fetch waits for a turn before it checks whether it still needs one.
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
        let budget = Arc::new(BodyBudget::new(64 << 20));
        assert_eq!(budget.share_bytes(0), SHARE_BYTES_MAX);
        let most = budget.count(vec![0; 63 << 20].into());
        assert_eq!([budget.share_bytes(0), budget.share_bytes(15 << 20)], [256 << 10, 4 << 20]);
        let rest = budget.count(vec![0; 2 << 20].into());
        assert_eq!(budget.share_bytes(0), SHARE_BYTES_MIN);
        assert!(budget.is_scarce());
        drop((most, rest));
        assert!(!budget.is_scarce());
    }
}
