//! Judges the entries that a store passes on because they were read along with a requested one.
//!
//! Owns: the entries passed on since they were last judged, each with the moment at which the store chose it.
//! Invariant: a neighbor is judged like the result of a lookup that began at that moment, before any later change is
//! acknowledged.

use super::{Trial, task::FoundEntry, task::Part};
use crate::content;
use larder_device::IgnorePoison;
use larder_store::{Clock, NeighborEntry, NeighborSink, Store};
use std::{
    future::Future,
    mem,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

/// An entry that the store passed on because it was read together with a requested one.
struct PassedEntry {
    key: Option<u64>,
    begun: u64,
    unix_s: u32,
    found: FoundEntry,
}

/// Entries that the store has passed on and that were not judged yet.
#[derive(Default)]
pub(super) struct PassedEntries {
    /// Present logical time of the trial.
    now: AtomicU64,
    entries: Mutex<Vec<PassedEntry>>,
}

impl PassedEntries {
    pub(super) fn set_now(&self, now: u64) {
        self.now.store(now, Ordering::Relaxed);
    }

    /// Makes `store` pass the entries that it reads together with requested ones to this list.
    pub(super) fn receive_from(self: &Arc<Self>, store: &Store, clock: &Clock) {
        let passed = Arc::clone(self);
        let clock = clock.clone();
        store.set_neighbors(Arc::new(move || passed.sink(&clock)));
    }

    fn sink(self: &Arc<Self>, clock: &Clock) -> NeighborSink {
        let passed = Arc::clone(self);
        let begun = self.now.load(Ordering::Relaxed);
        let unix_s = clock.since_epoch().as_secs() as u32;
        Box::new(move |neighbor| {
            let NeighborEntry { key, reader, .. } = neighbor;
            let range = 0..reader.len();
            let read = match pin!(reader.read(range.clone())).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(outcome) => outcome.ok().flatten().map(|bytes| Part { range, bytes }),
                Poll::Pending => unreachable!("the body of a neighbor is in memory"),
            };
            let found = FoundEntry { head: reader.head(), body_bytes: reader.len(), read };
            passed.lock().push(PassedEntry { key: content::key_number(&key), begun, unix_s, found });
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<PassedEntry>> {
        self.entries.lock().ignore_poison()
    }
}

impl Trial {
    /// Judges the entries that the store has passed on since the last call, like results of lookups.
    ///
    /// # Errors
    /// The broken law.
    pub(super) fn judge_neighbors(&mut self) -> Result<(), String> {
        let passed = mem::take(&mut *self.neighbors.lock());
        for PassedEntry { key, begun, unix_s, found } in passed {
            let key = key.ok_or("a neighbor has a key that was never used")?;
            self.say(|_| format!("{begun} neighbor of key {key}: {found:?}"));
            self.judge(key, begun, unix_s, &found).map_err(|why| format!("neighbor: {why}"))?;
            self.tally.neighbors += 1;
        }
        Ok(())
    }
}
