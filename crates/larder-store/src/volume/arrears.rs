//! Removals and invalidations that could not be written to the volume yet.
//!
//! A removal takes effect even if its write fails: its key is hidden from lookups until the removal is durable. While
//! any removal is pending, the volume stores nothing new, so a late retry cannot delete a newer version of the same
//! key.
//!
//! The list is bounded. Once its keys exceed [`KEY_BYTES_MAX`], it is replaced by one new epoch, which empties the
//! volume; a clean stop does the same with all removals still pending. Retries are written elsewhere
//! (`AnyEngine::pay_arrears`).
//!
//! Cost: one atomic load per lookup while nothing is pending.

use super::{Volume, superblocks::Invalidation};
use crate::{Error, ErrorKind, Result, format::superblock::SITE_RULE_COUNT_MAX, units::Site};
use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Most bytes of individually pending keys, including the overhead of keeping each.
const KEY_BYTES_MAX: usize = 4 << 20;
const KEY_OVERHEAD_BYTES: usize = 64;
/// Removals that are retried together.
const BATCH_COUNT: usize = 256;
/// Pause between retries. It doubles with each failure.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(8);

/// The pending removals of one volume.
#[derive(Default)]
pub(crate) struct PendingRemovals {
    /// Number of pending removals.
    count: AtomicU64,
    /// Number of pending removals and removals in progress.
    hidden_count: AtomicU64,
    owed: Mutex<OwedRemoval>,
}

#[derive(Default)]
struct OwedRemoval {
    /// Keys to be removed, each with the number of the failed attempt. Sorted, so that a seed repeats the order.
    keys: BTreeMap<Box<[u8]>, u64>,
    key_bytes: usize,
    /// Sites to invalidate.
    sites: Vec<Site>,
    /// Whether to invalidate everything.
    all: bool,
    next_number: u64,
    /// Keys whose removal is in progress.
    under_way: Vec<UnderWay>,
    /// When the next retry is due, and the pause before it.
    due_at: Duration,
    pause: Duration,
    is_paying: bool,
}

/// A key whose removal is in progress.
struct UnderWay {
    key: Box<[u8]>,
    /// Whether an entry was stored since, which the removal need not remove.
    is_overtaken: bool,
}

/// The removals of one retry.
pub(crate) struct DueRemovals {
    pub(crate) rules: Vec<Invalidation>,
    pub(crate) keys: Vec<(Box<[u8]>, u64)>,
}

impl PendingRemovals {
    /// Returns whether nothing is pending.
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

    /// Returns whether an entry of `key` must not be shown.
    pub(crate) fn hides(&self, key: &[u8]) -> bool {
        self.hides_some() && {
            let owed = self.lock();
            owed.all || owed.keys.contains_key(key) || owed.under_way.iter().any(|other| *other.key == *key)
        }
    }

    /// Returns whether an entry of `key` that is stored now would never become visible.
    pub(crate) fn ends(&self, key: &[u8]) -> bool {
        self.hides_some() && {
            let owed = self.lock();
            let is_removed = |other: &UnderWay| *other.key == *key && !other.is_overtaken;
            owed.all || owed.keys.contains_key(key) || owed.under_way.iter().any(is_removed)
        }
    }

    /// Notes that an entry of `key` is about to be stored.
    pub(crate) fn note_commit(&self, key: &[u8]) {
        if self.hides_some() {
            let mut owed = self.lock();
            owed.under_way.iter_mut().filter(|other| *other.key == *key).for_each(|other| other.is_overtaken = true);
        }
    }

    /// Returns whether an entry of `site` must not be shown.
    pub(crate) fn hides_site(&self, site: Site) -> bool {
        self.hides_some() && {
            let owed = self.lock();
            owed.all || owed.sites.contains(&site)
        }
    }

