//! A failed assertion in an engine. Checks that it costs one volume, and never causes a wrong byte, a call that does
//! not return, or an entry that comes back.

use crate::support::{GatedDevice, SIZE_BYTES, block_on, body, head, insert, key_bytes, options, version_of};
use larder_device::{Device, MemoryDevice, PanickingDevice};
use larder_store::{Clock, ErrorKind, Hints, Policy, ScanSummary, Store, StoreOptions, contains_panics};
use std::{
    collections::BTreeSet,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

const KEYS: std::ops::Range<u64> = 0..60;
const BODY_BYTES: usize = 900;

/// A store of two volumes. The first panics when it is told to.
struct Subject {
    panicking: Arc<PanickingDevice>,
    devices: Vec<Arc<dyn Device>>,
    options: StoreOptions,
    store: Store,
}

impl Subject {
    fn new(policy: &'static Policy) -> Self {
        // With this seed, 30 keys go to each volume. `esp` evicts by time, and finds only those of the other volume.
        let options = StoreOptions { policy, identity_seed: Some(1), ..options() };
        let memory = || Arc::new(MemoryDevice::new(SIZE_BYTES)) as Arc<dyn Device>;
        let panicking = Arc::new(PanickingDevice::new(memory(), contains_panics));
        let devices = vec![Arc::clone(&panicking) as Arc<dyn Device>, memory()];
        let store = Store::open_on_all(devices.clone(), &options).unwrap();
        KEYS.for_each(|key| assert!(insert(&store, key, 1, BODY_BYTES)));
        block_on(store.sync()).unwrap();
        Self { panicking, devices, options, store }
    }

    /// Replaces every entry, looks it up and lets time pass. Every call must return, and no wrong entry may be found.
    fn work(&self) {
        for key in KEYS {
            let is_new = self.put(key);
            let found = block_on(self.store.get(&key_bytes(key)));
            if let Ok(Some(reader)) = found {
                let is_of = |version| reader.head() == head(key, version, BODY_BYTES);
                assert!(is_of(2) || (!is_new && is_of(1)), "key {key}: {:?}", reader.head());
                if let Ok(Some(read)) = block_on(reader.read(0..reader.len())) {
                    assert_eq!(read, body(key, if is_of(2) { 2 } else { 1 }, BODY_BYTES), "key {key}");
                }
            }
            self.options.clock.advance(Duration::from_millis(300));
            block_on(self.store.maintain());
        }
        drop(block_on(self.store.flush()));
    }

    /// Stores the second version of a key. Returns whether it was stored.
    fn put(&self, key: u64) -> bool {
        let Ok(mut writer) = self.store.insert(&key_bytes(key), head(key, 2, BODY_BYTES), Hints::default()) else {
            return false;
        };
        writer.write(body(key, 2, BODY_BYTES)).unwrap();
        block_on(writer.commit()).is_ok()
    }

    /// Returns the keys of the failed volume.
    fn refused(&self) -> BTreeSet<u64> {
        let refused = |key: &u64| {
            let outcome = self.store.insert(&key_bytes(*key), head(*key, 3, 0), Hints::default());
            outcome.err().is_some_and(|error| error.kind() == ErrorKind::Unavailable)
        };
        KEYS.filter(refused).collect()
    }

    fn found(&self) -> BTreeSet<u64> {
        KEYS.filter(|&key| version_of(&self.store, key).is_some()).collect()
    }

    /// Opens the same devices as the next process does after this one has closed.
    fn reopened(self) -> Self {
        block_on(self.store.close()).unwrap();
        drop(self.store);
        let store = Store::open_on_all(self.devices.clone(), &self.options).unwrap();
        Self { store, ..self }
    }
}

fn policies_on_devices() -> impl Iterator<Item = &'static Policy> {
    Policy::all().iter().filter(|policy| !policy.layout.keeps_files())
}

