//! Shares the pieces of long bodies among all readers that need them at the same time.
//!
//! Owns: the table of pieces that are being read or sent. The table keeps no piece alive; a piece is freed with its
//! last reader. Invariant: a range of a representation always has the same bytes, so nothing here is ever invalidated.
//! If many clients need a piece at once, one of them reads it. If that client gives up, the next one reads it. Cost: a
//! short lock and an allocation per piece.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use bytes::Bytes;
use tokio::sync::OnceCell;

/// The pieces that are being read or sent.
#[derive(Default)]
pub(crate) struct SharedReads(Mutex<PieceTable>);

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
pub(crate) struct SharedRead(OnceCell<Bytes>);

impl SharedReads {
    /// Returns the read of a piece, if it is in memory or being read.
    pub(crate) fn find(&self, place: &PiecePlace) -> Option<Arc<SharedRead>> {
        self.lock().by_place.get(place)?.upgrade()
    }

    /// Returns the read of a piece, or creates it if the caller is the first to need it.
    pub(crate) fn find_or_begin(&self, place: PiecePlace) -> Arc<SharedRead> {
        let mut pieces = self.lock();
        if let Some(read) = pieces.by_place.get(&place).and_then(Weak::upgrade) {
            return read;
        }
        if pieces.by_place.len() >= pieces.sweep_count {
            pieces.by_place.retain(|_, read| read.strong_count() > 0);
            pieces.sweep_count = (2 * pieces.by_place.len()).max(SWEEP_COUNT_MIN);
        }
        let read = Arc::<SharedRead>::default();
        pieces.by_place.insert(place, Arc::downgrade(&read));
        read
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, PieceTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedRead {
    /// Returns the piece. `read` reads it unless another reader does.
    ///
    /// # Errors
    /// The error of `read`. Other readers then read for themselves.
    pub(crate) async fn get<E, F: Future<Output = Result<Bytes, E>>>(
        self: Arc<Self>,
        read: impl FnOnce() -> F,
    ) -> Result<SharedPiece, E> {
        // Boxed, because it takes kilobytes, and all readers but one only wait.
        self.0.get_or_try_init(|| Box::pin(read())).await?;
        Ok(SharedPiece(self))
    }
}

/// A reference to a piece, which stays in memory while any reference exists.
pub(crate) struct SharedPiece(Arc<SharedRead>);

impl SharedPiece {
    /// Returns whether other readers have the piece or wait for it.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Returns the piece's bytes. They keep the piece in memory.
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for SharedPiece {
    fn as_ref(&self) -> &[u8] {
        self.0.0.get().expect("it is made once the piece is there")
    }
}

/// Smallest number of entries at which the table is searched for freed pieces.
const SWEEP_COUNT_MIN: usize = 64;

#[cfg(test)]
mod tests {
    use std::{future::ready, pin::pin, task::Context, task::Waker};

    use super::*;

    fn place(start: u64) -> PiecePlace {
        PiecePlace { representation: 1, start, end: start + 10, is_patient: false }
    }

    fn now<T>(future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            std::task::Poll::Ready(done) => done,
            std::task::Poll::Pending => panic!("it takes waiting"),
        }
    }

    #[test]
    fn piece_is_read_once_and_goes_with_its_last_reader() {
        let reads = SharedReads::default();
        let first = now(reads.find_or_begin(place(0)).get(|| ready(Ok::<_, ()>(Bytes::from_static(b"once")))))
            .expect("it is read");
        assert!(!first.is_shared());
        let second = now(reads.find_or_begin(place(0)).get(|| ready(Ok::<_, ()>(Bytes::from_static(b"again")))))
            .expect("it is there");
        assert!(first.is_shared());
        let bytes = second.into_bytes();
        drop(first);
        assert_eq!(bytes, "once");
        assert!(reads.find(&place(0)).is_some());
        drop(bytes);
        assert!(reads.find(&place(0)).is_none());
    }

    #[test]
    fn next_one_reads_where_the_first_could_not() {
        let reads = SharedReads::default();
        let (first, second) = (reads.find_or_begin(place(0)), reads.find_or_begin(place(0)));
        assert!(now(first.get(|| ready(Err(())))).is_err());
        let read = now(second.get(|| ready(Ok::<_, ()>(Bytes::from_static(b"there"))))).expect("it reads for itself");
        assert_eq!(read.into_bytes(), "there");
    }

    #[test]
    fn places_of_pieces_that_have_gone_are_forgotten() {
        let reads = SharedReads::default();
        (0..10_000).for_each(|number| drop(reads.find_or_begin(place(number))));
        assert!(reads.lock().by_place.len() <= 2 * SWEEP_COUNT_MIN);
    }
}
