//! Changes of keys in the store, and entries that return into it.
//!
//! Owns: the order of these two. Invariant: while a key is being changed, no entry of it goes to the tier, and none
//! comes back. So an older entry never comes back after an acknowledged removal, or over a newer version.

use std::{pin::pin, sync::Arc};

use tokio::time::timeout;

use super::{
    CHANGE_PATIENCE, Tier, hash_of,
    index::{PackName, TierIndex},
    record::TierEntry,
};

/// A guard for a change of a key in the store. Until it is dropped, no older entry of the key goes to the tier or comes
/// back from it.
pub struct TierChange {
    tier: Arc<Tier>,
    hash: u64,
}

/// A guard for an operation that makes all entries of the store invalid. Until it is dropped, no entry goes to the tier
/// or comes back from it.
pub struct TierClearing {
    tier: Arc<Tier>,
    packs: Vec<PackName>,
}

/// A guard for an entry of the tier that is being put back into the store.
struct RestoringEntry {
    tier: Arc<Tier>,
    hash: u64,
}

impl Tier {
    /// Begins a change of a key in the store. The tier forgets its entry of the key for good, even if the process is
    /// killed immediately after that.
    pub async fn change(self: &Arc<Self>, key: &[u8]) -> TierChange {
        let hash = hash_of(key);
        let (is_known, is_restoring) = {
            let index = &mut self.lock().index;
            (index.begin_change(hash), index.is_restoring(Some(hash)))
        };
        let change = TierChange { tier: Arc::clone(self), hash };
        // Neither wait is endless: a disk that does not respond must not stop the change. The store is on it, too.
        if is_known {
            drop(timeout(CHANGE_PATIENCE, self.journal.append()).await);
        }
        if is_restoring {
            drop(timeout(CHANGE_PATIENCE, self.restored(Some(hash))).await);
        }
        change
    }

    /// Begins to make all entries of the tier invalid, because the store is about to be emptied or invalidated.
    pub async fn begin_clearing(self: &Arc<Self>) -> TierClearing {
        let packs = self.lock().index.begin_clearing();
        let clearing = TierClearing { tier: Arc::clone(self), packs };
        drop(timeout(CHANGE_PATIENCE, self.restored(None)).await);
        clearing
    }

    /// Puts an entry that was found in the tier back into the store, in the background. If its key is changed
    /// meanwhile, the entry is removed again and `undone` is called.
    pub fn put_back(self: &Arc<Self>, key: Vec<u8>, entry: TierEntry, undone: impl FnOnce(&[u8]) + Send + 'static) {
        let hash = hash_of(&key);
        if !self.lock().index.begin_restoring(hash, entry.place) {
            return;
        }
        let restoring = RestoringEntry { tier: Arc::clone(self), hash };
        self.tasks.spawn(async move {
            let tier = &restoring.tier;
            // The store counts its errors itself.
            let Ok(mut writer) = tier.store.insert(&key, entry.head, entry.hints) else { return };
            if writer.write(entry.body).is_err() || writer.commit().await.is_err() {
                return;
            }
            // A change waits for this task, but not endlessly.
            if !tier.has(&key) {
                drop(tier.store.remove(&key).await);
                undone(&key);
            }
        });
    }

    /// Waits until the entry with this hash is not being put back into the store. With `None`, waits until no entry is.
    async fn restored(&self, hash: Option<u64>) {
        let is_over = |index: &TierIndex| !index.is_restoring(hash);
        loop {
            let mut notified = pin!(self.restored.notified());
            // Before the question, so that no notification is missed.
            notified.as_mut().enable();
            if is_over(&self.lock().index) {
                return;
            }
            notified.await;
        }
    }
}

impl Drop for TierChange {
    fn drop(&mut self) {
        self.tier.lock().index.end_change(self.hash);
    }
}

impl Drop for TierClearing {
    fn drop(&mut self) {
        self.tier.lock().index.end_clearing();
        // Not awaited. Until it is written, the store's generation is not the file's, which is then not used.
        self.tier.journal.begin_again();
        let tier = Arc::clone(&self.tier);
        let packs = std::mem::take(&mut self.packs);
        self.tier.tasks.spawn(async move { tier.remove_packs(packs).await });
    }
}

impl Drop for RestoringEntry {
    fn drop(&mut self) {
        self.tier.lock().index.end_restoring(self.hash);
        self.tier.restored.notify_waiters();
    }
}
