//! A volume that fails and recovers while its store is open. Protects its entries after a brief failure. Guards against
//! the return of entries that were removed, replaced or purged during the outage, whenever the process ends.

use crate::support::{SIZE_BYTES, block_on, head, insert, key_bytes, options, refuse, version_of};
use larder_device::{Device, MemoryDevice, Transfer};
use larder_store::{ErrorKind, Hints, Store, StoreOptions};
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

const KEYS: std::ops::Range<u64> = 0..120;
/// A key beyond these, which is purged while a volume is out.
const PURGED: u64 = 1000;

/// How many more transfers succeed.
struct Budget(AtomicI64);

impl Budget {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(i64::MAX)))
    }

    fn set(&self, count: i64) {
        self.0.store(count, Ordering::SeqCst);
    }

    fn take(&self) -> bool {
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| (left > 0).then(|| left - 1)).is_ok()
    }
}

/// A memory device that fails once its own budget or that of the whole process is spent.
struct Mortal {
    inner: MemoryDevice,
    own: Arc<Budget>,
    process: Arc<Budget>,
}

impl Mortal {
    fn new(process: &Arc<Budget>) -> Arc<Self> {
        Arc::new(Self { inner: MemoryDevice::new(SIZE_BYTES), own: Budget::new(), process: Arc::clone(process) })
    }

    fn die_after(&self, count: i64) {
        self.own.set(count);
    }

    fn work_again(&self) {
        self.own.set(i64::MAX);
    }
}

impl Device for Mortal {
    fn submit(&self, transfer: Transfer) {
        if self.own.take() && self.process.take() {
            return self.inner.submit(transfer);
        }
        refuse(transfer);
    }

    larder_device::delegate_device!(inner);
}

/// A store of one or more volumes that can fail.
struct Subject {
    process: Arc<Budget>,
    devices: Vec<Arc<Mortal>>,
    options: StoreOptions,
    store: Store,
}

impl Subject {
    fn new(count: usize) -> Self {
        let process = Budget::new();
        let options = options();
        let devices: Vec<_> = (0..count).map(|_| Mortal::new(&process)).collect();
        let opened = devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
        let store = Store::open_on_all(opened, &options).unwrap();
        KEYS.for_each(|key| assert!(insert(&store, key, 1, 700)));
        let writer = store.insert(&key_bytes(PURGED), head(PURGED, 1, 0), Hints::default()).unwrap();
        block_on(writer.commit()).unwrap();
        block_on(store.sync()).unwrap();
        Self { process, devices, options, store }
    }

    fn wait(&self, seconds: u64) {
        self.options.clock.advance(Duration::from_secs(seconds));
        block_on(self.store.maintain());
    }

    /// Reads every key once a second for eleven seconds, so that the dead volume is excluded.
    fn notice(&self) {
        for _ in 0..11 {
            KEYS.for_each(|key| drop(block_on(self.store.get(&key_bytes(key)))));
            self.options.clock.advance(Duration::from_secs(1));
        }
        KEYS.for_each(|key| drop(block_on(self.store.get(&key_bytes(key)))));
        assert_eq!(self.store.stats().volumes_out, 1);
    }

    /// Kills the first volume. Returns the keys in `before` that are missed afterwards.
    fn lose_first(&self, before: &[u64]) -> Vec<u64> {
        self.devices[0].die_after(0);
        self.notice();
        let left = self.found();
        before.iter().copied().filter(|key| !left.contains(key)).collect()
    }

    fn found(&self) -> Vec<u64> {
        KEYS.filter(|&key| version_of(&self.store, key).is_some()).collect()
    }

    /// Returns the store that the next process finds if this one is killed now.
    fn after_kill(&self) -> Store {
        let snapshots = self.devices.iter().map(|device| Arc::new(device.inner.snapshot()) as Arc<dyn Device>);
        Store::open_on_all(snapshots.collect(), &self.options).unwrap()
    }

    /// Repeats a removal until it is acknowledged, because at first the store does not know that the volume has failed.
    fn remove(&self, key: u64) {
        while block_on(self.store.remove(&key_bytes(key))).is_err() {
            std::thread::yield_now();
        }
    }
}

/// Guards against the loss of the whole cache because of sixteen consecutive errors of the only disk.
#[test]
fn a_moment_of_errors_costs_a_lone_volume_nothing() {
    let subject = Subject::new(1);
    let before = subject.found();
    subject.devices[0].die_after(0);
    for key in KEYS {
        assert_eq!(block_on(subject.store.get(&key_bytes(key))).err().unwrap().kind(), ErrorKind::Unavailable);
    }
    assert_eq!(subject.store.stats().volumes_out, 0);
    subject.devices[0].work_again();
    assert_eq!(subject.found(), before);
    assert!(insert(&subject.store, 5, 2, 700));
    assert_eq!(version_of(&subject.store, 5), Some(2));
}

