//! The cache: lookups, writes and removals, and how they exclude one another.
//!
//! Invariants: writes to one key happen one after the other, so the value in memory is the one in the store or none. A
//! value whose fetch began before its key or one of its tags was removed is given to those that waited for it, but not
//! stored.

use crate::{
    CacheBuilder, CacheEvent, CacheStats, EntryRequest, Error, Result, Value,
    counters::Counters,
    fetches::{FetchLead, FetchRole, Fetches},
    head::{Freshness, Lifetime, TAG_COUNT_MAX, ValueHead},
    keys::{ChunksId, KEY_BYTES_MAX, chunk_count, chunk_key, value_key},
    memory::{KeyVersion, MemoryCache, MemoryValue},
    tags::{Generation, TagHash, TagRemovals},
    value::{ChunkedBody, ValueBody},
    writer::ValueWriter,
};
use bytes::Bytes;
use futures_util::lock::Mutex as AsyncMutex;
use larder_store::{Clock, Hints, Invalidation, Reader, Store};
use std::{
    error, fmt,
    hash::{BuildHasher, RandomState},
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

/// A cache in memory and on disk. Cheap to clone; all clones are one cache.
#[derive(Clone)]
pub struct Cache {
    parts: Arc<CacheParts>,
}

pub(crate) struct CacheParts {
    pub(crate) store: Store,
    pub(crate) memory: MemoryCache,
    pub(crate) fetches: Fetches,
    pub(crate) removals: TagRemovals,
    pub(crate) counters: Counters,
    pub(crate) clock: Clock,
    pub(crate) defaults: ValueOptions,
    pub(crate) writes: WriteLocks,
}

/// The lifetime and tags of a value to be stored.
#[derive(Clone, Debug, Default)]
pub(crate) struct ValueOptions {
    /// `None`: for ever.
    pub(crate) fresh_for: Option<Duration>,
    pub(crate) stale_for: Duration,
    pub(crate) tags: Vec<TagHash>,
}

/// A value to be stored whose chunks, if it has any, are stored.
pub(crate) struct NewValue {
    pub(crate) head: ValueHead,
    /// The body of a short value.
    pub(crate) pieces: Vec<Bytes>,
}

/// The moment when work on a value began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteStart {
    pub(crate) version: KeyVersion,
    pub(crate) generation: Generation,
}

/// A found value, fresh or stale.
struct FoundValue {
    value: Value,
    freshness: Freshness,
    is_in_memory: bool,
}

/// Lets one writer at a time change a key.
pub(crate) struct WriteLocks {
    hasher: RandomState,
    /// Keys of one group wait for one another.
    groups: Box<[AsyncMutex<()>]>,
}

/// More than writes in progress, so that two keys seldom wait for one another.
const WRITE_GROUP_COUNT: usize = 1024;

impl Default for WriteLocks {
    fn default() -> Self {
        let groups = (0..WRITE_GROUP_COUNT).map(|_| AsyncMutex::new(())).collect();
        Self { hasher: RandomState::new(), groups }
    }
}

impl WriteLocks {
    fn group(&self, key: &[u8]) -> &AsyncMutex<()> {
        &self.groups[self.hasher.hash_one(key) as usize % WRITE_GROUP_COUNT]
    }
}

impl ValueOptions {
    /// Returns the head of a value that is stored now.
    pub(crate) fn head(
        &self,
        cache: &Cache,
        generation: Generation,
        len_bytes: u64,
        chunks: Option<ChunksId>,
    ) -> ValueHead {
        ValueHead { len_bytes, chunks, generation, lifetime: self.lifetime(cache), tags: self.tags.clone() }
    }

    pub(crate) fn hints(&self, cache: &Cache) -> Hints {
        Hints { expires_at: self.lifetime(cache).expires_at_s(), ..Hints::default() }
    }

    fn lifetime(&self, cache: &Cache) -> Lifetime {
        Lifetime::new(cache.now_ms(), self.fresh_for, self.stale_for)
    }
}

impl Cache {
    /// Returns a builder of a cache in the directory `path`, which is created if it does not exist. The directory
    /// belongs to the cache, and to one process at a time.
    pub fn builder(path: impl AsRef<Path>) -> CacheBuilder {
        CacheBuilder::new(path.as_ref())
    }

    pub(crate) fn from_parts(parts: CacheParts) -> Self {
        Self { parts: Arc::new(parts) }
    }

