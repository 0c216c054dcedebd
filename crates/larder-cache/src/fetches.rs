//! Fetches in progress: all callers that request a key wait for the same fetch.
//!
//! Each fetch is a task of its own (`ground`), so it goes on if its callers are dropped. Its callers have the value
//! before it is stored, unless [`Fetches`] has as many bytes to store as it may. Invariants: at most one fetch of a key
//! can be joined, from its beginning until its value is stored. If its task is dropped, because its runtime ends, the
//! waiting callers start over, and one of them fetches.

use crate::Value;
use futures_channel::oneshot;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, join_all},
};
use larder_device::IgnorePoison;
use std::{
    collections::HashMap,
    error,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// Number of counters of stored values. A key belongs to the counter that its hash selects.
const STORED_COUNTS: usize = 256;

/// The error of a fetch, shared by all its callers.
pub(crate) type FetchError = Arc<dyn error::Error + Send + Sync>;

/// The result of a fetch, shared by all its callers.
pub(crate) type FetchOutcome = Result<Value, FetchError>;

/// A future that waits for the outcome of a fetch. It ends with an error if the fetch's task is dropped.
pub(crate) type FetchWait = Shared<oneshot::Receiver<FetchOutcome>>;

/// A future that stores a fetched value. Every task that awaits it also drives it, so it needs no task of its own.
pub(crate) type Storing = Shared<BoxFuture<'static, ()>>;

/// The fetches in progress of one cache, and the fetched values that are being stored.
pub(crate) struct Fetches {
    running: Mutex<RunningFetches>,
    /// Number of values that are being stored. While it is 0, lookups need no lock.
    storing_count: AtomicUsize,
    /// Counts of the values that were stored, by the hash of their key. If the count of a key has changed since a
    /// lookup found nothing, the lookup is worth repeating.
    ///
    /// A single count for all keys would make a busy cache repeat the lookups of idle keys.
    stored_counts: [AtomicU64; STORED_COUNTS],
    hasher: RandomState,
    /// Limit for the bytes of values that their callers have but the store does not. Beyond it, a fetched value is
    /// stored before its callers get it.
    storing_bytes_max: u64,
}

#[derive(Default)]
struct RunningFetches {
    by_key: HashMap<Box<[u8]>, RunningFetch>,
    /// Fetched values that are being stored, by the number of the fetch that brought them.
    storing: HashMap<u64, StoringValue>,
    storing_bytes: u64,
    /// Number of the fetch that began last. Numbers are given in ascending order.
    last_number: u64,
}

struct RunningFetch {
    outcome: FetchWait,
    number: u64,
}

/// A fetched value that is being stored.
#[derive(Clone)]
pub(crate) struct StoringValue {
    pub(crate) value: Value,
    pub(crate) storing: Storing,
    /// Number of bytes of the value that had still to be stored when the value was published.
    len_bytes: u64,
}

/// The role of a caller in a fetch that it has joined or begun.
pub(crate) enum FetchRole {
    /// The caller carries out the fetch, and also waits for its outcome.
    Leader(FetchLead, FetchWait),
    /// Another caller carries out the fetch, and this one only waits for its outcome.
    Follower(FetchWait),
}

/// The right to fetch a key, and the duty to report the outcome. While it exists, other callers join the fetch instead
/// of beginning another.
pub(crate) struct FetchLead {
    fetches: Arc<Fetches>,
    key: Box<[u8]>,
    number: u64,
    outcome: Option<oneshot::Sender<FetchOutcome>>,
}

impl Fetches {
    pub(crate) fn new(storing_bytes_max: u64) -> Self {
        Self {
            running: Mutex::default(),
            storing_count: AtomicUsize::new(0),
            stored_counts: [const { AtomicU64::new(0) }; STORED_COUNTS],
            hasher: RandomState::new(),
            storing_bytes_max,
        }
    }

    /// Joins the fetch of `key` that is in progress, or begins one.
    pub(crate) fn join(self: &Arc<Self>, key: &[u8]) -> FetchRole {
        let mut running = self.lock();
        if let Some(fetch) = running.by_key.get(key) {
            return FetchRole::Follower(fetch.outcome.clone());
        }
        running.last_number += 1;
        let number = running.last_number;
        let (sender, receiver) = oneshot::channel();
        let outcome = receiver.shared();
        running.by_key.insert(key.into(), RunningFetch { outcome: outcome.clone(), number });
        let lead = FetchLead { fetches: Arc::clone(self), key: key.into(), number, outcome: Some(sender) };
        FetchRole::Leader(lead, outcome)
    }

    /// Returns whether a fetch of `key` is in progress that callers can join.
    #[cfg(test)]
    pub(crate) fn is_running(&self, key: &[u8]) -> bool {
        self.lock().by_key.contains_key(key)
    }

    /// Prevents further callers from joining the fetch of `key` in progress, because its value will be outdated.
    pub(crate) fn detach(&self, key: &[u8]) {
        self.lock().by_key.remove(key);
    }

    /// Prevents further callers from joining any fetch that is in progress now.
    pub(crate) fn detach_all(&self) {
        self.lock().by_key.clear();
    }

    /// Returns how many values were stored whose key has the same counter as `key`. The count changes when `key` gets a
    /// value, but also when a few other keys do.
    pub(crate) fn stored_count(&self, key: &[u8]) -> u64 {
        self.stored_counter(key).load(Ordering::Acquire)
    }

    fn stored_counter(&self, key: &[u8]) -> &AtomicU64 {
        &self.stored_counts[self.hasher.hash_one(key) as usize % STORED_COUNTS]
    }

    /// Returns the value of `key` while it is being stored. The fetch may already have returned this value to its
    /// callers.
    pub(crate) fn storing(&self, key: &[u8]) -> Option<StoringValue> {
        if self.storing_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let running = self.lock();
        running.storing.get(&running.by_key.get(key)?.number).cloned()
    }

    /// Removes the fetch with this number, and its value, from the tables. Does nothing if they were removed before.
    fn end(&self, key: &[u8], number: u64) {
        let mut running = self.lock();
        let stored = running.storing.remove(&number);
        self.storing_count.store(running.storing.len(), Ordering::Release);
        running.storing_bytes -= stored.as_ref().map_or(0, |value| value.len_bytes);
        if running.by_key.get(key).is_some_and(|fetch| fetch.number == number) {
            running.by_key.remove(key);
        }
        drop(running);
        // It may have the last clone of the cache.
        drop(stored);
    }

    /// Waits until all values that are being stored now are stored.
    ///
    /// Also drives this storing, because the runtimes of the fetches may stand still.
    pub(crate) async fn stored(&self) {
        let storing: Vec<Storing> = self.lock().storing.values().map(|value| value.storing.clone()).collect();
        join_all(storing).await;
    }

    fn lock(&self) -> MutexGuard<'_, RunningFetches> {
        self.running.lock().ignore_poison()
    }
}

