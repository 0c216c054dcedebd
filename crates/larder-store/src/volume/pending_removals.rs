//! Removals and invalidations that could not be written to the volume yet.
//!
//! A removal takes effect even if its write fails: its key is hidden from lookups until the removal is durable. While
//! any removal is pending, the volume stores nothing new, so a late retry cannot delete a newer version of the same
//! key.
//!
//! The list is bounded. Once its keys exceed [`KEY_BYTES_MAX`], it is replaced by one new epoch, which empties the
//! volume; a clean stop does the same with all removals still pending. Retries are written elsewhere
//! (`AnyEngine::retry_pending`).
//!
//! Cost: one atomic load per lookup while nothing is pending.

use super::{
    Volume,
    changed_keys::{KEY_BYTES_MAX, KEY_OVERHEAD_BYTES},
};
use crate::sync::IgnorePoison;
use crate::{Error, ErrorKind, Result};
use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Maximum number of removals that one retry writes at once.
const BATCH_COUNT: usize = 256;
/// Pause before the first retry. Doubled after each failed retry.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(8);

/// The pending removals of one volume.
#[derive(Default)]
pub(crate) struct PendingRemovals {
    /// Number of pending removals.
    count: AtomicU64,
    /// Number of pending removals and of removals in progress. While it is 0, no lookup takes the lock.
    hidden_count: AtomicU64,
    deferred: Mutex<DeferredRemovals>,
}

#[derive(Default)]
struct DeferredRemovals {
    /// The keys to be removed, each with a number that grows with every attempt. Sorted, so that a simulation repeats
    /// the order.
    keys: BTreeMap<Box<[u8]>, u64>,
    key_bytes: usize,
    /// Whether the whole volume is to be invalidated.
    all: bool,
    next_number: u64,
    /// Keys whose removal a caller is waiting for.
    under_way: Vec<UnderWay>,
    /// When the next retry is due. `pause` is the time from the last retry to the next one.
    due_at: Duration,
    pause: Duration,
    is_retrying: bool,
}

/// A key whose removal a caller is waiting for.
struct UnderWay {
    key: Box<[u8]>,
    /// Whether a new entry of the key was stored after the removal began. The removal need not cover it.
    is_overtaken: bool,
}

/// The pending removals that one retry takes.
pub(crate) struct DueRemovals {
    /// Whether to invalidate the whole volume.
    pub(crate) all: bool,
    pub(crate) keys: Vec<(Box<[u8]>, u64)>,
}

