//! Shares the pieces of long bodies among all readers that need them at the same time.
//!
//! Owns: the table of pieces that are being read or sent, and the tasks that read them. The table keeps no piece alive;
//! a piece is freed with its last reader. If memory is short, readers take a piece in parts. At most [`KEPT_COUNT_MAX`]
//! pieces stay in memory between two parts, the most recent ones: a reader that stands still soon loses its own.
//!
//! Invariants: a range of a representation always has the same bytes, so nothing here is ever invalidated. A task reads
//! a piece, never one of its readers: a client that stands still does not poll its futures, and would hold up all
//! others. The task ends with the last reader. Cost: a short lock, two allocations and a task per piece.

use larder_device::IgnorePoison;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, OnceLock, Weak},
};

use bytes::Bytes;
use tokio::{sync::SetOnce, task::AbortHandle};

/// The pieces that are being read or sent.
#[derive(Default)]
pub(crate) struct SharedReads {
    pieces: Mutex<PieceTable>,
    kept: Mutex<KeptPieces>,
}

/// The pieces that readers take in parts, the oldest first, with their numbers.
#[derive(Default)]
struct KeptPieces {
    by_age: VecDeque<(u64, Arc<SharedRead>)>,
    last_number: u64,
}

/// Keeps a piece in memory for a reader that takes it in parts, unless more recent ones need the room.
pub(crate) struct KeptPiece {
    reads: Arc<SharedReads>,
    number: u64,
}

#[derive(Default)]
struct PieceTable {
    by_place: HashMap<PiecePlace, Weak<SharedRead>>,
    /// Number of entries at which the table is next searched for freed pieces.
    sweep_count: usize,
}

/// The key of a piece in the table. Readers that wait for the store only briefly do not share with readers that wait
/// longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PiecePlace {
    pub(crate) representation: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) is_patient: bool,
}

/// One piece, whether read or being read.
#[derive(Default)]
pub(crate) struct SharedRead {
    result: SetOnce<PieceResult>,
    /// The task that reads the piece.
    task: OnceLock<AbortHandle>,
}

/// The reason why memory and store cannot supply the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AbsenceReason {
    /// The bytes are not stored.
    Gap,
    /// The store failed or timed out, so the bytes may be stored.
    Trouble,
}

/// The piece, or the reason why it is absent.
type PieceResult = Result<Bytes, AbsenceReason>;

/// Announces the result of a read, also if its task is dropped unfinished.
struct ReadOutcome(Weak<SharedRead>);

impl SharedReads {
    /// Returns the read of a piece, if it is in memory or being read.
    pub(crate) fn find(&self, place: &PiecePlace) -> Option<Arc<SharedRead>> {
        find(&self.lock(), place)
    }

    /// Returns the read of a piece. If the caller is the first to need it, a task begins to read it by `read`.
    pub(crate) fn find_or_begin<F>(&self, place: PiecePlace, read: impl FnOnce() -> F) -> Arc<SharedRead>
    where
        F: Future<Output = PieceResult> + Send + 'static,
    {
        let begun = {
            let mut pieces = self.lock();
            if let Some(found) = find(&pieces, &place) {
                return found;
            }
            if pieces.by_place.len() >= pieces.sweep_count {
                pieces.by_place.retain(|_, read| read.strong_count() > 0);
                pieces.sweep_count = (2 * pieces.by_place.len()).max(SWEEP_COUNT_MIN);
            }
            let begun = Arc::<SharedRead>::default();
            pieces.by_place.insert(place, Arc::downgrade(&begun));
            begun
        };
        begun.begin(read());
        begun
    }

    /// Keeps a piece in memory until its reader needs it again.
    pub(crate) fn keep(self: &Arc<Self>, piece: SharedPiece) -> KeptPiece {
        let mut kept = self.lock_kept();
        kept.last_number += 1;
        let number = kept.last_number;
        kept.by_age.push_back((number, piece.0));
        if kept.by_age.len() > KEPT_COUNT_MAX {
            kept.by_age.pop_front();
        }
        KeptPiece { reads: Arc::clone(self), number }
    }