impl FetchLead {
    /// Passes the value to all callers that wait, and to those that join the fetch until the value is stored. Returns
    /// once it is stored. `store` stores the last `len_bytes` of the value.
    pub(crate) async fn publish(mut self, value: Value, store: BoxFuture<'static, ()>, len_bytes: u64) {
        let fetches = Arc::clone(&self.fetches);
        let key = self.key.clone();
        let number = self.number;
        let store = async move {
            store.await;
            // Before later callers can begin another fetch.
            fetches.stored_counter(&key).fetch_add(1, Ordering::Release);
            fetches.end(&key, number);
        };
        let storing = store.boxed().shared();
        let is_full = {
            let mut running = self.fetches.lock();
            let before = running.storing_bytes;
            running.storing_bytes += len_bytes;
            let stored = StoringValue { value: value.clone(), storing: storing.clone(), len_bytes };
            running.storing.insert(self.number, stored);
            self.fetches.storing_count.store(running.storing.len(), Ordering::Release);
            before >= self.fetches.storing_bytes_max
        };
        if is_full {
            storing.clone().await;
        }
        self.tell(Ok(value));
        storing.await;
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Passes an error to all callers that wait for the fetch. A later caller begins another fetch.
    pub(crate) fn fail(mut self, error: FetchError) {
        self.fetches.end(&self.key, self.number);
        self.tell(Err(error));
    }

    /// Passes the outcome to all callers that wait for the fetch.
    pub(crate) fn tell(&mut self, outcome: FetchOutcome) {
        let sender = self.outcome.take().expect("a fetch has one outcome");
        // Sending fails only if no caller waits.
        let _ = sender.send(outcome);
    }
}

impl Drop for FetchLead {
    fn drop(&mut self) {
        self.fetches.end(&self.key, self.number);
    }
}