/// The panic strikes another operation each time: a read, a write of a unit, one of a map or one of the maintenance.
#[test]
fn failed_assertion_costs_a_volume_a_moment_and_what_was_changed_last() {
    for policy in policies_on_devices() {
        for after in [0, 1, 4, 15] {
            let subject = Subject::new(policy);
            subject.panicking.panic_after(after);
            let what = format!("{policy}, after {after}");
            let mut rounds = 0..20;
            while !subject.panicking.has_panicked() {
                assert!(rounds.next().is_some(), "{what}: nothing has panicked");
                subject.work();
            }
            subject.work();
            let stats = subject.store.stats();
            assert_eq!((stats.failed_assertions, stats.volumes_out), (1, 0), "{what}");
            assert_eq!(subject.refused().len(), 0, "{what}: every volume is used again");
            let found = subject.found();
            assert!(found.len() > KEYS.count() / 3, "{what}: {} are found", found.len());

            let later = subject.reopened();
            assert_eq!(later.refused().len(), 0, "{what}: every volume is believed");
            assert_eq!(later.found(), found, "{what}");
        }
    }
}

/// Protects the whole cache of a machine with one disk.
#[test]
fn only_volume_comes_back_with_what_its_records_say() {
    let device = Arc::new(PanickingDevice::new(Arc::new(MemoryDevice::new(SIZE_BYTES)), contains_panics));
    let options = options();
    let store = Store::open_on(Arc::clone(&device) as _, &options).unwrap();
    KEYS.for_each(|key| assert!(insert(&store, key, 1, BODY_BYTES)));
    block_on(store.sync()).unwrap();
    device.panic_after(0);
    assert_eq!(block_on(store.get(&key_bytes(1))).err().map(|error| error.kind()), Some(ErrorKind::Unavailable));
    assert_eq!(store.stats().volumes_out, 1);
    block_on(store.maintain());
    assert_eq!(store.stats().volumes_out, 0);
    assert!({ KEYS }.all(|key| version_of(&store, key) == Some(1)));
}

/// Guards against a volume that fails again and again because of what is on it.
#[test]
fn volume_whose_engine_fails_again_at_once_is_emptied() {
    let device = Arc::new(PanickingDevice::new(Arc::new(MemoryDevice::new(SIZE_BYTES)), contains_panics));
    let options = options();
    let store = Store::open_on(Arc::clone(&device) as _, &options).unwrap();
    KEYS.for_each(|key| assert!(insert(&store, key, 1, BODY_BYTES)));
    block_on(store.sync()).unwrap();
    for _ in 0..2 {
        device.panic_after(0);
        assert!({ KEYS }.any(|key| block_on(store.get(&key_bytes(key))).is_err()));
        options.clock.advance(Duration::from_secs(8));
        block_on(store.maintain());
        assert_eq!(store.stats().volumes_out, 0);
    }
    assert!({ KEYS }.all(|key| version_of(&store, key).is_none()));
    assert!(insert(&store, 1, 2, BODY_BYTES));
}

