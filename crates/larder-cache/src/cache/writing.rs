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

/// The lifetime and the tags with which a value is stored.
#[derive(Clone, Debug, Default)]
pub(crate) struct ValueOptions {
    /// Time for which the value is fresh. `None` means forever.
    pub(crate) fresh_for: Option<Duration>,
    pub(crate) stale_for: Duration,
    pub(crate) tags: Vec<TagHash>,
}

/// A value to be stored. If it is long, its chunks are already stored.
pub(crate) struct NewValue {
    pub(crate) head: ValueHead,
    /// The bytes of a short value. Empty for a value in chunks.
    pub(crate) pieces: Vec<Bytes>,
}

/// The state of a key when a fetch or write of its value began. Shows later whether the key or a tag has changed since.
#[derive(Debug)]
pub(crate) struct WriteStart {
    pub(crate) work: KeyWork,
    pub(crate) begun: BegunWrite,
}

/// Locks which ensure that only one writer at a time changes a key.
pub(crate) struct WriteLocks {
    hasher: RandomState,
    /// The locks. Each serves a group of keys, which the hash of a key selects.
    groups: Box<[AsyncMutex<()>]>,
}

/// Number of locks. It is larger than the usual number of concurrent writes, so that writers of different keys rarely
/// share a lock.
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
    /// Returns the head for a value that is stored now with these options.
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
    /// Records that a fetch or write of `key` begins. If the key changes before it ends, [`Cache::store_value`] refuses
    /// its value.
    pub(crate) fn write_start(&self, key: &[u8]) -> WriteStart {
        WriteStart {
            work: self.parts.works.begin(&key.into()),
            begun: BegunWrite::new(&self.parts.purges, &self.parts.begun),
        }
    }

    /// Stores a value in place of an older one. A fetch of `key` that is in progress can then no longer be joined,
    /// because its value would be older.
    pub(crate) async fn replace_value(&self, key: &[u8], value: NewValue) -> Result<()> {
        self.store_value(key, value, None).await?;
        self.detach_fetch(key);
        Ok(())
    }

    /// Prevents later callers from joining a fetch of a key that has changed. Called before the change is acknowledged.
    ///
    /// Otherwise, if the new value was evicted soon, callers would join that fetch and get the older value. Now they
    /// fetch again.
    pub(crate) fn detach_fetch(&self, key: &[u8]) {
        self.parts.fetches.detach(key);
    }

    /// Stores a value, replacing an older one. Returns whether it was stored.
    ///
    /// With `since`, stores the value only if neither the key nor one of its tags has changed since that fetch or write
    /// began.
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

/// A guard for a change of a key in the store. When it is created, and again when it is dropped, it marks fetches and
/// writes of the key as outdated, and removes the key's value from memory.
///
/// A lookup that reads the store in between does not put what it read into memory.
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