    fn lock(&self) -> MutexGuard<'_, PieceTable> {
        self.pieces.lock().ignore_poison()
    }

    fn lock_kept(&self) -> MutexGuard<'_, KeptPieces> {
        self.kept.lock().ignore_poison()
    }
}

impl KeptPiece {
    /// Returns whether this keeps `piece`.
    pub(crate) fn is_of(&self, piece: &SharedPiece) -> bool {
        let kept = self.reads.lock_kept();
        kept.by_age.iter().any(|(number, read)| *number == self.number && Arc::ptr_eq(read, &piece.0))
    }
}

impl Drop for KeptPiece {
    fn drop(&mut self) {
        self.reads.lock_kept().by_age.retain(|(number, _)| *number != self.number);
    }
}

/// Returns the read of a piece. A read that failed is not shared with later readers.
fn find(pieces: &PieceTable, place: &PiecePlace) -> Option<Arc<SharedRead>> {
    let read = pieces.by_place.get(place)?.upgrade()?;
    (!matches!(read.result.get(), Some(Err(_)))).then_some(read)
}

impl SharedRead {
    /// Begins the task.
    fn begin(self: &Arc<Self>, reading: impl Future<Output = PieceResult> + Send + 'static) {
        // Boxed, because it takes kilobytes, and the runtime moves a spawned future.
        let outcome = ReadOutcome(Arc::downgrade(self));
        let reading = Box::pin(reading);
        let task = tokio::spawn(async move { outcome.announce(reading.await) });
        // A read is begun once.
        let _ = self.task.set(task.abort_handle());
    }

    /// Waits for the piece.
    ///
    /// # Errors
    /// The read failed, or was dropped with its worker.
    pub(crate) async fn get(self: Arc<Self>) -> Result<SharedPiece, AbsenceReason> {
        match self.result.wait().await {
            Ok(_) => {}
            Err(reason) => return Err(*reason),
        }
        Ok(SharedPiece(self))
    }
}

impl Drop for SharedRead {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

impl ReadOutcome {
    fn announce(&self, result: PieceResult) {
        if let Some(read) = self.0.upgrade() {
            // The first result counts.
            let _ = read.result.set(result);
        }
    }
}

impl Drop for ReadOutcome {
    fn drop(&mut self) {
        self.announce(Err(AbsenceReason::Trouble));
    }
}

/// A reference to a piece, which stays in memory while any reference exists.
pub(crate) struct SharedPiece(Arc<SharedRead>);

impl SharedPiece {
    /// Returns whether other readers have the piece or wait for it. `is_kept` says that this reader also keeps it.
    pub(crate) fn is_shared(&self, is_kept: bool) -> bool {
        Arc::strong_count(&self.0) > 1 + usize::from(is_kept)
    }

    /// Returns the piece's bytes. They keep the piece in memory.
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for SharedPiece {
    fn as_ref(&self) -> &[u8] {
        let result = self.0.result.get().and_then(|result| result.as_ref().ok());
        result.expect("it is made once the piece is there")
    }
}

/// Smallest number of entries at which the table is searched for freed pieces.
const SWEEP_COUNT_MIN: usize = 64;
/// Most pieces in memory that no reader is being sent. Each is a block of the store.
const KEPT_COUNT_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        sync::atomic::{AtomicBool, Ordering::SeqCst},
    };

    use tokio::{sync::oneshot, task::yield_now};

    use super::*;

    fn place(start: u64) -> PiecePlace {
        PiecePlace { representation: 1, start, end: start + 10, is_patient: false }
    }

