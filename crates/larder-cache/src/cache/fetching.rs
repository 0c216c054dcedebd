//! Returns the bytes of a value, fetching it if it is missing.

use super::{
    Cache, checked,
    sharing::ValueForm,
    writing::{ValueOptions, WriteStart},
};
use crate::{
    CacheEvent, Result, Value,
    fetches::FetchError,
    value::ValueBody,
    writer::{FetchedValue, UnstoredPart, ValueWriter},
};
use bytes::Bytes;
use std::error;

impl Cache {
    /// Works like [`Cache::get_or_fetch`]. A fetched value is stored with these options. A stored value for which
    /// `accepts` returns false counts as missing.
    pub(crate) async fn get_or_fetch_with<F, Fut, V, E>(
        &self,
        key: &[u8],
        options: ValueOptions,
        accepts: impl Fn(&[u8]) -> bool + Sync,
        fetch: F,
    ) -> Result<Bytes>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = std::result::Result<V, E>> + Send + 'static,
        V: Into<Bytes>,
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        let key = checked(key)?;
        let cache = self.clone();
        let fetched = |start: WriteStart| {
            let fetching = fetch();
            async move {
                let bytes: Bytes = fetching.await.map_err(|error| FetchError::from(error.into()))?.into();
                let len_bytes = bytes.len() as u64;
                cache.note(CacheEvent::Fetched { key: start.work.key(), len_bytes });
                let lifetime = options.lifetime(&cache);
                let value = Value::new(ValueBody::Memory(bytes.clone()), len_bytes, lifetime, cache.now_ms());
                let writer = ValueWriter::since(start, &cache, options);
                Ok(FetchedValue { value, unstored: UnstoredPart::Whole { writer, bytes } })
            }
        };
        self.value_or_fetch(key, ValueForm::Whole { accepts: &accepts }, fetched).await?.bytes().await
    }
}