#[test]
fn changes_of_a_failed_volume_succeed_because_the_next_start_empties_it() {
    for is_cleared in [false, true] {
        let subject = Subject::new(Policy::named("log").unwrap());
        subject.panicking.panic_after(0);
        KEYS.for_each(|key| drop(block_on(subject.store.get(&key_bytes(key)))));
        let refused = subject.refused();
        assert!(!refused.is_empty());
        for &key in &refused {
            block_on(subject.store.remove(&key_bytes(key))).unwrap();
            assert!(!block_on(subject.store.update_head(&key_bytes(key), "new".into(), Hints::default())).unwrap());
        }
        if is_cleared {
            block_on(subject.store.clear()).unwrap();
        }
        // Entries that were committed before may be lost, so nobody may rely on them.
        assert_eq!(block_on(subject.store.flush()).unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(block_on(subject.store.sync()).unwrap_err().kind(), ErrorKind::Unavailable);
        let later = subject.reopened();
        assert_eq!(later.found().intersection(&refused).count(), 0);
    }
}

#[test]
fn body_that_is_being_read_ends_with_an_error() {
    let device = Arc::new(PanickingDevice::new(Arc::new(MemoryDevice::new(SIZE_BYTES)), contains_panics));
    let store = Store::open_on(Arc::clone(&device) as _, &options()).unwrap();
    assert!(insert(&store, 1, 1, 200_000) && insert(&store, 2, 1, 1000));
    block_on(store.sync()).unwrap();
    let reader = block_on(store.front(&key_bytes(1))).unwrap().unwrap();
    assert_eq!(block_on(reader.read(0..1000)).unwrap().unwrap(), body(1, 1, 200_000)[..1000]);
    device.panic_after(0);
    assert_eq!(block_on(store.get(&key_bytes(2))).err().map(|error| error.kind()), Some(ErrorKind::Unavailable));
    assert_eq!(block_on(reader.read(0..1000)).err().map(|error| error.kind()), Some(ErrorKind::Unavailable));
    assert!(block_on(store.get(&key_bytes(1))).unwrap().is_none());
}

/// The panic strikes the next read after the scan has met an item of the first volume.
#[test]
fn scan_ends_with_an_error_when_the_engine_fails_and_lists_the_other_volumes_then() {
    for policy in policies_on_devices().filter(|policy| policy.can_scan()) {
        let subject = Subject::new(policy);
        let outcome = subject.store.scan(&mut |_| {
            if !subject.panicking.has_panicked() {
                subject.panicking.panic_after(0);
            }
            true
        });
        assert!(subject.panicking.has_panicked(), "{policy}: nothing has panicked");
        assert_eq!(outcome.map_err(|error| error.kind()), Err(ErrorKind::Unavailable), "{policy}");
        assert_eq!(subject.store.stats().failed_assertions, 1, "{policy}");
        let mut listed = BTreeSet::new();
        let outcome = subject.store.scan(&mut |item| {
            if let ScanSummary::Key(key) = item {
                listed.insert(key.to_vec());
            }
            true
        });
        outcome.unwrap();
        let found: BTreeSet<_> = subject.found().into_iter().map(key_bytes).collect();
        assert!(!found.is_empty() && listed.is_superset(&found), "{policy}: {} of {}", listed.len(), found.len());
    }
}

/// Guards against a bug of the calling program that costs a volume, or that stays hidden.
#[test]
fn panic_of_the_caller_passes_through_a_scan_and_costs_no_volume() {
    let subject = Subject::new(Policy::named("log").unwrap());
    let mut was_contained = None;
    let scan = || {
        subject.store.scan(&mut |_| {
            was_contained = Some(contains_panics());
            panic::panic_any("a bug of the caller")
        })
    };
    let panic = panic::catch_unwind(AssertUnwindSafe(scan)).expect_err("the caller's panic goes on");
    assert_eq!(panic.downcast_ref(), Some(&"a bug of the caller"));
    assert_eq!(was_contained, Some(false));
    assert_eq!(subject.store.stats().failed_assertions, 0);
    assert_eq!(subject.found().len(), KEYS.count());
    subject.store.scan(&mut |_| true).unwrap();
}

/// Guards against a call that waits for a read or for the store's thread, whose work nobody does any more.
#[test]
fn calls_that_wait_end_when_the_engine_fails_in_another_thread() {
    let gated = Arc::new(GatedDevice::new());
    let device = Arc::new(PanickingDevice::new(Arc::clone(&gated) as _, contains_panics));
    let options = StoreOptions { background: true, clock: Clock::default(), ..options() };
    let store = Store::open_on(Arc::clone(&device) as _, &options).unwrap();
    block_on(store.ready());
    assert!(insert(&store, 1, 1, 1000));
    block_on(store.sync()).unwrap();
    gated.hold_reads();
    let (ended, end) = mpsc::channel();
    let waiting = store.clone();
    let reading = thread::spawn(move || ended.send(block_on(waiting.get(&key_bytes(1))).map(|found| found.is_some())));
    let begun = Instant::now();
    while gated.held_count() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the read does not reach its device");
        thread::yield_now();
    }
    device.panic_after(0);
    // The write of this entry panics, here or in the store's thread.
    assert!(!insert(&store, 2, 1, 1000) || block_on(store.flush()).is_err());
    let outcome = end.recv_timeout(Duration::from_secs(60)).expect("the read returns although its device is silent");
    assert_eq!(outcome.map_err(|error| error.kind()), Err(ErrorKind::Unavailable));
    drop(reading.join());
    gated.release_reads();
    block_on(store.close()).unwrap();
}