    fn run(test: impl Future) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let limit = std::time::Duration::from_secs(10);
        runtime.block_on(async { tokio::time::timeout(limit, test).await.expect("it takes waiting") });
    }

    fn there(text: &'static str) -> std::future::Ready<PieceResult> {
        ready(Ok(Bytes::from_static(text.as_bytes())))
    }

    #[test]
    fn piece_is_read_once_and_goes_with_its_last_reader() {
        run(async {
            let reads = SharedReads::default();
            let first = reads.find_or_begin(place(0), || there("once")).get().await.expect("it is read");
            assert!(!first.is_shared(false));
            let second = reads.find_or_begin(place(0), || there("again")).get().await.expect("it is there");
            assert!(first.is_shared(false));
            let bytes = second.into_bytes();
            drop(first);
            assert_eq!(bytes, "once");
            assert!(reads.find(&place(0)).is_some());
            drop(bytes);
            assert!(reads.find(&place(0)).is_none());
        });
    }

    #[test]
    fn piece_arrives_although_its_first_reader_does_not_poll() {
        run(async {
            let reads = SharedReads::default();
            let (sender, receiver) = oneshot::channel();
            let standing = reads.find_or_begin(place(0), || async { receiver.await.map_err(|_| AbsenceReason::Gap) });
            let moving = reads.find_or_begin(place(0), || there("again"));
            sender.send(Bytes::from_static(b"once")).unwrap();
            assert_eq!(moving.get().await.expect("it is read").into_bytes(), "once");
            assert_eq!(standing.get().await.expect("it is there").into_bytes(), "once");
        });
    }

    #[test]
    fn read_that_failed_is_begun_again_by_the_next_reader() {
        run(async {
            let reads = SharedReads::default();
            let failed = reads.find_or_begin(place(0), || ready(Err(AbsenceReason::Gap)));
            assert_eq!(Arc::clone(&failed).get().await.err(), Some(AbsenceReason::Gap));
            let read = reads.find_or_begin(place(0), || there("there")).get().await.expect("it is read again");
            assert_eq!(read.into_bytes(), "there");
            drop(failed);
        });
    }

    #[test]
    fn read_ends_with_its_last_reader_and_fails_with_its_runtime() {
        struct Dropped(Arc<AtomicBool>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.store(true, SeqCst);
            }
        }
        let reads = SharedReads::default();
        let is_dropped = Arc::new(AtomicBool::new(false));
        let begin = |number| {
            let guard = Dropped(Arc::clone(&is_dropped));
            reads.find_or_begin(place(number), || async {
                let _guard = guard;
                pending().await
            })
        };
        run(async {
            let read = begin(0);
            yield_now().await;
            drop(read);
            while !is_dropped.load(SeqCst) {
                yield_now().await;
            }
        });
        let mut left = None;
        run(async { left = Some(begin(1)) });
        run(async { assert_eq!(left.take().unwrap().get().await.err(), Some(AbsenceReason::Trouble)) });
    }

    #[test]
    fn piece_is_kept_for_a_reader_that_takes_it_in_parts_until_newer_ones_need_the_room() {
        run(async {
            let reads = Arc::new(SharedReads::default());
            let read = async |number| reads.find_or_begin(place(number), || there("part")).get().await.ok();
            let kept = reads.keep(read(0).await.expect("it is read"));
            let again = read(0).await.expect("it is there");
            assert!(kept.is_of(&again) && !again.is_shared(true) && again.is_shared(false));
            drop((again, kept));
            assert!(reads.find(&place(0)).is_none(), "it goes with its reader");
            let mut all = Vec::new();
            for number in 0..3 * KEPT_COUNT_MAX as u64 {
                all.push(reads.keep(read(number).await.expect("it is read")));
            }
            let there = (0..all.len() as u64).filter(|number| reads.find(&place(*number)).is_some());
            assert!(there.eq(2 * KEPT_COUNT_MAX as u64..3 * KEPT_COUNT_MAX as u64));
        });
    }

    #[test]
    fn places_of_pieces_that_have_gone_are_forgotten() {
        run(async {
            let reads = SharedReads::default();
            (0..10_000).for_each(|number| drop(reads.find_or_begin(place(number), || there(""))));
            assert!(reads.lock().by_place.len() <= 2 * SWEEP_COUNT_MIN);
        });
    }
}