impl PendingRemovals {
    /// Returns whether no removal is pending.
    pub(crate) fn is_clear(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn hides_some(&self) -> bool {
        self.hidden_count.load(Ordering::Acquire) != 0
    }

    /// Returns the number of pending removals.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Returns whether lookups must not find an entry of `key`, because its removal is pending or in progress.
    pub(crate) fn hides(&self, key: &[u8]) -> bool {
        self.hides_some() && {
            let deferred = self.lock();
            deferred.all || deferred.keys.contains_key(key) || deferred.under_way.iter().any(|other| *other.key == *key)
        }
    }

    /// Returns whether the entry of `key` that is in the store now is being removed. A removal that is in progress does
    /// not count if a new entry of `key` was stored after it began.
    pub(crate) fn ends(&self, key: &[u8]) -> bool {
        self.hides_some() && {
            let deferred = self.lock();
            let is_removed = |other: &UnderWay| *other.key == *key && !other.is_overtaken;
            deferred.all || deferred.keys.contains_key(key) || deferred.under_way.iter().any(is_removed)
        }
    }

    /// Notes that an entry of `key` is about to be stored. Removals of `key` that are in progress need not cover it.
    pub(crate) fn note_commit(&self, key: &[u8]) {
        if self.hides_some() {
            let mut deferred = self.lock();
            deferred
                .under_way
                .iter_mut()
                .filter(|other| *other.key == *key)
                .for_each(|other| other.is_overtaken = true);
        }
    }

    /// Returns whether lookups must not find any entry, because an invalidation of the whole volume is pending.
    pub(crate) fn hides_all(&self) -> bool {
        self.hides_some() && self.lock().all
    }

    /// Makes the removal of `key` pending. If too many removals are pending, replaces all of them by an invalidation of
    /// the whole volume. Returns how many were replaced.
    fn defer_key(&self, key: &[u8]) -> u64 {
        self.change(|deferred| {
            deferred.next_number += 1;
            if deferred.all {
                return 0;
            }
            if deferred.keys.insert(key.into(), deferred.next_number).is_none() {
                deferred.key_bytes += key.len() + KEY_OVERHEAD_BYTES;
            }
            if deferred.key_bytes > KEY_BYTES_MAX {
                tracing::error!("too many removals could not be written: the volume is emptied");
                return deferred.defer_all();
            }
            0
        })
    }

    /// Replaces all pending removals by a pending invalidation of the whole volume.
    fn defer_all(&self) {
        self.change(DeferredRemovals::defer_all);
    }

    /// Returns the time from `now` until the next retry is due; `None` if nothing is pending.
    fn due_in(&self, now: Duration) -> Option<Duration> {
        (!self.is_clear()).then(|| self.lock().due_at.saturating_sub(now))
    }

    /// Returns the removals to retry now. Returns `None` if another retry is in progress, or if no retry is due and
    /// `is_forced` is not set.
    pub(crate) fn begin(&self, now: Duration, is_forced: bool) -> Option<DueRemovals> {
        if self.is_clear() {
            return None;
        }
        let mut deferred = self.lock();
        if deferred.is_retrying || (now < deferred.due_at && !is_forced) {
            return None;
        }
        deferred.is_retrying = true;
        let keys = deferred.keys.iter().take(BATCH_COUNT).map(|(key, &number)| (key.clone(), number)).collect();
        Some(DueRemovals { all: deferred.all, keys })
    }

    /// Ends the retry that [`Self::begin`] began. `is_done` says whether it succeeded.
    pub(crate) fn end(&self, now: Duration, is_done: bool) {
        self.change(|deferred| {
            deferred.is_retrying = false;
            deferred.pause = if is_done { Duration::ZERO } else { (2 * deferred.pause).clamp(PAUSE_MIN, PAUSE_MAX) };
            deferred.due_at = now + deferred.pause;
        });
    }

    pub(crate) fn finish_key(&self, key: &[u8], number: u64) {
        self.change(|deferred| {
            // A key whose removal became pending again since this retry began stays on the list.
            if deferred.keys.get(key) == Some(&number) {
                deferred.keys.remove(key);
                deferred.key_bytes -= key.len() + KEY_OVERHEAD_BYTES;
            }
        });
    }

    /// Drops all pending removals, because an invalidation of the whole volume is durable. It covers everything stored
    /// before it, and nothing was stored while it was pending.
    pub(crate) fn finish_all(&self) {
        self.change(|deferred| {
            *deferred = DeferredRemovals {
                next_number: deferred.next_number,
                is_retrying: deferred.is_retrying,
                under_way: std::mem::take(&mut deferred.under_way),
                ..DeferredRemovals::default()
            }
        });
    }

    fn change<T>(&self, change: impl FnOnce(&mut DeferredRemovals) -> T) -> T {
        let mut deferred = self.lock();
        let result = change(&mut deferred);
        let count = deferred.keys.len() as u64 + u64::from(deferred.all);
        self.hidden_count.store(count + deferred.under_way.len() as u64, Ordering::Release);
        self.count.store(count, Ordering::Release);
        result
    }

    fn lock(&self) -> MutexGuard<'_, DeferredRemovals> {
        self.deferred.lock().ignore_poison()
    }
}

impl DeferredRemovals {
    /// Replaces all pending removals by a pending invalidation of the whole volume. Returns the number of removals
    /// replaced.
    fn defer_all(&mut self) -> u64 {
        let keys = std::mem::take(&mut self.keys);
        self.key_bytes = 0;
        self.all = true;
        keys.len() as u64
    }
}

/// A removal that a caller is waiting for. Hides its key from lookups. If it is dropped before it is known to be
/// durable, the removal becomes pending.
pub(crate) struct RemovalGuard<'a> {
    volume: &'a Volume,
    key: &'a [u8],
    is_settled: bool,
}

