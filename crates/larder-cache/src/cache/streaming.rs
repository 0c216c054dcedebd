//! Returns a value of any length, fetching it piece by piece if it is missing.
//!
//! Invariant: memory for one chunk per fetch, whatever the length. The value becomes visible when it is complete.

use super::{Cache, checked, sharing::ValueForm, writing::ValueOptions};
use crate::{CacheEvent, Result, Value, fetches::FetchError, writer::ValueWriter};
use std::{error, sync::Arc};

impl Cache {
    /// Works like [`Cache::get_value_or_fetch`]. A fetched value is stored with these options.
    pub(crate) async fn get_value_or_fetch_with<F, Fut, E>(
        &self,
        key: &[u8],
        options: ValueOptions,
        fetch: F,
    ) -> Result<Value>
    where
        F: FnOnce(ValueWriter) -> Fut,
        Fut: Future<Output = std::result::Result<ValueWriter, E>> + Send + 'static,
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        let key = checked(key)?;
        let cache = self.clone();
        let owned_key: Box<[u8]> = key.into();
        let fetched = |start| {
            let fetching = fetch(ValueWriter::since(start, self, options));
            async move {
                let writer = fetching.await.map_err(|error| FetchError::from(error.into()))?;
                cache.note(CacheEvent::Fetched { key: &owned_key, len_bytes: writer.len() });
                writer.into_fetched(&owned_key).await.map_err(|error| Arc::new(error) as FetchError)
            }
        };
        self.value_or_fetch(key, ValueForm::Pieces, fetched).await
    }
}