#[test]
fn a_volume_that_works_again_is_taken_back_within_ten_seconds_with_what_it_held() {
    for count in [1, 2] {
        let subject = Subject::new(count);
        let before = subject.found();
        let lost = subject.lose_first(&before);
        assert!(!lost.is_empty());
        for _ in 0..20 {
            subject.wait(10);
        }
        assert_eq!(subject.store.stats().volumes_out, 1, "it does not work yet");
        subject.devices[0].work_again();
        (0..10).for_each(|_| subject.wait(1));
        assert_eq!((subject.store.stats().volumes_out, subject.store.stats().outages), (0, 1));
        assert_eq!(subject.found(), before, "of {count} volumes");
        let lost = lost[0];
        assert!(insert(&subject.store, lost, 2, 700));
        block_on(subject.store.close()).unwrap();
        let again = subject.after_kill();
        assert_eq!(version_of(&again, lost), Some(2), "the next start believes it");
        let kept = before.iter().filter(|&&key| version_of(&again, key).is_some());
        assert_eq!(kept.count(), before.len());
    }
}

#[test]
fn what_was_removed_replaced_or_purged_while_a_volume_was_out_never_comes_back() {
    for count in [1, 2] {
        let subject = Subject::new(count);
        let before = subject.found();
        let lost = subject.lose_first(&before);
        let removed = &lost[..10];
        let replaced = &lost[10..20];
        for &key in removed {
            let outcome = block_on(subject.store.remove(&key_bytes(key)));
            assert!(count > 1 || outcome.is_err(), "nothing on a lone volume that is out makes it last");
        }
        for &key in replaced {
            let refused = subject.store.insert(&key_bytes(key), "head".into(), Hints::default()).err().unwrap();
            assert_eq!(refused.kind(), ErrorKind::Unavailable);
        }
        let _ = block_on(subject.store.remove(&key_bytes(PURGED)));
        assert!(subject.store.stats().removals_waiting >= 20);
        subject.devices[0].work_again();
        (0..10).for_each(|_| subject.wait(1));
        let stats = subject.store.stats();
        assert_eq!((stats.volumes_out, stats.removals_waiting), (0, 0));
        for store in [&subject.store, &subject.after_kill()] {
            for &key in lost[..20].iter().chain([&PURGED]) {
                assert_eq!(version_of(store, key), None, "key {key} of {count} volumes");
            }
            assert!(lost[20..].iter().all(|&key| version_of(store, key) == Some(1)), "the others are there");
        }
    }
}

/// Guards against the return of removed entries if the process is killed after any transfer of the volume's return, or
/// if the volume fails again.
#[test]
fn a_kill_at_any_moment_of_a_volumes_return_brings_nothing_back() {
    for is_kill in [true, false] {
        let end = (0..).find(|&transfers| returns_whole_within(transfers, is_kill));
        assert!(end.is_some_and(|transfers| (8..500).contains(&transfers)), "{end:?}");
    }
}

/// Lets a volume return within this number of transfers, and checks the next start. Returns whether it had returned by
/// then.
fn returns_whole_within(transfers: i64, is_kill: bool) -> bool {
    let subject = Subject::new(2);
    let before = subject.found();
    let mut lost = subject.lose_first(&before);
    lost.truncate(4);
    let another = lost.pop().unwrap();
    lost.iter().for_each(|&key| subject.remove(key));
    assert!(block_on(subject.store.remove(&key_bytes(PURGED))).is_ok(), "it is on record that the volume is out");
    if is_kill {
        subject.devices[0].work_again();
        subject.process.set(transfers);
    } else {
        subject.devices[0].die_after(transfers);
    }
    subject.wait(8);
    let is_back = subject.store.stats().volumes_out == 0;
    if !is_kill {
        // Removed while it is unknown which volumes have recorded that this one is back.
        subject.devices[0].die_after(0);
        lost.extend(block_on(subject.store.remove(&key_bytes(another))).is_ok().then_some(another));
    }
    let after = subject.after_kill();
    for &key in lost.iter().chain([&PURGED]) {
        assert_eq!(version_of(&after, key), None, "key {key} after {transfers} transfers, killed there: {is_kill}");
    }
    if is_back {
        let kept = before.iter().filter(|&&key| key != another && !lost.contains(&key));
        assert!(kept.into_iter().all(|&key| version_of(&after, key) == Some(1)), "it is believed");
    }
    is_back
}

/// Guards against the loss of all entries of a volume because the start before was killed.
#[test]
fn start_that_is_cut_off_at_any_transfer_empties_no_volume() {
    for transfers in 0..40 {
        let subject = Subject::new(2);
        let before = subject.found();
        block_on(subject.store.close()).unwrap();
        subject.process.set(transfers);
        let devices = subject.devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>);
        drop(Store::open_on_all(devices.collect(), &subject.options));
        let after = subject.after_kill();
        let lost = before.iter().filter(|&&key| version_of(&after, key).is_none()).count();
        assert_eq!(lost, 0, "after {transfers} transfers");
    }
}
