//! Fetches in progress: all callers that request a key wait for the same fetch.
//!
//! Invariants: at most one fetch of a key can be joined. If the caller that fetches is dropped, the waiting callers
//! start over, and one of them fetches.

use crate::Value;
use futures_channel::oneshot;
use futures_util::{FutureExt, future::Shared};
use larder_device::IgnorePoison;
use std::{
    collections::HashMap,
    error,
    sync::{Arc, Mutex, MutexGuard},
};

/// The error of a fetch, for each caller.
pub(crate) type FetchError = Arc<dyn error::Error + Send + Sync>;

/// The result of a fetch, for each caller.
pub(crate) type FetchOutcome = Result<Value, FetchError>;

/// The fetches in progress.
#[derive(Default)]
pub(crate) struct Fetches {
    running: Mutex<RunningFetches>,
}

#[derive(Default)]
struct RunningFetches {
    by_key: HashMap<Box<[u8]>, RunningFetch>,
    /// The number of the last fetch.
    last_number: u64,
}

struct RunningFetch {
    outcome: Shared<oneshot::Receiver<FetchOutcome>>,
    number: u64,
}

/// A caller's part in a fetch.
pub(crate) enum FetchRole<'a> {
    /// The caller fetches.
    Leader(FetchLead<'a>),
    /// Another caller fetches. The outcome is canceled if that caller is dropped.
    Follower(Shared<oneshot::Receiver<FetchOutcome>>),
}

/// The right to fetch a key. While it exists, other callers wait for its outcome.
pub(crate) struct FetchLead<'a> {
    fetches: &'a Fetches,
    key: Box<[u8]>,
    number: u64,
    outcome: Option<oneshot::Sender<FetchOutcome>>,
}

impl Fetches {
    /// Joins the fetch of `key`, or begins one.
    pub(crate) fn join(&self, key: &[u8]) -> FetchRole<'_> {
        let mut running = self.lock();
        if let Some(fetch) = running.by_key.get(key) {
            return FetchRole::Follower(fetch.outcome.clone());
        }
        running.last_number += 1;
        let number = running.last_number;
        let (sender, receiver) = oneshot::channel();
        running.by_key.insert(key.into(), RunningFetch { outcome: receiver.shared(), number });
        FetchRole::Leader(FetchLead { fetches: self, key: key.into(), number, outcome: Some(sender) })
    }

    /// Prevents callers from joining the present fetch of `key`, because its outcome will be outdated.
    pub(crate) fn detach(&self, key: &[u8]) {
        self.lock().by_key.remove(key);
    }

    /// Prevents callers from joining any of the present fetches.
    pub(crate) fn detach_all(&self) {
        self.lock().by_key.clear();
    }

    fn lock(&self) -> MutexGuard<'_, RunningFetches> {
        self.running.lock().ignore_poison()
    }
}

impl FetchLead<'_> {
    /// Passes the outcome to all waiting callers, and to later ones until this lead is dropped.
    pub(crate) fn publish(&mut self, outcome: FetchOutcome) {
        let sender = self.outcome.take().expect("a fetch has one outcome");
        // Sending fails only if no caller waits.
        let _ = sender.send(outcome);
    }
}

impl Drop for FetchLead<'_> {
    fn drop(&mut self) {
        let mut running = self.fetches.lock();
        if running.by_key.get(&self.key).is_some_and(|fetch| fetch.number == self.number) {
            running.by_key.remove(&self.key);
        }
    }
}
