//! Fetches of missing parts in progress, by key: one for all who wait for the same part.
//!
//! Owns: the table. Does not: fetch. Invariant: what is handed to all is what one of them got; if that one is dropped on
//! the way, another goes on. Memory: an entry for each part that is being fetched. Cost: one short lock at either end.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use tokio::sync::OnceCell;

/// The fetches in progress.
#[derive(Default)]
pub(crate) struct OnceTable {
    cells: Mutex<HashMap<Box<[u8]>, Cell>>,
}

type Cell = Arc<OnceCell<Option<Bytes>>>;

impl OnceTable {
    /// What `fetch` brings, or another's fetch for the same key that is in progress.
    pub(crate) async fn once(&self, key: &[u8], fetch: impl Future<Output = Option<Bytes>>) -> Option<Bytes> {
        let cell = Arc::clone(self.lock().entry(key.into()).or_default());
        let waiting = Waiting { table: self, key, cell: &cell };
        waiting.cell.get_or_init(|| fetch).await.clone()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, Cell>> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who waits; the last to leave takes the entry along.
struct Waiting<'a> {
    table: &'a OnceTable,
    key: &'a [u8],
    cell: &'a Cell,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut cells = self.table.lock();
        // A result is for those who waited for it, and no longer for who comes now: it is in the store by then.
        let is_last = Arc::strong_count(self.cell) <= 2;
        if (is_last || self.cell.initialized())
            && cells.get(self.key).is_some_and(|known| Arc::ptr_eq(known, self.cell))
        {
            cells.remove(self.key);
        }
    }
}