    /// Returns the value of `key`, or calls `fetch`, stores the result and returns it.
    ///
    /// Callers that want the same key at the same time share one fetch, whose result or error they all get. If the
    /// caller whose `fetch` runs is dropped, another one calls its own. A failure of the store is not an error here: the
    /// value is fetched. `fetch` must not ask the cache for the same key: it would wait for itself.
    ///
    /// ```
    /// # use larder_cache::Cache;
    /// # futures_executor::block_on(async {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let cache = Cache::builder(directory.path()).disk("32MB").memory("8MB").open()?;
    /// let value = cache.get_or_fetch("answer", || async { Ok::<_, std::io::Error>("42") }).await?;
    /// assert_eq!(value, "42");
    /// # larder_cache::Result::Ok(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Fetch`] when the fetch fails; [`Error::Invalid`] when the key is longer than 16,367 bytes.
    pub async fn get_or_fetch<F, Fut, V, E>(&self, key: impl AsRef<[u8]>, fetch: F) -> Result<Bytes>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = std::result::Result<V, E>>,
        V: Into<Bytes>,
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        self.entry(key).get_or_fetch(fetch).await
    }

    /// Returns the value of `key` if there is a fresh one.
    ///
    /// # Errors
    /// [`Error::Store`] when the device fails or the cache is closed; [`Error::Invalid`] when the key is too long.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        let key = checked(key.as_ref())?;
        if let Some(found) = self.find(key).await?.filter(|found| found.freshness == Freshness::Fresh)
            && let Some(bytes) = found.bytes().await?
        {
            self.note_hit(key, &found);
            return Ok(Some(bytes));
        }
        self.note(CacheEvent::Miss { key });
        Ok(None)
    }

    /// Finds the value of `key`, fresh or stale, without reading all of a long one. [`Value::is_fresh`] tells which.
    ///
    /// # Errors
    /// As [`Cache::get`].
    pub async fn open(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = checked(key.as_ref())?;
        let found = self.find(key).await?;
        match &found {
            Some(found) => self.note_hit(key, found),
            None => self.note(CacheEvent::Miss { key }),
        }
        Ok(found.map(|found| found.value))
    }

    /// Stores a value of any length in place of an older one. Lookups find it from the moment when this returns.
    ///
    /// After a kill of the process the values of the last half second may be missing, after a power failure those of the
    /// last five seconds.
    ///
    /// # Errors
    /// [`Error::Store`] when the device fails, there is no room, or the cache is closed; [`Error::Invalid`] when the key
    /// is too long. The older value is then still there.
    pub async fn insert(&self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Result<()> {
        self.entry(key).insert(value).await
    }

    /// Returns a request for `key`, to set the lifetime or the tags of its value.
    ///
    /// ```
    /// # use {larder_cache::Cache, std::time::Duration};
    /// # futures_executor::block_on(async {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let cache = Cache::builder(directory.path()).disk("32MB").memory("8MB").open()?;
    /// cache.entry("user/7").fresh_for(Duration::from_secs(60)).tag("users").insert("Ada").await?;
    /// cache.remove_tag("users").await?;
    /// assert_eq!(cache.get("user/7").await?, None);
    /// # larder_cache::Result::Ok(())
    /// # }).unwrap();
    /// ```
    pub fn entry(&self, key: impl AsRef<[u8]>) -> EntryRequest {
        EntryRequest::new(self, key.as_ref(), self.parts.defaults.clone())
    }

    /// Removes the value of `key`. Once this returns no lookup finds it, nor a value whose fetch began before.
    ///
    /// # Errors
    /// [`Error::Store`] when the removal could not be written: the value is gone, but may come back if the process is
    /// killed now.
    pub async fn remove(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = checked(key.as_ref())?;
        let _alone = self.parts.writes.group(key).lock().await;
        let change = ChangeGuard::new(self, key);
        self.parts.fetches.detach(key);
        let removed = self.parts.store.remove(&value_key(key)).await;
        drop(change);
        Ok(removed?)
    }

    /// Removes all values that were stored with `tag`, however many there are, by one write to disk. Once this returns
    /// no lookup finds one of them, nor a value whose fetch began before.
    ///
    /// # Errors
    /// [`Error::Store`] when the removal could not be written: the values are gone, but may come back at the next start.
    pub async fn remove_tag(&self, tag: &str) -> Result<()> {
        let removed = self.parts.removals.remove(Some(TagHash::new(tag))).await;
        self.parts.fetches.detach_all();
        removed.map_err(not_written)
    }

    /// Removes everything.
    ///
    /// # Errors
    /// As [`Cache::remove_tag`].
    pub async fn clear(&self) -> Result<()> {
        let removed = self.parts.removals.remove(None).await;
        self.parts.fetches.detach_all();
        self.parts.memory.clear();
        self.parts.store.invalidate(Invalidation::All).await?;
        removed.map_err(not_written)
    }

    /// Keeps the value of `key` from being evicted until it is removed, unpinned or expired, or the cache is closed.
    /// Returns `false` if there is no value, or if too much is pinned already (by default a quarter of the disk).
    ///
    /// # Errors
    /// As [`Cache::get`].
    pub async fn pin(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = checked(key.as_ref())?;
        let Some(head) = self.find_head(key).await? else { return Ok(false) };
        let keys = stored_keys(key, &head);
        let len_bytes = head.len_bytes / keys.len() as u64;
        let is_pinned = keys.iter().all(|key| self.parts.store.pin(key, len_bytes));
        if !is_pinned {
            keys.iter().for_each(|key| _ = self.parts.store.unpin(key));
        }
        Ok(is_pinned)
    }

    /// Lets the value of `key` be evicted again.
    ///
    /// # Errors
    /// As [`Cache::get`].
    pub async fn unpin(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = checked(key.as_ref())?;
        self.parts.store.unpin(&value_key(key));
        if let Some(head) = self.find_head(key).await? {
            stored_keys(key, &head).iter().for_each(|key| _ = self.parts.store.unpin(key));
        }
        Ok(())
    }

    /// Waits until the values of earlier runs can all be found. Until then a lookup may miss them.
    pub async fn ready(&self) {
        self.parts.store.ready().await;
    }

    /// Returns counters and gauges.
    pub fn stats(&self) -> CacheStats {
        let Self { parts } = self;
        CacheStats {
            memory_values: parts.memory.len(),
            memory_bytes: parts.memory.bytes(),
            store: parts.store.stats(),
            ..parts.counters.stats()
        }
    }

    /// Makes everything stored so far durable, also against a power failure.
    ///
    /// # Errors
    /// [`Error::Store`] when something could not be written.
    pub async fn sync(&self) -> Result<()> {
        Ok(self.parts.store.sync().await?)
    }

    /// Syncs and closes the cache. Later calls fail with [`Error::Store`], except [`Cache::get_or_fetch`], which then
    /// fetches.
    ///
    /// # Errors
    /// As [`Cache::sync`]. The cache is closed all the same.
    pub async fn close(&self) -> Result<()> {
        Ok(self.parts.store.close().await?)
    }

    pub(crate) fn store(&self) -> &Store {
        &self.parts.store
    }

    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.parts.clock.since_epoch().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the present moment, for [`Cache::store_value`].
    pub(crate) fn write_start(&self, key: &[u8]) -> WriteStart {
        WriteStart { version: self.parts.memory.version(key), generation: self.parts.removals.generation() }
    }

    /// As [`Cache::get_or_fetch`], with options for a new value. A stored value that `accepts` refuses is like none.
    pub(crate) async fn get_or_fetch_with<F, Fut, V, E>(
        &self,
        key: &[u8],
        options: ValueOptions,
        accepts: impl Fn(&[u8]) -> bool,
        fetch: F,
    ) -> Result<Bytes>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = std::result::Result<V, E>>,
        V: Into<Bytes>,
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        let key = checked(key)?;
        let mut stale = match self.usable(key, &accepts).await {
            Some((bytes, Freshness::Fresh)) => return Ok(bytes),
            usable => usable.map(|(bytes, _)| bytes),
        };
        self.note(CacheEvent::Miss { key });
        let mut lead = loop {
            match self.parts.fetches.join(key) {
                FetchRole::Leader(lead) => break lead,
                FetchRole::Follower(_) if let Some(bytes) = stale => {
                    self.note(CacheEvent::StaleHit { key });
                    return Ok(bytes);
                }
                FetchRole::Follower(outcome) => {
                    self.parts.counters.shared_fetches.fetch_add(1, Relaxed);
                    if let Ok(outcome) = outcome.await {
                        return outcome.map_err(Error::Fetch);
                    }
                }
            }
        };
        // The fetch of another caller may have ended between the lookup above and the join.
        let start = self.write_start(key);
        match self.usable(key, &accepts).await {
            Some((bytes, Freshness::Fresh)) => {
                lead.publish(Ok(bytes.clone()));
                return Ok(bytes);
            }
            usable => stale = usable.map(|(bytes, _)| bytes),
        }
        match fetch().await {
            Ok(value) => {
                let bytes = value.into();
                self.note(CacheEvent::Fetched { key, len_bytes: bytes.len() as u64 });
                lead.publish(Ok(bytes.clone()));
                self.store_fetched(&lead, key, options, bytes.clone(), start).await;
                Ok(bytes)
            }
            Err(error) => {
                self.note(CacheEvent::FetchFailed { key });
                let error: Arc<dyn error::Error + Send + Sync> = Arc::from(error.into());
                // Those that wait have no stale value of their own: with one, they would not have waited.
                lead.publish(stale.clone().ok_or_else(|| Arc::clone(&error)));
                let bytes = stale.ok_or(Error::Fetch(error))?;
                self.note(CacheEvent::StaleHit { key });
                Ok(bytes)
            }
        }
    }

    /// Stores a value that was fetched since `start`. The lead is held meanwhile, so that newcomers get the value.
    async fn store_fetched(
        &self,
        _lead: &FetchLead<'_>,
        key: &[u8],
        options: ValueOptions,
        bytes: Bytes,
        start: WriteStart,
    ) {
        if !self.parts.store.admits(&value_key(key), bytes.len() as u64) {
            return self.note(CacheEvent::NotAdmitted { key });
        }
        let mut writer = ValueWriter::new(self, key, options);
        let written = match writer.write(bytes).await {
            Ok(()) => writer.finish_unless_changed(start).await,
            Err(error) => Err(error),
        };
        match written {
            Ok(true) => {}
            Ok(false) => self.note(CacheEvent::NotAdmitted { key }),
            Err(error) => self.note(CacheEvent::StoreFailed { key, error: &error }),
        }
    }

    /// Stores a value in place of an older one.
    pub(crate) async fn replace_value(&self, key: &[u8], value: NewValue) -> Result<()> {
        self.store_value(key, value, None).await.map(|_| ())
    }

    /// Stores a value, in place of an older one. With `since`, only if neither the key nor one of the tags was changed
    /// after that moment. Returns whether it did.
    pub(crate) async fn store_value(&self, key: &[u8], value: NewValue, since: Option<WriteStart>) -> Result<bool> {
        let NewValue { head, pieces } = value;
        assert!(head.chunks.is_none() || pieces.is_empty(), "a long value is in its chunks");
        let _alone = self.parts.writes.group(key).lock().await;
        if since.is_some_and(|since| self.parts.memory.version(key) != since.version) {
            return Ok(false);
        }
        let hints = Hints { expires_at: head.lifetime.expires_at_s(), ..Hints::default() };
        let mut writer = self.parts.store.insert(&value_key(key), head.encode().into(), hints)?;
        // The store covers what was begun before it is cleared: an insert that began before a `clear` of which this look
        // knows nothing yet is covered by that.
        if since.is_some() && self.parts.removals.covers(head.generation, &head.tags) {
            return Ok(false);
        }
        for piece in &pieces {
            writer.write(piece.clone())?;
        }
        let change = ChangeGuard::new(self, key);
        writer.commit().await?;
        drop(change);
        let len_bytes = head.len_bytes;
        if head.chunks.is_none() && self.parts.memory.can_keep(len_bytes) {
            // Copied: the caller's bytes may be a small part of a large buffer.
            self.parts.memory.replace(key, MemoryValue { head, bytes: pieces.concat().into() });
        }
        self.note(CacheEvent::Stored { key, len_bytes });
        Ok(true)
    }

    /// Returns the bytes of a fresh or stale value. A failure of the store is counted, and is like a miss.
    async fn usable(&self, key: &[u8], accepts: &impl Fn(&[u8]) -> bool) -> Option<(Bytes, Freshness)> {
        let found = async {
            let Some(found) = self.find(key).await? else { return Ok(None) };
            let bytes = found.bytes().await?.filter(|bytes| accepts(bytes));
            Ok(bytes.map(|bytes| (found, bytes)))
        };
        match found.await {
            Ok(found) => {
                let (found, bytes) = found?;
                if found.freshness == Freshness::Fresh {
                    self.note_hit(key, &found);
                }
                Some((bytes, found.freshness))
            }
            Err(error) => {
                self.note(CacheEvent::StoreFailed { key, error: &error });
                None
            }
        }
    }

    async fn find(&self, key: &[u8]) -> Result<Option<FoundValue>> {
        let now_ms = self.now_ms();
        if let Some(kept) = self.parts.memory.get(key)
            && let Some(freshness) = self.freshness(&kept.head, now_ms)
        {
            self.parts.store.touch(&value_key(key));
            let body = ValueBody::Memory(kept.bytes.clone());
            let value = Value::new(body, kept.head.len_bytes, kept.head.lifetime, now_ms);
            return Ok(Some(FoundValue { value, freshness, is_in_memory: true }));
        }
        let version = self.parts.memory.version(key);
        let Some((reader, head)) = self.read_entry(key).await? else { return Ok(None) };
        let Some(freshness) = self.freshness(&head, now_ms) else { return Ok(None) };
        let (len_bytes, lifetime) = (head.len_bytes, head.lifetime);
        let body = match head.chunks {
            Some(id) => ValueBody::Chunks(Arc::new(ChunkedBody::new(&self.parts.store, key, id, len_bytes))),
            None if self.parts.memory.can_keep(len_bytes) => {
                let Some(bytes) = reader.read(0..len_bytes).await? else { return Ok(None) };
                self.parts.memory.keep(key, MemoryValue { head, bytes: bytes.clone() }, version);
                ValueBody::Memory(bytes)
            }
            None => ValueBody::Entry(reader),
        };
        let value = Value::new(body, len_bytes, lifetime, now_ms);
        Ok(Some(FoundValue { value, freshness, is_in_memory: false }))
    }

    /// Returns the head of a value that may be used.
    async fn find_head(&self, key: &[u8]) -> Result<Option<ValueHead>> {
        let found = self.read_entry(key).await?;
        Ok(found.map(|(_, head)| head).filter(|head| self.freshness(head, self.now_ms()).is_some()))
    }

    /// Reads the store's entry of a key. `None`: there is none, or it is not one of this version.
    async fn read_entry(&self, key: &[u8]) -> Result<Option<(Reader, ValueHead)>> {
        let Some(reader) = self.parts.store.get(&value_key(key)).await? else { return Ok(None) };
        let head = ValueHead::decode(&reader.head());
        let matches = |head: &ValueHead| match head.chunks {
            Some(_) => reader.is_empty() && head.len_bytes > 0,
            None => reader.len() == head.len_bytes,
        };
        Ok(head.filter(matches).map(|head| (reader, head)))
    }

    /// Returns the freshness of a value, or `None` if it is expired or removed.
    fn freshness(&self, head: &ValueHead, now_ms: u64) -> Option<Freshness> {
        let freshness = head.lifetime.at(now_ms);
        let is_usable = freshness != Freshness::Expired && !self.parts.removals.covers(head.generation, &head.tags);
        is_usable.then_some(freshness)
    }

    fn note_hit(&self, key: &[u8], found: &FoundValue) {
        self.note(match found.freshness {
            Freshness::Stale => CacheEvent::StaleHit { key },
            _ if found.is_in_memory => CacheEvent::MemoryHit { key },
            _ => CacheEvent::DiskHit { key },
        });
    }

    fn note(&self, event: CacheEvent<'_>) {
        self.parts.counters.note(event);
    }
}