    /// Adds the removal of `key` to the pending ones.
    pub(crate) fn owe_key(&self, key: &[u8]) {
        self.change(|owed| {
            owed.next_number += 1;
            if owed.all {
                return;
            }
            if owed.keys.insert(key.into(), owed.next_number).is_none() {
                owed.key_bytes += key.len() + KEY_OVERHEAD_BYTES;
            }
            if owed.key_bytes > KEY_BYTES_MAX {
                tracing::error!("too many removals could not be written: the volume is emptied");
                owed.owe_all();
            }
        });
    }

    /// Adds an invalidation to the pending ones.
    pub(crate) fn owe_rule(&self, which: Invalidation) {
        self.change(|owed| match which {
            Invalidation::Site(site) if owed.all || owed.sites.contains(&Site(site)) => {}
            Invalidation::Site(site) if owed.sites.len() < SITE_RULE_COUNT_MAX => owed.sites.push(Site(site)),
            Invalidation::Site(_) | Invalidation::All => owed.owe_all(),
        });
    }

    /// Returns the time from `now` until the next retry is due.
    fn due_in(&self, now: Duration) -> Option<Duration> {
        (!self.is_clear()).then(|| self.lock().due_at.saturating_sub(now))
    }

    /// Returns the removals to retry now, if a retry is due or forced by `insists`, and none is in progress.
    pub(crate) fn begin(&self, now: Duration, insists: bool) -> Option<DueRemovals> {
        if self.is_clear() {
            return None;
        }
        let mut owed = self.lock();
        if owed.is_paying || (now < owed.due_at && !insists) {
            return None;
        }
        owed.is_paying = true;
        let sites = owed.sites.iter().map(|&Site(site)| Invalidation::Site(site));
        let rules = if owed.all { vec![Invalidation::All] } else { sites.collect() };
        let keys = owed.keys.iter().take(BATCH_COUNT).map(|(key, &number)| (key.clone(), number)).collect();
        Some(DueRemovals { rules, keys })
    }

    /// Ends the retry that [`Self::begin`] began. With `is_paid`, it succeeded.
    pub(crate) fn end(&self, now: Duration, is_paid: bool) {
        self.change(|owed| {
            owed.is_paying = false;
            owed.pause = if is_paid { Duration::ZERO } else { (2 * owed.pause).clamp(PAUSE_MIN, PAUSE_MAX) };
            owed.due_at = now + owed.pause;
        });
    }

    pub(crate) fn pay_key(&self, key: &[u8], number: u64) {
        self.change(|owed| {
            // A key whose removal became pending again since this retry began stays on the list.
            if owed.keys.get(key) == Some(&number) {
                owed.keys.remove(key);
                owed.key_bytes -= key.len() + KEY_OVERHEAD_BYTES;
            }
        });
    }

    /// Drops the pending removals that an invalidation covers: it removes everything stored before it, and nothing is
    /// stored while it is pending.
    pub(crate) fn pay_rule(&self, which: Invalidation) {
        self.change(|owed| match which {
            Invalidation::Site(site) => owed.sites.retain(|&owed| owed != Site(site)),
            Invalidation::All => {
                *owed = OwedRemoval {
                    next_number: owed.next_number,
                    is_paying: owed.is_paying,
                    under_way: std::mem::take(&mut owed.under_way),
                    ..OwedRemoval::default()
                }
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut OwedRemoval)) {
        let mut owed = self.lock();
        change(&mut owed);
        let count = owed.keys.len() as u64 + owed.sites.len() as u64 + u64::from(owed.all);
        self.hidden_count.store(count + owed.under_way.len() as u64, Ordering::Release);
        self.count.store(count, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, OwedRemoval> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OwedRemoval {
    fn owe_all(&mut self) {
        (self.keys, self.key_bytes, self.sites, self.all) = (BTreeMap::new(), 0, Vec::new(), true);
    }
}

/// A removal in progress. Its key is hidden at once. When this is dropped, the removal becomes pending unless it is
/// known to be durable.
pub(crate) struct RemovalGuard<'a> {
    volume: &'a Volume,
    key: &'a [u8],
    is_settled: bool,
}

impl<'a> RemovalGuard<'a> {
    pub(crate) fn new(volume: &'a Volume, key: &'a [u8]) -> Self {
        volume.arrears.change(|owed| owed.under_way.push(UnderWay { key: key.into(), is_overtaken: false }));
        Self { volume, key, is_settled: false }
    }

    /// Notes the outcome of the removal.
    pub(crate) fn end(mut self, outcome: &Result<()>) {
        let is_refused = |error: &Error| matches!(error.kind(), ErrorKind::Closed | ErrorKind::Invalid);
        self.is_settled = outcome.as_ref().err().is_none_or(is_refused);
    }
}

impl Drop for RemovalGuard<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            self.volume.owe_removal(self.key);
        }
        self.volume.arrears.change(|owed| {
            if let Some(at) = owed.under_way.iter().position(|other| *other.key == *self.key) {
                owed.under_way.swap_remove(at);
            }
        });
    }
}

impl Volume {
    /// Hides `key` until its removal is written.
    pub(crate) fn owe_removal(&self, key: &[u8]) {
        self.arrears.owe_key(key);
        self.wake_for_arrears();
    }

