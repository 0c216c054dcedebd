//! Returns a value, fetching it if it is missing: one fetch for all callers, and stale values while it runs.

use super::{
    Cache, checked,
    writing::{ValueOptions, WriteStart},
};
use crate::{
    CacheEvent, Error, Result, Value, fetches::FetchRole, head::Freshness, keys::value_key, value::ValueBody,
    writer::ValueWriter,
};
use bytes::Bytes;
use std::{
    error,
    sync::{Arc, atomic::Ordering::Relaxed},
};

impl Cache {
    /// As [`Cache::get_or_fetch`], with options for a new value. A stored value for which `accepts` returns false
    /// counts as missing.
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
                    let Ok(outcome) = outcome.await else { continue };
                    // A long value may be evicted before it is read.
                    match outcome.map_err(Error::Fetch)?.bytes().await {
                        Err(Error::Gone) => {}
                        bytes => return bytes,
                    }
                }
            }
        };
        // The fetch of another caller may have ended between the lookup above and the join.
        let start = self.write_start();
        match self.usable(key, &accepts).await {
            Some((bytes, Freshness::Fresh)) => {
                lead.publish(Ok(self.value_in_memory(&options, &bytes)));
                return Ok(bytes);
            }
            usable => stale = usable.map(|(bytes, _)| bytes),
        }
        match fetch().await {
            Ok(value) => {
                let bytes = value.into();
                self.note(CacheEvent::Fetched { key, len_bytes: bytes.len() as u64 });
                lead.publish(Ok(self.value_in_memory(&options, &bytes)));
                // The lead lives until the value is stored, so that later callers get the value from it.
                let writer = ValueWriter::new(self, key, options);
                self.store_fetched(key, writer, bytes.clone(), start).await;
                Ok(bytes)
            }
            Err(error) => {
                self.note(CacheEvent::FetchFailed { key });
                let error: Arc<dyn error::Error + Send + Sync> = Arc::from(error.into());
                // The waiting callers have no stale value, because with one they would not have waited.
                let published = stale.as_ref().map(|bytes| self.value_in_memory(&options, bytes));
                lead.publish(published.ok_or_else(|| Arc::clone(&error)));
                let bytes = stale.ok_or(Error::Fetch(error))?;
                self.note(CacheEvent::StaleHit { key });
                Ok(bytes)
            }
        }
    }

    fn value_in_memory(&self, options: &ValueOptions, bytes: &Bytes) -> Value {
        Value::new(ValueBody::Memory(bytes.clone()), bytes.len() as u64, options.lifetime(self), self.now_ms())
    }

    /// Stores a value fetched since `start`, if the store's policy admits it.
    pub(super) async fn store_fetched(&self, key: &[u8], mut writer: ValueWriter, bytes: Bytes, start: WriteStart) {
        if !self.parts.store.admits(&value_key(key), bytes.len() as u64) {
            return self.note(CacheEvent::NotAdmitted { key });
        }
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

    /// Returns the bytes of a fresh or stale value. A failure of the store is counted, and treated as a miss.
    pub(super) async fn usable(&self, key: &[u8], accepts: &impl Fn(&[u8]) -> bool) -> Option<(Bytes, Freshness)> {
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
}
