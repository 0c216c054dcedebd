//! The storage: lookups, writes, purges and updates of meta data.

use crate::{
    entry::{Entry, EntryBody, meta_key},
    hit::LarderHit,
    miss::{LarderMiss, meta_writer},
};
use async_trait::async_trait;
use larder_cache::Cache;
use pingora_cache::{
    CacheKey, CacheMeta,
    eviction::CacheEntryKey,
    key::CacheHashKey,
    storage::{HitHandler, MissHandler, PurgeOutcome, PurgeTarget, PurgeType, Storage},
    trace::SpanHandle,
};
use pingora_error::{Error, ErrorType, Result};
use std::{any::Any, fmt, time::SystemTime};

/// A storage backend for pingora-cache that keeps responses in a [`Cache`].
///
/// ```
/// use larder_cache::Cache;
/// use larder_pingora::LarderStorage;
///
/// let directory = tempfile::tempdir()?;
/// let cache = Cache::builder(directory.path()).disk("64MB").memory("16MB").open()?;
/// // The tags of a response are in its field Cache-Tag, separated by commas.
/// let storage = LarderStorage::new(cache.clone()).with_tags(|_, meta| {
///     let tags = meta.headers().get("cache-tag").and_then(|tags| tags.to_str().ok());
///     tags.into_iter().flat_map(|tags| tags.split(',')).map(|tag| tag.trim().to_owned()).collect()
/// });
/// // pingora requires a storage that lives as long as the process.
/// let storage: &'static LarderStorage = Box::leak(Box::new(storage));
/// assert_eq!(storage.cache().stats().disk_hits, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LarderStorage {
    cache: Cache,
    tags: Box<dyn Fn(&CacheKey, &CacheMeta) -> Vec<String> + Send + Sync>,
}

impl LarderStorage {
    /// Creates a storage. `cache` must not be used for anything else.
    pub fn new(cache: Cache) -> Self {
        Self { cache, tags: Box::new(|_, _| Vec::new()) }
    }

    /// Sets a function that returns the tags of a response, for [`Cache::remove_tag`]. A response has at most 256 tags.
    pub fn with_tags(mut self, tags: impl Fn(&CacheKey, &CacheMeta) -> Vec<String> + Send + Sync + 'static) -> Self {
        self.tags = Box::new(tags);
        self
    }

    /// Creates a storage that lives as long as the process, as pingora requires.
    pub fn leak(cache: Cache) -> &'static Self {
        Box::leak(Box::new(Self::new(cache)))
    }

    /// Returns the cache in which responses are stored.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Finds a response. Returns `None` if any part of it is missing.
    async fn find(&self, key: &str) -> larder_cache::Result<Option<(CacheMeta, HitHandler)>> {
        let Some(entry) = Entry::read(&self.cache, key).await? else { return Ok(None) };
        let Some(meta) = entry.cache_meta() else { return Ok(None) };
        let hit = match entry.body {
            EntryBody::Inline(bytes) => LarderHit::inline(bytes),
            EntryBody::Separate { number, len_bytes } => {
                match EntryBody::find(&self.cache, key, number, len_bytes).await? {
                    Some(value) => LarderHit::separate(value),
                    None => return Ok(None),
                }
            }
        };
        Ok(Some((meta, Box::new(hit))))
    }

    /// Replaces the meta data of a response. Returns false if the response is missing, or was purged or replaced
    /// meanwhile.
    async fn change_meta(&self, key: &str, change: impl FnOnce(CacheMeta) -> CacheMeta + Send) -> Result<bool> {
        let read = async || Entry::read(&self.cache, key).await.map_err(storage_error);
        let Some(Entry { tags, .. }) = read().await? else { return Ok(false) };
        let mut writer = meta_writer(&self.cache, key, &tags)?;
        // Read again: the writer notices only what changes after its creation.
        let Some(entry) = read().await?.filter(|entry| entry.tags == tags) else { return Ok(false) };
        let Some(meta) = entry.cache_meta() else { return Ok(false) };
        let (internal, header) = change(meta).serialize()?;
        let entry = Entry { meta: (internal.into(), header.into()), ..entry };
        writer.write(entry.encode()).await.map_err(storage_error)?;
        writer.finish_if_unchanged().await.map_err(storage_error)
    }
}

#[async_trait]
impl Storage for LarderStorage {
    async fn lookup(&'static self, key: &CacheKey, _trace: &SpanHandle) -> Result<Option<(CacheMeta, HitHandler)>> {
        match self.find(&key.combined()).await {
            Ok(found) => Ok(found),
            // A failure of the cache must not become one of the proxy.
            Err(error) => {
                tracing::warn!(%error, "the cache could not be read");
                Ok(None)
            }
        }
    }

    async fn get_miss_handler(
        &'static self,
        key: &CacheKey,
        meta: &CacheMeta,
        _trace: &SpanHandle,
    ) -> Result<MissHandler> {
        let tags = (self.tags)(key, meta);
        Ok(Box::new(LarderMiss::new(&self.cache, key.combined(), tags, meta.serialize()?)?))
    }

    async fn purge(
        &'static self,
        target: PurgeTarget<'_>,
        _purge_type: PurgeType,
        _trace: &SpanHandle,
    ) -> Result<PurgeOutcome> {
        // Entries of this storage have no identity beyond their key.
        if matches!(target, PurgeTarget::Exact(CacheEntryKey::Identified { .. })) {
            return Ok(PurgeOutcome::NotFound);
        }
        let key = target.key().combined();
        let is_stored = Entry::read(&self.cache, &key).await.is_ok_and(|entry| entry.is_some());
        // Also if nothing is stored: a response that is being fetched must not become visible.
        self.cache.remove(meta_key(&key)).await.map_err(storage_error)?;
        Ok(if is_stored { PurgeOutcome::Purged(None) } else { PurgeOutcome::NotFound })
    }

    async fn expire(&'static self, target: PurgeTarget<'_>, trace: &SpanHandle) -> Result<PurgeOutcome> {
        if matches!(target, PurgeTarget::Exact(CacheEntryKey::Identified { .. })) {
            return Ok(PurgeOutcome::NotFound);
        }
        let expire = |mut meta: CacheMeta| {
            meta.expire_at(SystemTime::now());
            meta
        };
        match self.change_meta(&target.key().combined(), expire).await {
            Ok(true) => Ok(PurgeOutcome::Expired),
            // A response that could not be marked must not stay fresh.
            Ok(false) | Err(_) => self.purge(target, PurgeType::Invalidation, trace).await,
        }
    }

    async fn update_meta(&'static self, key: &CacheKey, meta: &CacheMeta, _trace: &SpanHandle) -> Result<bool> {
        let bytes = meta.serialize()?;
        let updated = CacheMeta::deserialize(&bytes.0, &bytes.1)?;
        self.change_meta(&key.combined(), |_| updated).await
    }

    fn as_any(&self) -> &(dyn Any + Send + Sync + 'static) {
        self
    }
}

pub(crate) fn storage_error(error: larder_cache::Error) -> Box<Error> {
    Error::because(ErrorType::Custom("CacheStorage"), "the cache failed", error)
}

pub(crate) fn unusable(problem: String) -> Box<Error> {
    Error::explain(ErrorType::InternalError, problem)
}

impl fmt::Debug for LarderStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LarderStorage").field("cache", &self.cache).finish_non_exhaustive()
    }
}
