//! The cache: lookups, writes and removals, and how they exclude one another.
//!
//! Invariants: only one write to a key runs at a time, so memory has the same value as the store, or none. A value
//! whose fetch began before its key or one of its tags was removed is returned to the callers that waited for it, but
//! not stored.

mod fetching;
mod forgetting;
mod lookup;
mod memory_value;
mod sharing;
mod streaming;
mod writing;

use crate::{
    CacheBuilder, CacheEvent, CacheStats, EntryRequest, Error, Result, Value, ValueWriter,
    chunk_format::{chunk_key, chunks_of},
    counters::Counters,
    fetches::Fetches,
    ground::Ground,
    head::{Freshness, TAG_COUNT_MAX, ValueHead},
    keys::{KEY_BYTES_MAX, value_key},
    memory::MemoryCache,
    purges::{PurgeMode, PurgeScope, Purges},
    tags::{BegunWrites, TagHash, TagKey},
    works::ActiveKeys,
};
use bytes::Bytes;
use larder_store::{Clock, Store};
use memory_value::MemoryValue;
use std::{error, fmt, io, path::Path, sync::Arc};
use writing::ChangeGuard;
pub(crate) use writing::{NewValue, ValueOptions, WriteLocks, WriteStart};

/// A cache in memory and on disk. Cheap to clone; all clones are one cache.
///
/// The futures of its methods are `Send` if the caller's are. Dropping one of them is safe: a write or removal whose
/// future is dropped takes effect as a whole or not at all. Dropping the last clone without [`Cache::close`] is like a
/// kill of the process: the values of the last second may be missing at the next start.
///
/// ```
/// use larder_cache::Cache;
/// # let directory = tempfile::tempdir().unwrap();
/// # futures_executor::block_on(async {
///
/// let cache = Cache::builder(directory.path()).disk("32MB").open()?;
/// cache.insert("user/7", "Ada").await?;
/// cache.close().await?;
///
/// // The value survives the restart.
/// let cache = Cache::builder(directory.path()).disk("32MB").open()?;
/// assert_eq!(cache.get("user/7").await?.expect("stored"), "Ada");
/// # larder_cache::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Cache {
    parts: Arc<CacheParts>,
}

pub(crate) struct CacheParts {
    pub(crate) store: Store,
    pub(crate) memory: MemoryCache<MemoryValue>,
    pub(crate) fetches: Arc<Fetches>,
    pub(crate) ground: Ground,
    /// Removals of tags and of everything, which are recorded next to the store.
    pub(crate) purges: Arc<Purges>,
    pub(crate) tag_key: TagKey,
    pub(crate) begun: Arc<BegunWrites>,
    pub(crate) counters: Counters,
    pub(crate) clock: Clock,
    pub(crate) defaults: ValueOptions,
    /// Length of the longest value that is stored, in bytes.
    pub(crate) value_bytes_max: u64,
    pub(crate) writes: WriteLocks,
    /// The keys for which fetches or writes are in progress.
    pub(crate) works: Arc<ActiveKeys>,
    /// The state of the HTTP responses. Set when this cache is used for responses for the first time.
    #[cfg(feature = "http")]
    pub(crate) responses: std::sync::OnceLock<crate::http::library::LibraryResponses>,
}

impl Cache {
    /// Returns a builder for a cache in the directory `path`, which is created if it does not exist. The cache needs
    /// the directory for itself, and only one process at a time may open it.
    pub fn builder(path: impl AsRef<Path>) -> CacheBuilder {
        CacheBuilder::new(path.as_ref())
    }

    pub(crate) fn from_parts(parts: CacheParts) -> Self {
        Self { parts: Arc::new(parts) }
    }

    #[cfg(feature = "http")]
    pub(crate) fn parts(&self) -> &CacheParts {
        &self.parts
    }

    /// Returns the hash of a tag. Stored values have hashes instead of tags.
    pub(crate) fn hash_of_tag(&self, tag: &str) -> TagHash {
        self.parts.tag_key.hash(tag)
    }

