//! Returns a value, or fetches it: one caller fetches, and all others wait for its value or error.
//!
//! Owns: the order of lookups, of joining a fetch, and of storing its value. What a fetch does and the form in which
//! its callers get the value are the caller's choice. Invariant: a caller with a stale value does not wait for another
//! caller's fetch.

use super::{Cache, lookup::FoundValue, writing::WriteStart};
use crate::{
    CacheEvent, Error, Result, Value,
    fetches::{FetchError, FetchRole},
    head::Freshness,
    keys::value_key,
    writer::{FetchedValue, UnstoredPart},
};
use std::sync::{Arc, atomic::Ordering::Relaxed};

/// The form in which a caller gets a value.
#[derive(Clone, Copy)]
pub(super) enum ValueForm<'a> {
    /// With all its bytes in memory. A stored value whose bytes it does not accept counts as missing.
    Whole { accepts: &'a (dyn Fn(&[u8]) -> bool + Sync) },
    /// As it was found, to be read in pieces.
    Pieces,
}

impl Cache {
    /// Returns the value of `key`, or calls `fetch`, stores its value and returns it. Callers that request the key
    /// meanwhile get the same value or error.
    pub(super) async fn value_or_fetch<F, Fut>(&self, key: &[u8], form: ValueForm<'_>, fetch: F) -> Result<Value>
    where
        F: FnOnce(WriteStart) -> Fut,
        Fut: Future<Output = std::result::Result<FetchedValue, FetchError>>,
    {
        let stale = match self.usable(key, form).await {
            Some(found) if found.freshness == Freshness::Fresh => return Ok(found.value),
            found => found,
        };
        self.note(CacheEvent::Miss { key });
        let mut lead = loop {
            match self.parts.fetches.join(key) {
                FetchRole::Leader(lead) => break lead,
                FetchRole::Follower(_) if let Some(stale) = stale => {
                    self.note(CacheEvent::StaleHit { key });
                    return Ok(stale.value);
                }
                FetchRole::Follower(outcome) => {
                    self.parts.counters.shared_fetches.fetch_add(1, Relaxed);
                    let Ok(outcome) = outcome.await else { continue };
                    // A long value may be evicted before it is read.
                    match form.of(outcome.map_err(Error::Fetch)?).await {
                        Err(Error::Gone) => {}
                        value => return value,
                    }
                }
            }
        };
        // The fetch of another caller may have ended between the lookup above and the join.
        let start = self.write_start(key);
        let stale = match self.usable(key, form).await {
            Some(found) if found.freshness == Freshness::Fresh => {
                lead.publish(Ok(found.value.clone()));
                return Ok(found.value);
            }
            found => found.map(|stale| stale.value),
        };
        match fetch(start).await {
            Ok(FetchedValue { value, unstored }) => {
                lead.publish(Ok(value.clone()));
                // The lead lives until the value is stored, so that later callers get the value from it.
                self.store_fetched(key, unstored).await;
                Ok(value)
            }
            Err(error) => {
                self.note(CacheEvent::FetchFailed { key });
                // The waiting callers have no stale value, because with one they would not have waited.
                lead.publish(stale.clone().ok_or_else(|| Arc::clone(&error)));
                let stale = stale.ok_or(Error::Fetch(error))?;
                self.note(CacheEvent::StaleHit { key });
                Ok(stale)
            }
        }
    }

    /// Stores a fetched value, unless the store's policy refuses it, or the key has changed since the fetch began. A
    /// failure is counted only.
    async fn store_fetched(&self, key: &[u8], unstored: UnstoredPart) {
        let stored = match unstored {
            UnstoredPart::Whole { bytes, .. } if !self.parts.store.admits(&value_key(key), bytes.len() as u64) => {
                Ok(false)
            }
            UnstoredPart::Whole { mut writer, bytes } => match writer.write(bytes).await {
                Ok(()) => writer.finish_if_unchanged().await,
                Err(error) => Err(error),
            },
            UnstoredPart::Head { new, start } => self.store_value(key, new, Some(&start)).await,
        };
        match stored {
            Ok(true) => {}
            Ok(false) => self.note(CacheEvent::NotAdmitted { key }),
            Err(error) => self.note(CacheEvent::StoreFailed { key, error: &error }),
        }
    }

    /// Returns a fresh or stale value that the caller accepts. A failure of the store is counted, and treated as a
    /// miss.
    async fn usable(&self, key: &[u8], form: ValueForm<'_>) -> Option<FoundValue> {
        let found = async {
            match self.find(key).await? {
                Some(found) => form.of_found(found).await,
                None => Ok(None),
            }
        };
        match found.await {
            Ok(found) => {
                if let Some(fresh) = found.as_ref().filter(|found| found.freshness == Freshness::Fresh) {
                    self.note_hit(key, fresh);
                }
                found
            }
            Err(error) => {
                self.note(CacheEvent::StoreFailed { key, error: &error });
                None
            }
        }
    }
}

impl ValueForm<'_> {
    /// Returns a value in this form.
    ///
    /// # Errors
    /// As [`Value::bytes`].
    async fn of(self, value: Value) -> Result<Value> {
        match self {
            Self::Whole { .. } => {
                let bytes = value.bytes().await?;
                Ok(value.with_bytes(bytes))
            }
            Self::Pieces => Ok(value),
        }
    }

    /// Returns a found value in this form, or `None` if it is not accepted or a part of it was evicted.
    async fn of_found(self, found: FoundValue) -> Result<Option<FoundValue>> {
        let Self::Whole { accepts } = self else { return Ok(Some(found)) };
        let bytes = found.bytes().await?.filter(|bytes| accepts(bytes));
        Ok(bytes.map(|bytes| FoundValue { value: found.value.with_bytes(bytes), ..found }))
    }
}
