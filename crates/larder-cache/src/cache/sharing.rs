//! Returns a value, or fetches it: one caller begins the fetch, and all wait for its value or error.
//!
//! Owns: the order of lookups, of joining a fetch, and of storing its value. What a fetch does and the form in which
//! its callers get the value are the caller's choice. Invariants: a caller with a stale value does not wait for another
//! caller's fetch. A fetch that has begun goes on without its callers.

use super::{Cache, lookup::FoundValue, writing::WriteStart};
use crate::{
    CacheEvent, Error, Result, Value,
    fetches::{FetchError, FetchLead, FetchRole},
    head::Freshness,
    keys::value_key,
    writer::{FetchedValue, UnstoredPart},
};
use futures_channel::oneshot;
use futures_util::FutureExt;
use std::{
    io,
    panic::{AssertUnwindSafe, resume_unwind},
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// The form in which a caller gets a value.
#[derive(Clone, Copy)]
pub(super) enum ValueForm<'a> {
    /// As a whole in memory. A stored value counts as missing if `accepts` returns false for its bytes.
    Whole { accepts: &'a (dyn Fn(&[u8]) -> bool + Sync) },
    /// As it was found, on disk or in memory, to be read in pieces.
    Pieces,
}

impl Cache {
    /// Returns the fresh value of `key`. If there is none, calls `fetch`, stores the fetched value and returns it.
    /// Other callers that request the key during the fetch get the same value or error.
    pub(super) async fn value_or_fetch<F, Fut>(&self, key: &[u8], form: ValueForm<'_>, fetch: F) -> Result<Value>
    where
        F: FnOnce(WriteStart) -> Fut,
        Fut: Future<Output = std::result::Result<FetchedValue, FetchError>> + Send + 'static,
    {
        let mut is_noted = false;
        let (lead, outcome, stale) = loop {
            let stored_before = self.parts.fetches.stored_count(key);
            let mut stale = match self.usable(key, form).await {
                Some(found) if found.freshness == Freshness::Fresh => return Ok(found.value),
                found => found.map(|stale| stale.value),
            };
            match self.parts.fetches.storing(key) {
                None => {}
                // The fetch is joined below.
                Some(stored) if stored.value.is_fresh_at(self.now_ms()) => stale = None,
                // It is looked up like any stale value.
                Some(stored) => {
                    stored.storing.await;
                    continue;
                }
            }
            if !std::mem::replace(&mut is_noted, true) {
                self.note(CacheEvent::Miss { key });
            }
            match self.parts.fetches.join(key) {
                // Nothing is awaited from here on until the fetch is a task: a caller that is not polled holds up none.
                FetchRole::Leader(lead, outcome) if self.parts.fetches.stored_count(key) == stored_before => {
                    break (lead, outcome, stale);
                }
                // The fetch of another caller has ended since the lookup above.
                FetchRole::Leader(..) => {}
                FetchRole::Follower(_) if let Some(stale) = stale => {
                    self.note(CacheEvent::StaleHit { key });
                    return Ok(stale);
                }
                FetchRole::Follower(outcome) => {
                    self.parts.counters.shared_fetches.fetch_add(1, Relaxed);
                    let Ok(outcome) = outcome.await else { continue };
                    match form.of(outcome.map_err(Error::Fetch)?).await {
                        // A part of a long value was evicted before the rest is stored. Until then, this caller would
                        // join the same fetch again at once.
                        Err(Error::Gone) if let Some(stored) = self.parts.fetches.storing(key) => stored.storing.await,
                        Err(Error::Gone) => {}
                        value => return value,
                    }
                }
            }
        };
        let start = self.write_start(key);
        let (tell_panic, panic) = oneshot::channel();
        let fetched = AssertUnwindSafe(fetch(start)).catch_unwind();
        let cache = self.clone();
        let task = async move {
            match fetched.await {
                Ok(fetched) => cache.end_fetch(lead, fetched).await,
                // Heard unless the caller is gone. The others begin anew when the lead is dropped.
                Err(panic) => _ = tell_panic.send(panic),
            }
        };
        self.parts.ground.spawn(task).map_err(|error| Error::Fetch(Arc::new(error)))?;
        match outcome.await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                let stale = stale.ok_or(Error::Fetch(error))?;
                self.note(CacheEvent::StaleHit { key });
                Ok(stale)
            }
            Err(oneshot::Canceled) => match panic.await {
                Ok(panic) => resume_unwind(panic),
                Err(oneshot::Canceled) => Err(Error::Fetch(Arc::new(io::Error::other("its runtime has ended")))),
            },
        }
    }

    /// Passes the outcome of a fetch to all waiting callers. Stores the value if there is one.
    async fn end_fetch(self, lead: FetchLead, fetched: std::result::Result<FetchedValue, FetchError>) {
        match fetched {
            Ok(FetchedValue { value, unstored }) => {
                let key: Box<[u8]> = lead.key().into();
                let len_bytes = unstored.len_bytes();
                let store = async move { self.store_fetched(&key, unstored).await };
                lead.publish(value, store.boxed(), len_bytes).await;
            }
            Err(error) => {
                self.note(CacheEvent::FetchFailed { key: lead.key() });
                // The waiting callers have no stale value, because with one they would not have waited.
                lead.fail(error);
            }
        }
    }

    /// Stores a fetched value. Does not store it if the store's policy refuses it, or if the key has changed since the
    /// fetch began. A failure is counted, but not returned.
    async fn store_fetched(&self, key: &[u8], unstored: UnstoredPart) {
        let stored = match unstored {
            UnstoredPart::Whole { bytes, .. } if !self.parts.store.admits(&value_key(key), bytes.len() as u64) => {
                Ok(false)
            }
            UnstoredPart::Whole { mut writer, bytes } => match writer.write(bytes).await {
                Ok(()) => writer.finish_fetched().await,
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

    /// Returns the fresh or stale value of `key` if the caller accepts it. If the store fails, counts the failure and
    /// returns `None`.
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
    /// Returns a value in the form that the caller wants.
    ///
    /// # Errors
    /// The same as for [`Value::bytes`].
    async fn of(self, value: Value) -> Result<Value> {
        match self {
            Self::Whole { .. } => {
                let bytes = value.bytes().await?;
                Ok(value.with_bytes(bytes))
            }
            Self::Pieces => Ok(value),
        }
    }

    /// Returns a found value in the form that the caller wants. `None` if the caller does not accept it, or if a part
    /// of it was evicted.
    async fn of_found(self, found: FoundValue) -> Result<Option<FoundValue>> {
        let Self::Whole { accepts } = self else { return Ok(Some(found)) };
        let bytes = found.bytes().await?.filter(|bytes| accepts(bytes));
        Ok(bytes.map(|bytes| FoundValue { value: found.value.with_bytes(bytes), ..found }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures_util::future::join_all;
    use larder_device::block_on;
    use std::{
        convert::Infallible,
        pin::Pin,
        task::{Context, Waker},
        time::{Duration, Instant},
    };

    fn is_waiting<F: Future + Unpin>(mut future: F) -> bool {
        Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    fn open_cache() -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let cache = Cache::builder(directory.path()).disk("64MB").memory("8MB").open().expect("a new cache");
        block_on(cache.ready());
        (directory, cache)
    }

    async fn fetched(len: usize) -> std::result::Result<Bytes, Infallible> {
        Ok(vec![7; len].into())
    }

    /// Guards against callers that wait for the disk although their value was fetched.
    #[test]
    fn caller_gets_its_value_before_it_is_stored() {
        let (_directory, cache) = open_cache();
        block_on(async {
            let disk = cache.parts.writes.group(b"key").lock().await;
            assert_eq!(cache.get_or_fetch("key", || fetched(3)).await.unwrap().len(), 3);
            assert_eq!(cache.get_or_fetch("key", || fetched(9)).await.unwrap().len(), 3, "later callers get it, too");
            let mut lookup = Box::pin(cache.get("key"));
            assert!(is_waiting(lookup.as_mut()), "it is not stored yet");
            let mut close = Box::pin(cache.close());
            assert!(is_waiting(close.as_mut()), "and would be lost");
            drop(close);
            drop(disk);
            assert_eq!(lookup.await.unwrap().unwrap().len(), 3);
        });
    }

    /// Guards against callers that wait for ever for a fetch because its first caller is no longer polled.
    #[test]
    fn caller_that_is_not_polled_holds_up_nobody() {
        let (_directory, cache) = open_cache();
        block_on(async {
            // An expired value of a length that stays on disk: each lookup reads the device.
            let old = cache.entry("key").fresh_for(Duration::ZERO);
            old.insert(vec![1; 900_000]).await.unwrap();
            cache.sync().await.unwrap();
        });
        let mut leader = Box::pin(cache.get_or_fetch("key", || fetched(3)));
        let deadline = Instant::now() + Duration::from_secs(20);
        // Up to the first moment at which others wait for its fetch.
        while !cache.parts.fetches.is_running(b"key") {
            assert!(is_waiting(leader.as_mut()) && Instant::now() < deadline, "it fetches");
        }
        let mut follower = Box::pin(cache.get_or_fetch("key", || fetched(9)));
        while is_waiting(follower.as_mut()) {
            assert!(Instant::now() < deadline, "it waits for a caller that is not polled");
        }
        drop(leader);
    }

    /// Guards against unlimited memory if values are fetched faster than the disk stores them.
    #[test]
    fn callers_wait_for_the_disk_when_much_is_to_be_stored() {
        const CALLERS: u64 = 100;
        let (_directory, cache) = open_cache();
        let keys: Vec<String> = (0..CALLERS).map(|number| format!("key {number}")).collect();
        // Keys may share a lock.
        let disk: Vec<_> = keys.iter().filter_map(|key| cache.parts.writes.group(key.as_bytes()).try_lock()).collect();
        let calls = keys.iter().map(|key| Box::pin(cache.get_or_fetch(key, || fetched(100_000))));
        let mut calls: Vec<_> = calls.collect();
        let mut served_count = 0;
        let deadline = Instant::now() + Duration::from_secs(20);
        while served_count < 20 || cache.stats().fetches < CALLERS {
            calls.retain_mut(|call| is_waiting(call.as_mut()));
            served_count = CALLERS - calls.len() as u64;
            assert!(Instant::now() < deadline, "{served_count} of {CALLERS}");
        }
        assert!(served_count < 30, "2 MB of values wait: {served_count} of 100 kB");
        drop(disk);
        block_on(join_all(calls)).into_iter().for_each(|value| assert_eq!(value.unwrap().len(), 100_000));
    }
}