impl FoundValue {
    /// Returns the bytes, or `None` if a part of them is gone.
    async fn bytes(&self) -> Result<Option<Bytes>> {
        match self.value.bytes().await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::Gone) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Marks a change of a key: before the store changes, and again when it has changed, or when the caller gave up waiting
/// for that. A lookup that read the store in between keeps nothing in memory.
struct ChangeGuard<'a> {
    cache: &'a Cache,
    key: &'a [u8],
}

impl<'a> ChangeGuard<'a> {
    fn new(cache: &'a Cache, key: &'a [u8]) -> Self {
        cache.parts.memory.forget(key);
        Self { cache, key }
    }
}

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        self.cache.parts.memory.forget(self.key);
    }
}

/// Returns the keys of all entries that hold a value.
fn stored_keys(key: &[u8], head: &ValueHead) -> Vec<Vec<u8>> {
    let chunks = head
        .chunks
        .into_iter()
        .flat_map(|id| (0..chunk_count(head.len_bytes)).map(move |number| chunk_key(key, id, number)));
    [value_key(key)].into_iter().chain(chunks).collect()
}

pub(crate) fn checked(key: &[u8]) -> Result<&[u8]> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::Invalid(format!("a key of {} bytes: at most {KEY_BYTES_MAX} are allowed", key.len())));
    }
    Ok(key)
}

/// Returns an error unless a value may have this many tags.
pub(crate) fn check_tag_count(count: usize) -> Result<()> {
    if count > TAG_COUNT_MAX {
        return Err(Error::Invalid(format!("a value with {count} tags: at most {TAG_COUNT_MAX} are allowed")));
    }
    Ok(())
}

fn not_written(error: std::io::Error) -> Error {
    let place = "the removal of a tag could not be written";
    Error::Store(larder_store::Error::io(larder_store::ErrorKind::Unavailable, place, error))
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("counters", &self.parts.counters).finish_non_exhaustive()
    }
}
