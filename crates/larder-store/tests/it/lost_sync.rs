//! A sync that fails and loses what was written since the last good one. Protects purges and replacements that were
//! acknowledged before, and entries that are stored later.

use crate::support::{SIZE_BYTES, block_on, insert, key_bytes, options, version_of};
use futures_util::FutureExt;
use larder_device::{Device, FaultPlan, FaultyDevice, MemoryDirectory};
use larder_store::{Clock, Policy, Store, StoreOptions};
use std::{ops::Range, pin::pin, sync::Arc, time::Duration};

const REPLACED: Range<u64> = 0..10;
const PURGED: Range<u64> = 10..20;
const UNTOUCHED: Range<u64> = 20..30;
/// Stored after the sync failed.
const LATER: Range<u64> = 30..40;
const BODY_BYTES: usize = 900;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Kill,
    KillBeforeTheReturn,
    CleanStop,
}

/// The changes that are made last before the sync fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Replacements,
    Purges,
}

/// The call whose sync fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SyncOf {
    Caller,
    Maintenance,
}

struct Subject {
    device: Arc<FaultyDevice>,
    directory: Arc<MemoryDirectory>,
    options: StoreOptions,
    store: Store,
    what: String,
}

impl Subject {
    fn new(policy: &'static Policy, what: String) -> Self {
        let options = StoreOptions {
            policy,
            identity_seed: Some(1),
            clock: Clock::manual(Duration::from_secs(1_700_000_000)),
            ..options()
        };
        let device = Arc::new(FaultyDevice::new(SIZE_BYTES, 1, FaultPlan::default()));
        let directory = Arc::new(MemoryDirectory::new(SIZE_BYTES));
        let store = open(&device, &directory, &options);
        Self { device, directory, options, store, what }
    }

    fn put(&self, keys: Range<u64>, version: u64) {
        keys.for_each(|key| assert!(insert(&self.store, key, version, BODY_BYTES), "{}: key {key}", self.what));
    }

    fn wait(&self, seconds: u64) {
        self.options.clock.advance(Duration::from_secs(seconds));
        block_on(self.store.maintain());
    }

    fn change(&self, last: Last) {
        let replace = || self.put(REPLACED, 2);
        let purge = || PURGED.for_each(|key| block_on(self.store.remove(&key_bytes(key))).unwrap());
        match last {
            Last::Replacements => (purge(), replace()),
            Last::Purges => (replace(), purge()),
        };
        block_on(self.store.flush()).unwrap();
    }

    /// Ends the process and opens what it leaves.
    fn ended(self, end: End) -> Self {
        let Self { device, directory, options, store, what } = self;
        let device = if end == End::CleanStop {
            block_on(store.close()).unwrap();
            drop(store);
            device
        } else {
            let next = Arc::new(device.kill());
            drop(store);
            next
        };
        let store = open(&device, &directory, &options);
        Self { device, directory, options, store, what }
    }

    fn found(&self, keys: Range<u64>) -> Vec<u64> {
        keys.filter_map(|key| version_of(&self.store, key)).collect()
    }

    fn check_changes(&self, when: &str) {
        let what = &self.what;
        assert_eq!(self.found(PURGED), [0; 0], "{what}, {when}: purged entries are back");
        assert!(self.found(REPLACED).iter().all(|&version| version == 2), "{what}, {when}: replaced entries are old");
    }
}

fn open(device: &Arc<FaultyDevice>, directory: &Arc<MemoryDirectory>, options: &StoreOptions) -> Store {
    let device = Arc::clone(device) as Arc<dyn Device>;
    if options.policy.layout.keeps_files() {
        Store::open_on_files(device, Arc::clone(directory) as _, options).unwrap()
    } else {
        Store::open_on(device, options).unwrap()
    }
}