impl<'a> RemovalGuard<'a> {
    pub(crate) fn new(volume: &'a Volume, key: &'a [u8]) -> Self {
        volume
            .pending_removals
            .change(|deferred| deferred.under_way.push(UnderWay { key: key.into(), is_overtaken: false }));
        Self { volume, key, is_settled: false }
    }

    /// Notes the outcome of the removal. It becomes pending if it failed.
    pub(crate) fn end(mut self, outcome: &Result<()>) {
        let is_refused = |error: &Error| matches!(error.kind(), ErrorKind::Closed | ErrorKind::Invalid);
        self.is_settled = outcome.as_ref().err().is_none_or(is_refused);
    }
}

impl Drop for RemovalGuard<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            self.volume.defer_removal(self.key);
        }
        self.volume.pending_removals.change(|deferred| {
            if let Some(at) = deferred.under_way.iter().position(|other| *other.key == *self.key) {
                deferred.under_way.swap_remove(at);
            }
        });
    }
}

impl Volume {
    /// Makes the removal of `key` pending, and hides the key from lookups until the removal is written.
    pub(crate) fn defer_removal(&self, key: &[u8]) {
        let widened_count = self.pending_removals.defer_key(key);
        self.counters.removal_overflows.fetch_add(widened_count, Ordering::Relaxed);
        self.wake_for_pending();
    }

    /// Makes an invalidation of the whole volume pending, and hides all entries from lookups until it is written.
    pub(crate) fn defer_all(&self) {
        self.pending_removals.defer_all();
        self.wake_for_pending();
    }

    /// Wakes the maintenance thread, which retries pending removals. If the volume is excluded, the next probe retries
    /// them.
    fn wake_for_pending(&self) {
        if !self.health.is_out() {
            self.wakeup.wake();
        }
    }

    /// Checks that no removal is pending, so that entries may be stored.
    ///
    /// # Errors
    /// `Unavailable` while a removal or an invalidation of the volume is pending.
    pub(crate) fn check_pending(&self) -> Result<()> {
        if self.pending_removals.is_clear() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unavailable, "the store accepts nothing until pending removals can be written"))
    }

    /// Returns the time until pending removals are retried; `None` if there are none.
    pub(crate) fn pending_due(&self) -> Option<Duration> {
        self.pending_removals.due_in(self.clock.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deferred_removals_are_hidden_until_they_are_written() {
        let pending_removals = PendingRemovals::default();
        assert!(pending_removals.is_clear() && !pending_removals.hides(b"a") && !pending_removals.hides_all());
        pending_removals.defer_key(b"a");
        assert!(pending_removals.hides(b"a") && !pending_removals.hides(b"b") && !pending_removals.hides_all());
        let due = pending_removals.begin(Duration::ZERO, false).unwrap();
        assert!(pending_removals.begin(Duration::ZERO, true).is_none(), "somebody is at it");
        assert_eq!((due.all, due.keys.len()), (false, 1));
        pending_removals.defer_key(b"a");
        pending_removals.finish_key(b"a", due.keys[0].1);
        assert!(pending_removals.hides(b"a"), "it was deferred anew meanwhile");
        pending_removals.end(Duration::ZERO, false);
        assert!(
            pending_removals.begin(Duration::ZERO, false).is_none()
                && pending_removals.begin(PAUSE_MIN, false).is_some()
        );
        assert_eq!(pending_removals.count(), 1);
    }

    #[test]
    fn more_than_can_be_kept_becomes_everything_and_everything_ends_with_one_invalidation() {
        let pending_removals = PendingRemovals::default();
        let key = |n: u32| [n.to_le_bytes().as_slice(), &[0; 1000]].concat();
        let mut widened_count = 0;
        let count = (0..).take_while(|&n| {
            widened_count += pending_removals.defer_key(&key(n));
            !pending_removals.lock().all
        });
        let count = count.count();
        assert_eq!(widened_count, count as u64 + 1, "a volume that is emptied leaves a trace of the reason");
        assert!((3000..5000).contains(&count), "{count}");
        assert!(pending_removals.hides(b"another") && pending_removals.hides_all());
        assert_eq!(pending_removals.count(), 1);
        pending_removals.defer_key(b"one more");
        pending_removals.finish_all();
        assert!(pending_removals.is_clear() && !pending_removals.hides(b"one more"));
    }
}