    /// Hides the entries that an invalidation covers until it is written.
    pub(crate) fn owe_rule(&self, which: Invalidation) {
        self.arrears.owe_rule(which);
        self.wake_for_arrears();
    }

    /// Wakes the thread that retries. For an excluded volume, the next probe retries.
    fn wake_for_arrears(&self) {
        if !self.health.is_out() {
            self.wakeup.wake();
        }
    }

    /// Checks that nothing is pending, so that entries may be stored.
    ///
    /// # Errors
    /// `Unavailable` while a removal or invalidation is pending.
    pub(crate) fn check_arrears(&self) -> Result<()> {
        if self.arrears.is_clear() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unavailable, "the store accepts nothing until pending removals can be written"))
    }

    /// Returns the time until the next retry of pending removals.
    pub(crate) fn arrears_due(&self) -> Option<Duration> {
        self.arrears.due_in(self.clock.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_is_hidden_until_it_is_paid() {
        let arrears = PendingRemovals::default();
        assert!(arrears.is_clear() && !arrears.hides(b"a") && !arrears.hides_site(Site(1)));
        arrears.owe_key(b"a");
        arrears.owe_rule(Invalidation::Site(1));
        assert!(
            arrears.hides(b"a") && !arrears.hides(b"b") && arrears.hides_site(Site(1)) && !arrears.hides_site(Site(2))
        );
        let due = arrears.begin(Duration::ZERO, false).unwrap();
        assert!(arrears.begin(Duration::ZERO, true).is_none(), "somebody is at it");
        assert_eq!((due.rules, due.keys.len()), (vec![Invalidation::Site(1)], 1));
        arrears.owe_key(b"a");
        arrears.pay_key(b"a", due.keys[0].1);
        assert!(arrears.hides(b"a"), "it was owed anew meanwhile");
        arrears.pay_rule(Invalidation::Site(1));
        arrears.end(Duration::ZERO, false);
        assert!(arrears.begin(Duration::ZERO, false).is_none() && arrears.begin(PAUSE_MIN, false).is_some());
        assert_eq!(arrears.count(), 1);
    }

    #[test]
    fn more_than_can_be_kept_becomes_everything_and_everything_ends_with_one_rule() {
        let arrears = PendingRemovals::default();
        let key = |n: u32| [n.to_le_bytes().as_slice(), &[0; 1000]].concat();
        let count = (0..).take_while(|&n| {
            arrears.owe_key(&key(n));
            !arrears.lock().all
        });
        let count = count.count();
        assert!((3000..5000).contains(&count), "{count}");
        assert!(arrears.hides(b"another") && arrears.hides_site(Site(7)));
        assert_eq!(arrears.count(), 1);
        arrears.owe_key(b"one more");
        arrears.pay_rule(Invalidation::All);
        assert!(arrears.is_clear() && !arrears.hides(b"one more"));
    }
}