fn check(policy: &'static Policy, (end, last, sync_of): (End, Last, SyncOf)) {
    let subject = Subject::new(policy, format!("{policy}, {last:?} last, sync of the {sync_of:?}, {end:?}"));
    subject.put(REPLACED.start..UNTOUCHED.end, 1);
    block_on(subject.store.sync()).unwrap();
    // So that a later sync covers nothing but the changes.
    subject.wait(6);
    let before = subject.found(UNTOUCHED).len();
    subject.change(last);
    subject.device.lose_next_sync();
    match sync_of {
        SyncOf::Caller => assert!(block_on(subject.store.sync()).is_err(), "{}", subject.what),
        SyncOf::Maintenance => subject.wait(6),
    }
    assert_eq!(subject.device.stats().sync_losses, 1, "{}", subject.what);
    subject.check_changes("at once");
    if end == End::KillBeforeTheReturn {
        return subject.ended(end).check_changes("after the end");
    }
    subject.wait(1);
    let stats = subject.store.stats();
    assert_eq!((stats.volumes_out, stats.failed_syncs), (0, 1), "{}: the volume is back", subject.what);
    subject.check_changes("after the return");
    subject.put(LATER, 1);
    block_on(subject.store.sync()).unwrap();
    let untouched = subject.found(UNTOUCHED).len();
    assert!(2 * untouched >= before, "{}: {untouched} of {before} entries are left", subject.what);
    let ended = subject.ended(end);
    ended.check_changes("after the end");
    let later = ended.found(LATER).len();
    assert!(later >= 8, "{}: {later} of 10 later entries are found", ended.what);
}

#[test]
fn sync_that_fails_and_loses_brings_nothing_back_in_any_policy() {
    for policy in Policy::all() {
        for end in [End::Kill, End::KillBeforeTheReturn, End::CleanStop] {
            for last in [Last::Replacements, Last::Purges] {
                for sync_of in [SyncOf::Caller, SyncOf::Maintenance] {
                    check(policy, (end, last, sync_of));
                }
            }
        }
    }
}

/// Guards against a volume that stays excluded because its policy cannot take so many removals at once.
#[test]
fn volume_returns_although_many_changes_may_be_lost() {
    for name in ["log", "tiny", "ucfs", "hashcache-set"] {
        let subject = Subject::new(Policy::named(name).unwrap(), name.to_owned());
        subject.put(0..600, 1);
        subject.device.lose_next_sync();
        assert!(block_on(subject.store.sync()).is_err());
        subject.wait(1);
        let stats = subject.store.stats();
        assert_eq!((stats.volumes_out, stats.removals_waiting), (0, 0), "{name}");
    }
}

/// Protects every later sync. A task that was dropped while it flushed counted as the one that syncs.
#[test]
fn sync_stays_due_when_the_task_that_was_to_do_it_is_dropped() {
    let subject = Subject::new(Policy::default_policy(), "log".to_owned());
    subject.put(UNTOUCHED, 1);
    block_on(subject.store.flush()).unwrap();
    subject.put(LATER, 1);
    subject.device.set_plan(FaultPlan { slow_transfers_ppm: 1_000_000, ..FaultPlan::default() });
    subject.options.clock.advance(Duration::from_secs(30));
    assert!(subject.store.maintain().now_or_never().is_none(), "the flush waits for the device");
    while subject.device.turn() {}
    let mut work = pin!(subject.store.maintain());
    while (&mut work).now_or_never().is_none() {
        assert!(subject.device.turn(), "the work waits for the device");
    }
    assert_eq!(subject.device.waiting_count(), 1, "the sync is on its way");
}

/// Guards against a store that is emptied by a sync that fails when there is nothing to lose, as on a disk that is away
/// for a moment.
#[test]
fn sync_that_fails_after_a_good_one_costs_nothing() {
    let subject = Subject::new(Policy::default_policy(), "log".to_owned());
    subject.put(UNTOUCHED, 1);
    block_on(subject.store.sync()).unwrap();
    subject.device.lose_next_sync();
    assert!(block_on(subject.store.set_label(7)).is_err());
    assert_eq!(subject.store.stats().failed_syncs, 0);
    assert_eq!(subject.found(UNTOUCHED).len(), 10);
}
