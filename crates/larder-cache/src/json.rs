//! Values of Rust types, stored as JSON.
//!
//! With JSON, a newer program can read the values of an older one by serde's rules for missing and unknown fields.

use crate::{Cache, EntryRequest, Error, Result};
use serde::{Serialize, de::DeserializeOwned};
use std::{error, fmt, sync::Arc};

impl Cache {
    /// Works like [`Cache::get`], for a value stored as JSON. A value that cannot be parsed as a `T` counts as missing.
    ///
    /// # Errors
    /// The same as for [`Cache::get`].
    pub async fn get_as<T: DeserializeOwned>(&self, key: impl AsRef<[u8]>) -> Result<Option<T>> {
        let is_wanted = |bytes: &[u8]| serde_json::from_slice::<T>(bytes).is_ok();
        let bytes = self.get_if(key.as_ref(), is_wanted).await?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Works like [`Cache::insert`], for a value to be stored as JSON.
    ///
    /// # Errors
    /// The same as for [`Cache::insert`]; [`Error::Encode`] if serde cannot serialize the value.
    pub async fn insert_as<T: Serialize>(&self, key: impl AsRef<[u8]>, value: &T) -> Result<()> {
        self.entry(key).insert_as(value).await
    }

    /// Works like [`Cache::get_or_fetch`], for a value stored as JSON. A value that cannot be parsed as a `T` counts as
    /// missing, and is fetched and replaced.
    ///
    /// ```
    /// # use larder_cache::Cache;
    /// # futures_executor::block_on(async {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let cache = Cache::builder(directory.path()).disk("32MB").memory("8MB").open()?;
    /// let squares = || async { Ok::<Vec<u32>, std::io::Error>(vec![1, 4, 9]) };
    /// assert_eq!(cache.get_or_fetch_as("squares", squares).await?, [1, 4, 9]);
    /// assert_eq!(cache.get_as("squares").await?, Some(vec![1_u32, 4, 9]));
    /// # larder_cache::Result::Ok(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The same as for [`Cache::get_or_fetch`]; [`Error::Encode`] if serde cannot serialize or parse the value.
    pub async fn get_or_fetch_as<T, F, Fut, E>(&self, key: impl AsRef<[u8]>, fetch: F) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = std::result::Result<T, E>> + Send + 'static,
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        self.entry(key).get_or_fetch_as(fetch).await
    }
}

impl EntryRequest {
    /// Works like [`Cache::insert_as`], with this request's lifetime and tags.
    ///
    /// # Errors
    /// The same as for [`Cache::insert_as`].
    pub async fn insert_as<T: Serialize>(self, value: &T) -> Result<()> {
        let bytes = serde_json::to_vec(value).map_err(encode_error)?;
        self.insert(bytes).await
    }

    /// Works like [`Cache::get_or_fetch_as`]. A fetched value is stored with this request's lifetime and tags.
    ///
    /// # Errors
    /// The same as for [`Cache::get_or_fetch_as`].
    pub async fn get_or_fetch_as<T, F, Fut, E>(self, fetch: F) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = std::result::Result<T, E>> + Send + 'static,
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        let fetch_json = || {
            let fetching = fetch();
            async move {
                let value = fetching.await.map_err(Into::into)?;
                serde_json::to_vec(&value)
                    .map_err(|error| Box::<dyn error::Error + Send + Sync>::from(EncodeFailure(Arc::new(error))))
            }
        };
        let is_wanted = |bytes: &[u8]| serde_json::from_slice::<T>(bytes).is_ok();
        let bytes = self.get_or_fetch_if(is_wanted, fetch_json).await.map_err(|error| match error {
            // The waiting callers get the same error.
            Error::Fetch(inner) => match inner.downcast_ref::<EncodeFailure>() {
                Some(EncodeFailure(error)) => Error::Encode(Arc::clone(error) as _),
                None => Error::Fetch(inner),
            },
            other => other,
        })?;
        serde_json::from_slice(&bytes).map_err(encode_error)
    }
}

/// The failure to write a fetched value as JSON. It is passed through the shared fetch to all callers.
#[derive(Debug)]
struct EncodeFailure(Arc<serde_json::Error>);

impl fmt::Display for EncodeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl error::Error for EncodeFailure {}

fn encode_error(error: serde_json::Error) -> Error {
    Error::Encode(Arc::new(error))
}
