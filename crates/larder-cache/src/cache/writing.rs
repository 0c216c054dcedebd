//! Writes a value: one writer per key at a time. A value that was removed while it was being fetched is not stored.

use super::{Cache, MemoryValue};
use crate::{
    CacheEvent, KeyWork, Result,
    chunk_format::filled,
    head::{Lifetime, ValueHead},
    keys::value_key,
    tags::{BegunWrite, TagHash},
};
use bytes::Bytes;
use futures_util::lock::Mutex as AsyncMutex;
use larder_store::Hints;
use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// The lifetime and tags of a value to be stored.
#[derive(Clone, Debug, Default)]
pub(crate) struct ValueOptions {
    /// Time for which the value is fresh; `None` means forever.
    pub(crate) fresh_for: Option<Duration>,
    pub(crate) stale_for: Duration,
    pub(crate) tags: Vec<TagHash>,
}

/// A value whose chunks, if any, are already stored.
pub(crate) struct NewValue {
    pub(crate) head: ValueHead,
    /// The bytes of a short value. Empty for a value in chunks.
    pub(crate) pieces: Vec<Bytes>,
}

/// The state of a key and of its tags when a fetch or write began, to detect later changes.
#[derive(Debug)]
pub(crate) struct WriteStart {
    pub(crate) work: KeyWork,
    pub(crate) begun: BegunWrite,
}

/// Locks that let one writer at a time change a key.
pub(crate) struct WriteLocks {
    hasher: RandomState,
    /// The locks. Keys of one group share a lock.
    groups: Box<[AsyncMutex<()>]>,
}

/// Number of locks. Larger than the number of concurrent writes, so that writers of different keys rarely share one.
const WRITE_GROUP_COUNT: usize = 1024;

impl Default for WriteLocks {
    fn default() -> Self {
        let groups = (0..WRITE_GROUP_COUNT).map(|_| AsyncMutex::new(())).collect();
        Self { hasher: RandomState::new(), groups }
    }
}

impl WriteLocks {
    pub(super) fn group(&self, key: &[u8]) -> &AsyncMutex<()> {
        &self.groups[self.hasher.hash_one(key) as usize % WRITE_GROUP_COUNT]
    }
}

impl ValueOptions {
    /// Returns the head of a value that is stored now.
    pub(crate) fn head(&self, cache: &Cache, purge_count: u64, len_bytes: u64, chunks: Option<u64>) -> ValueHead {
        ValueHead { len_bytes, chunks, purge_count, lifetime: self.lifetime(cache), tags: self.tags.clone() }
    }

    pub(crate) fn hints(&self, cache: &Cache) -> Hints {
        Hints { expires_at: self.lifetime(cache).expires_at_s(), ..Hints::default() }
    }

    pub(super) fn lifetime(&self, cache: &Cache) -> Lifetime {
        Lifetime::new(cache.now_ms(), self.fresh_for, self.stale_for)
    }
}

impl Cache {
    /// Notes that a fetch or write of `key` begins. [`Cache::store_value`] refuses its value if the key has changed
    /// since.
    pub(crate) fn write_start(&self, key: &[u8]) -> WriteStart {
        WriteStart {
            work: self.parts.works.begin(&key.into()),
            begun: BegunWrite::new(&self.parts.purges, &self.parts.begun),
        }
    }

    /// Stores a value in place of an older one. Later callers no longer join a fetch of `key` that began before.
    pub(crate) async fn replace_value(&self, key: &[u8], value: NewValue) -> Result<()> {
        self.store_value(key, value, None).await?;
        self.detach_fetch(key);
        Ok(())
    }

    /// Keeps later callers from joining the fetch of a key that has changed. Called before the change is acknowledged.
    ///
    /// Otherwise, callers would get the older value if the new one is evicted. The cost is a second fetch in that case.
    pub(crate) fn detach_fetch(&self, key: &[u8]) {
        self.parts.fetches.detach(key);
    }

    /// Stores a value, replacing an older one. With `since`, only if neither the key nor one of the tags has changed
    /// since that work began. Returns whether it was stored.
    pub(crate) async fn store_value(&self, key: &[u8], value: NewValue, since: Option<&WriteStart>) -> Result<bool> {
        let NewValue { head, pieces } = value;
        assert!(head.chunks.is_none() || pieces.is_empty(), "a long value is in its chunks");
        let _alone = self.parts.writes.group(key).lock().await;
        // Changes of the key wait for the lock above, so none comes between this and the end of the write.
        if since.is_some_and(|since| !since.work.is_current()) {
            return Ok(false);
        }
        let hints = Hints { expires_at: head.lifetime.expires_at_s(), ..Hints::default() };
        let writer = filled(&self.parts.store, &value_key(key), head.encode().into(), pieces.iter().cloned(), hints)?;
        // A `clear` may still be unknown here. It empties the store, which also removes an insert that began before it.
        if since.is_some() && self.is_removed(&head) {
            return Ok(false);
        }
        let change = ChangeGuard::new(self, key);
        writer.commit().await?;
        drop(change);
        let len_bytes = head.len_bytes;
        if head.chunks.is_none() && self.parts.memory.can_keep(len_bytes) {
            // Copied: the caller's bytes may be a small part of a large buffer.
            self.parts.memory.replace(key, MemoryValue::new(head, pieces.concat().into()));
        }
        self.note(CacheEvent::Stored { key, len_bytes });
        Ok(true)
    }
}

/// Marks the fetches and writes of a key as outdated, and removes its value from memory, before the store changes and
/// again when the guard is dropped. By then, the store has changed or the caller has stopped waiting.
///
/// A lookup that reads the store in between therefore does not keep what it read in memory.
pub(super) struct ChangeGuard<'a> {
    cache: &'a Cache,
    key: &'a [u8],
}

impl<'a> ChangeGuard<'a> {
    pub(super) fn new(cache: &'a Cache, key: &'a [u8]) -> Self {
        let change = Self { cache, key };
        change.note();
        change
    }

    fn note(&self) {
        // No commit is waited for: the changes of a key exclude one another by its lock.
        drop(self.cache.parts.works.mark(self.key));
        self.cache.parts.memory.remove(self.key);
    }
}

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        self.note();
    }
}
