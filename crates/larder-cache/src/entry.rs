//! A request for one key, with the lifetime and the tags of the value that may be stored.

use crate::{
    Cache, Result, Value, ValueWriter,
    cache::{ValueOptions, check_tag_count, checked},
};
use bytes::Bytes;
use std::{error, fmt, time::Duration};

/// A request that stores or fetches the value of one key, with a lifetime and tags, see [`Cache::entry`]. To look
/// values up only, use [`Cache::get`] and [`Cache::get_value`].
///
/// The lifetime and the tags are stored with the value. Each write replaces them, so set them in every call that may
/// store the value: a plain [`Cache::insert`] of the key sets the builder's lifetime and no tags. A request that only
/// finds a stored value does not change its lifetime and tags.
///
/// ```
/// # use larder_cache::Cache;
/// # futures_executor::block_on(async {
/// # let directory = tempfile::tempdir().unwrap();
/// # let cache = Cache::builder(directory.path()).disk("32MB").memory("8MB").open()?;
/// use std::time::Duration;
///
/// let minute = Duration::from_secs(60);
/// let weather = || cache.entry("weather/Oslo").fresh_for(minute).tag("weather");
/// weather().insert("rain").await?;
/// let found = weather().get_or_fetch(|| async { Err::<&str, _>("not needed") }).await?;
/// assert_eq!(found, "rain");
/// # larder_cache::Result::Ok(())
/// # }).unwrap();
/// ```
#[must_use = "a request does nothing until one of its methods is awaited"]
pub struct EntryRequest {
    cache: Cache,
    key: Box<[u8]>,
    options: ValueOptions,
}

impl EntryRequest {
    pub(crate) fn new(cache: &Cache, key: &[u8], options: ValueOptions) -> Self {
        Self { cache: cache.clone(), key: key.into(), options }
    }

    /// Sets how long the value is fresh by the system's clock, to the millisecond. Default: the builder's, or forever.
    pub fn fresh_for(mut self, time: Duration) -> Self {
        self.options.fresh_for = Some(time);
        self
    }

    /// Sets for how long the value may be used after it is no longer fresh: while another caller fetches a new one, or
    /// if the fetch fails. Default: the builder's, or not at all. Nothing is fetched in the background: the first
    /// caller after the value has become stale fetches a new one and waits for it.
    pub fn stale_for(mut self, time: Duration) -> Self {
        self.options.stale_for = time;
        self
    }

    /// Adds a tag, of any length, for [`Cache::remove_tag`]. A value has at most 256 tags.
    pub fn tag(mut self, tag: &str) -> Self {
        self.options.tags.push(self.cache.hash_of_tag(tag));
        self
    }

    /// Works like [`Cache::get_or_fetch`]. A fetched value is stored with this request's lifetime and tags.
    ///
    /// # Errors
    /// The same as for [`Cache::get_or_fetch`].
    pub async fn get_or_fetch<F, Fut, V, E>(self, fetch: F) -> Result<Bytes>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = std::result::Result<V, E>> + Send + 'static,
        V: Into<Bytes>,
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        self.get_or_fetch_if(|_| true, fetch).await
    }

    /// Works like [`EntryRequest::get_or_fetch`]. A stored value for which `accepts` returns false counts as missing.
    pub(crate) async fn get_or_fetch_if<F, Fut, V, E>(
        self,
        accepts: impl Fn(&[u8]) -> bool + Sync,
        fetch: F,
    ) -> Result<Bytes>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = std::result::Result<V, E>> + Send + 'static,
        V: Into<Bytes>,
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        check_tag_count(self.options.tags.len())?;
        self.cache.get_or_fetch_with(&self.key, self.options, accepts, fetch).await
    }

    /// Works like [`Cache::get_value_or_fetch`]. A fetched value is stored with this request's lifetime and tags.
    ///
    /// # Errors
    /// The same as for [`Cache::get_value_or_fetch`].
    pub async fn get_value_or_fetch<F, Fut, E>(self, fetch: F) -> Result<Value>
    where
        F: FnOnce(ValueWriter) -> Fut,
        Fut: Future<Output = std::result::Result<ValueWriter, E>> + Send + 'static,
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        check_tag_count(self.options.tags.len())?;
        self.cache.get_value_or_fetch_with(&self.key, self.options, fetch).await
    }

    /// Works like [`Cache::insert`], with this request's lifetime and tags.
    ///
    /// # Errors
    /// The same as for [`Cache::insert`]; also [`crate::Error::Invalid`] for more than 256 tags.
    pub async fn insert(self, value: impl Into<Bytes>) -> Result<()> {
        let mut writer = self.writer()?;
        writer.write(value).await?;
        writer.finish().await
    }

    /// Creates a writer for a value that is written in pieces.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the key is too long or there are more than 256 tags.
    pub fn writer(self) -> Result<ValueWriter> {
        checked(&self.key)?;
        check_tag_count(self.options.tags.len())?;
        Ok(ValueWriter::new(&self.cache, &self.key, self.options))
    }
}

impl fmt::Debug for EntryRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntryRequest").field("options", &self.options).finish_non_exhaustive()
    }
}
