//! Returns a value of any length, fetching it piece by piece if it is missing: one fetch for all callers.
//!
//! Invariant: memory for one chunk per fetch, whatever the length. The value becomes visible when it is complete.

use super::{Cache, checked, lookup::FoundValue, writing::ValueOptions};
use crate::{CacheEvent, Error, Result, Value, fetches::FetchRole, head::Freshness, writer::ValueWriter};
use std::{
    error,
    sync::{Arc, atomic::Ordering::Relaxed},
};

impl Cache {
    /// As [`Cache::open_or_fetch`], with options for a new value.
    pub(crate) async fn open_or_fetch_with<F, Fut, E>(
        &self,
        key: &[u8],
        options: ValueOptions,
        fetch: F,
    ) -> Result<Value>
    where
        F: FnOnce(ValueWriter) -> Fut,
        Fut: Future<Output = std::result::Result<ValueWriter, E>>,
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        let key = checked(key)?;
        let mut found = self.openable(key).await;
        if let Some(value) = self.fresh(key, &found) {
            return Ok(value);
        }
        self.note(CacheEvent::Miss { key });
        let mut lead = loop {
            match self.parts.fetches.join(key) {
                FetchRole::Leader(lead) => break lead,
                FetchRole::Follower(_) if let Some(stale) = found => {
                    self.note(CacheEvent::StaleHit { key });
                    return Ok(stale.value);
                }
                FetchRole::Follower(outcome) => {
                    self.parts.counters.shared_fetches.fetch_add(1, Relaxed);
                    if let Ok(outcome) = outcome.await {
                        return outcome.map_err(Error::Fetch);
                    }
                }
            }
        };
        let writer = ValueWriter::new(self, key, options);
        // The fetch of another caller may have ended between the lookup above and the join.
        found = self.openable(key).await;
        if let Some(value) = self.fresh(key, &found) {
            lead.publish(Ok(value.clone()));
            return Ok(value);
        }
        match self.fetched(key, fetch(writer).await).await {
            Ok(value) => {
                lead.publish(Ok(value.clone()));
                Ok(value)
            }
            Err(error) => {
                self.note(CacheEvent::FetchFailed { key });
                // The waiting callers have no stale value, because with one they would not have waited.
                let stale = found.map(|stale| stale.value);
                lead.publish(stale.clone().ok_or_else(|| Arc::clone(&error)));
                let stale = stale.ok_or(Error::Fetch(error))?;
                self.note(CacheEvent::StaleHit { key });
                Ok(stale)
            }
        }
    }

    /// Returns the value that a fetch wrote.
    async fn fetched<E>(
        &self,
        key: &[u8],
        written: std::result::Result<ValueWriter, E>,
    ) -> std::result::Result<Value, Arc<dyn error::Error + Send + Sync>>
    where
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        let writer = written.map_err(|error| Arc::from(error.into()))?;
        self.note(CacheEvent::Fetched { key, len_bytes: writer.len() });
        writer.finish_fetched(key).await.map_err(|error| Arc::new(error) as _)
    }

    /// Returns a found value if it is fresh.
    fn fresh(&self, key: &[u8], found: &Option<FoundValue>) -> Option<Value> {
        let fresh = found.as_ref().filter(|found| found.freshness == Freshness::Fresh)?;
        self.note_hit(key, fresh);
        Some(fresh.value.clone())
    }

    /// Returns a fresh or stale value. A failure of the store is counted, and treated as a miss.
    async fn openable(&self, key: &[u8]) -> Option<FoundValue> {
        self.find(key).await.unwrap_or_else(|error| {
            self.note(CacheEvent::StoreFailed { key, error: &error });
            None
        })
    }
}