    /// Returns the value of `key`, or calls `fetch`, stores the result and returns it.
    ///
    /// Callers that request the same key at the same time share one fetch and its result or error. The fetch goes on if
    /// its callers are dropped, for example by a time-out: later callers get its value, unless the key was written or
    /// removed meanwhile. `fetch` must not request the same key from the cache, because it would wait for itself. If
    /// `fetch` panics, the caller that began it panics.
    ///
    /// A fetch runs on the tokio runtime of the caller that begins it. Outside of tokio, all fetches run on one thread
    /// of the cache, so they must not block it.
    ///
    /// Callers get the value as soon as it is complete, while it is still being stored. They wait for the disk only if
    /// many bytes wait to be stored. [`Cache::get`], [`Cache::sync`] and [`Cache::close`] wait until the value is
    /// stored. A failure of the store is not an error here: the value is fetched.
    ///
    /// If there is a stale value ([`EntryRequest::stale_for`]), the caller that fetches waits for the fetch, and gets
    /// the stale value if the fetch fails. Other callers get the stale value at once.
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
    /// [`Error::Fetch`] when the fetch fails and there is no stale value; [`Error::Invalid`] when the key is longer
    /// than 16,366 bytes. A value that is longer than half of the disk is returned, but not stored.
    pub async fn get_or_fetch<F, Fut, V, E>(&self, key: impl AsRef<[u8]>, fetch: F) -> Result<Bytes>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = std::result::Result<V, E>> + Send + 'static,
        V: Into<Bytes>,
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        self.entry(key).get_or_fetch(fetch).await
    }

    /// Returns the value of `key`, of any length, to be read in pieces. If there is no fresh value, calls `fetch` with
    /// a writer for it. One fetch serves all callers that request the key while it runs.
    ///
    /// ```
    /// # use larder_cache::{Cache, Result};
    /// # futures_executor::block_on(async {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let cache = Cache::builder(directory.path()).disk("64MB").memory("8MB").open()?;
    /// let film = cache
    ///     .get_value_or_fetch("film", |mut writer| async {
    ///         for piece in ["first ", "second ", "third"] {
    ///             writer.write(piece).await?;
    ///         }
    ///         Result::Ok(writer)
    ///     })
    ///     .await?;
    /// assert_eq!(film.read(6..12).await?, "second");
    /// # Result::Ok(())
    /// # }).unwrap();
    /// ```
    ///
    /// Once `fetch` has returned the writer, the value is stored in the same way as by [`Cache::get_or_fetch`]. A fetch
    /// needs memory for one chunk (1 MiB).
    ///
    /// # Errors
    /// [`Error::Fetch`] when there is no stale value, and the fetch fails or its long value cannot be stored;
    /// [`Error::Invalid`] when the key is longer than 16,366 bytes.
    pub async fn get_value_or_fetch<F, Fut, E>(&self, key: impl AsRef<[u8]>, fetch: F) -> Result<Value>
    where
        F: FnOnce(ValueWriter) -> Fut,
        Fut: Future<Output = std::result::Result<ValueWriter, E>> + Send + 'static,
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        self.entry(key).get_value_or_fetch(fetch).await
    }

    /// Returns all bytes of `key`'s value. `None` if there is no fresh value.
    ///
    /// The whole value is read into memory. To read a long value piece by piece, or to use a stale one, call
    /// [`Cache::get_value`].
    ///
    /// # Errors
    /// [`Error::Store`] when the device fails or the cache is closed; [`Error::Invalid`] when the key is too long.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.get_if(key.as_ref(), |_| true).await
    }

    /// Works like [`Cache::get`]. A value for which `accepts` returns false counts as missing.
    pub(crate) async fn get_if(&self, key: &[u8], accepts: impl Fn(&[u8]) -> bool) -> Result<Option<Bytes>> {
        let key = checked(key)?;
        if let Some(found) = self.find_stored(key).await?.filter(|found| found.freshness == Freshness::Fresh)
            && let Some(bytes) = found.bytes().await?.filter(|bytes| accepts(bytes))
        {
            self.note_hit(key, &found);
            return Ok(Some(bytes));
        }
        self.note(CacheEvent::Miss { key });
        Ok(None)
    }

    /// Returns the value of `key`, to be read whole or piece by piece.
    ///
    /// A long value stays on disk until it is read. The value may be stale if it was stored with
    /// [`EntryRequest::stale_for`]; check it with [`Value::is_fresh`].
    ///
    /// ```
    /// # use larder_cache::Cache;
    /// # futures_executor::block_on(async {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let cache = Cache::builder(directory.path()).disk("32MB").memory("8MB").open()?;
    /// cache.insert("film", "a film of many bytes").await?;
    /// let film = cache.get_value("film").await?.expect("stored above");
    /// assert!(film.is_fresh() && film.len() == 20);
    /// assert_eq!(film.read(10..14).await?, "many");
    /// # larder_cache::Result::Ok(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The same as for [`Cache::get`].
    pub async fn get_value(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = checked(key.as_ref())?;
        let found = self.find_stored(key).await?;
        match &found {
            Some(found) => self.note_hit(key, found),
            None => self.note(CacheEvent::Miss { key }),
        }
        Ok(found.map(|found| found.value))
    }

    /// Stores a value, replacing an older one with its lifetime and tags. Lookups find it once this returns.
    ///
    /// If the process is killed, the values of the last second may be missing; after a power loss, those of the last
    /// five seconds. [`Cache::sync`] makes everything stored so far survive both. Bytes that are only borrowed must be
    /// copied, with [`Bytes::copy_from_slice`].
    ///
    /// # Errors
    /// [`Error::Store`] if the device fails, there is no room, or the cache is closed; [`Error::Invalid`] if the key is
    /// too long, or the value is longer than half of the disk. The older value is then unchanged.
    pub async fn insert(&self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Result<()> {
        self.entry(key).insert(value).await
    }

    /// Returns a request for `key`. Use it to set the lifetime or the tags of the value that it stores.
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

    /// Removes the value of `key`. Once this returns, no lookup finds that value, nor a value whose fetch began
    /// earlier. From then on, the removal survives a kill of the process. It survives a power loss after the next sync,
    /// at most five seconds later.
    ///
    /// # Errors
    /// [`Error::Store`] when the removal could not be written: the value is gone, but may come back if the process is
    /// killed now.
    pub async fn remove(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = checked(key.as_ref())?;
        let _alone = self.parts.writes.group(key).lock().await;
        let change = ChangeGuard::new(self, key);
        let removed = self.parts.store.remove(&value_key(key)).await;
        drop(change);
        self.detach_fetch(key);
        Ok(removed?)
    }

    /// Removes all values that were stored with `tag`, with a single write to disk for any number of values. Once this
    /// returns, no lookup finds one of these values, nor one whose fetch began earlier, not even after a power loss.
    ///
    /// The values keep their place on disk until they are evicted. After 65,536 removed tags, a thread reads the store
    /// once to remove their values, so that the tags can be forgotten. If that fails until 262,144 tags are removed,
    /// every value that was stored before the newer half of these removals counts as missing.
    ///
    /// # Errors
    /// [`Error::Store`] when the removal could not be written: the values are gone, but may come back at the next
    /// start.
    pub async fn remove_tag(&self, tag: &str) -> Result<()> {
        let removed = self.purge(PurgeScope::Tag(self.hash_of_tag(tag).name().into())).await;
        self.parts.fetches.detach_all();
        self.forget_old_tags();
        removed
    }

    /// Removes all values. Once this returns, the removal survives a power loss.
    ///
    /// # Errors
    /// The same as for [`Cache::remove_tag`].
    pub async fn clear(&self) -> Result<()> {
        let removed = self.purge(PurgeScope::All).await;
        self.parts.fetches.detach_all();
        self.parts.memory.clear();
        #[cfg(feature = "http")]
        if let Some(responses) = self.parts.responses.get() {
            responses.forget_all();
        }
        self.parts.store.clear().await?;
        removed
    }

    /// Removes all values in `scope`, and waits until the removal is recorded.
    async fn purge(&self, scope: PurgeScope) -> Result<()> {
        let purges = Arc::clone(&self.parts.purges);
        purges.begin(vec![scope], PurgeMode::Hard, self.now_ms().cast_signed());
        let saved = self.parts.ground.block(move || purges.save()).await;
        saved.and_then(|saved| saved.map_err(io::Error::other)).map_err(not_written)
    }

    /// Prevents the eviction of `key`'s value until it is removed, unpinned or expired, or the cache is closed. Pins
    /// are not stored: pin again after each start, once the cache is [ready](Self::ready).
    ///
    /// Returns `false` if there is no value, if too much is pinned already (by default a quarter of the disk), or if
    /// the store's policy cannot pin. After the value was replaced, pin the new one.
    ///
    /// # Errors
    /// The same as for [`Cache::get`].
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

    /// Allows the eviction of `key`'s value again.
    ///
    /// # Errors
    /// The same as for [`Cache::get`].
    pub async fn unpin(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = checked(key.as_ref())?;
        self.parts.store.unpin(&value_key(key));
        if let Some(head) = self.find_head(key).await? {
            stored_keys(key, &head).iter().for_each(|key| _ = self.parts.store.unpin(key));
        }
        Ok(())
    }

    /// Waits until the index of all values of earlier runs is loaded.
    ///
    /// Callers need not wait for this. Until then, a lookup that finds nothing waits until the value it could find is
    /// loaded, unless `waits_for_index` is false ([`CacheBuilder::configure_store`]). Removals also cover values that
    /// are not loaded yet.
    pub async fn ready(&self) {
        self.parts.store.ready().await;
    }

    /// Returns the length in bytes of the longest value that is stored: half of the size on disk.
    pub fn value_bytes_max(&self) -> u64 {
        self.parts.value_bytes_max
    }

    /// Returns counters since the cache was opened, and its present size.
    pub fn stats(&self) -> CacheStats {
        let Self { parts } = self;
        CacheStats {
            memory_values: parts.memory.len(),
            memory_bytes: parts.memory.bytes(),
            store: parts.store.stats(),
            ..parts.counters.stats()
        }
    }

    /// Makes everything stored so far survive a power loss, including all values that callers of
    /// [`Cache::get_or_fetch`] and [`Cache::get_value_or_fetch`] already have.
    ///
    /// # Errors
    /// [`Error::Store`] when something could not be written.
    pub async fn sync(&self) -> Result<()> {
        self.stored().await;
        Ok(self.parts.store.sync().await?)
    }

    /// Syncs and closes the cache, and releases its directory for another process. Later calls fail with
    /// [`Error::Store`], except for [`Cache::get_or_fetch`], which then fetches every time.
    ///
    /// The calling thread is blocked for the moment in which the store's threads end.
    ///
    /// # Errors
    /// The same as for [`Cache::sync`]. The cache is closed even if there is an error.
    pub async fn close(&self) -> Result<()> {
        self.stored().await;
        // Not left to the release below, which would block the thread for as long as it takes.
        let closed = self.parts.store.close().await;
        self.parts.store.release().and(closed)?;
        Ok(())
    }

    /// Waits until all values and responses are stored that callers or clients already have.
    async fn stored(&self) {
        self.parts.fetches.stored().await;
        #[cfg(feature = "http")]
        if let Some(responses) = self.parts.responses.get() {
            responses.stored().await;
        }
    }

    /// Returns the underlying store, for larder-torture, which runs the store's maintenance itself.
    #[doc(hidden)]
    pub fn store(&self) -> &Store {
        &self.parts.store
    }

    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.parts.clock.since_epoch().as_millis()).unwrap_or(u64::MAX)
    }

    fn note(&self, event: CacheEvent<'_>) {
        self.parts.counters.note(event);
    }
}

/// Returns the keys of all entries of the store that make up a value.
fn stored_keys(key: &[u8], head: &ValueHead) -> Vec<Vec<u8>> {
    let mut keys = vec![value_key(key)];
    if let Some(representation) = head.chunks {
        let chunks = chunks_of(&(0..head.len_bytes)).map(|number| chunk_key(&keys[0], representation, number));
        keys.extend(chunks.collect::<Vec<_>>());
    }
    keys
}

pub(crate) fn checked(key: &[u8]) -> Result<&[u8]> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::Invalid(format!("a key of {} bytes: at most {KEY_BYTES_MAX} are allowed", key.len())));
    }
    Ok(key)
}

/// Returns an error if a value may not have `count` tags, because that is too many.
pub(crate) fn check_tag_count(count: usize) -> Result<()> {
    if count > TAG_COUNT_MAX {
        return Err(Error::Invalid(format!("a value with {count} tags: at most {TAG_COUNT_MAX} are allowed")));
    }
    Ok(())
}

fn not_written(error: io::Error) -> Error {
    let place = "the removal of a tag could not be written";
    Error::Store(larder_store::Error::io(larder_store::ErrorKind::Unavailable, place, error))
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("counters", &self.parts.counters).finish_non_exhaustive()
    }
}
