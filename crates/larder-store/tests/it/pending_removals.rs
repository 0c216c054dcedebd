//! Guards against a removal that is acknowledged although it failed, or a removed, invalidated or replaced entry that
//! comes back because the device could not be written at the time.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use larder_device::{Device, Directory, MemoryDevice, MemoryDirectory, Transfer};
use larder_store::{ErrorKind, Hints, IndexAxis, Policy, Store, StoreOptions};
use larder_torture::{SIZE_BYTES, options};

use crate::support::{block_on, body, head, insert, key_bytes, version_of};

const KEYS: std::ops::Range<u64> = 0..20;
const KINDS: [io::ErrorKind; 3] = [io::ErrorKind::Other, io::ErrorKind::StorageFull, io::ErrorKind::ReadOnlyFilesystem];

/// A memory device whose writes can be made to fail.
struct Unwritable {
    inner: MemoryDevice,
    fault: Mutex<Option<Fault>>,
}

#[derive(Clone, Copy)]
struct Fault {
    kind: io::ErrorKind,
    /// Whether superblocks can be written all the same.
    spares_superblocks: bool,
}

impl Unwritable {
    fn set(&self, fault: Option<Fault>) {
        *self.fault.lock().unwrap() = fault;
    }

    fn fail(&self, kind: io::ErrorKind) {
        self.set(Some(Fault { kind, spares_superblocks: false }));
    }
}

impl Device for Unwritable {
    fn submit(&self, transfer: Transfer) {
        let fault = *self.fault.lock().unwrap();
        match (fault, transfer) {
            (Some(fault), Transfer::Write { offset_bytes, completion, buffer }) => {
                let is_superblock = offset_bytes == 0 || offset_bytes + 4096 == SIZE_BYTES;
                if fault.spares_superblocks && is_superblock {
                    self.inner.submit(Transfer::Write { offset_bytes, completion, buffer });
                } else {
                    completion.complete(Err(fault.kind.into()));
                }
            }
            (_, transfer) => self.inner.submit(transfer),
        }
    }

    larder_device::delegate_device!(inner);
}

/// A row's store on such a device.
struct Subject {
    options: StoreOptions,
    device: Arc<Unwritable>,
    directory: Arc<MemoryDirectory>,
}

impl Subject {
    fn new(policy: &'static Policy) -> Self {
        let device = Arc::new(Unwritable { inner: MemoryDevice::new(SIZE_BYTES), fault: Mutex::new(None) });
        Self { options: options(policy, 1), device, directory: Arc::new(MemoryDirectory::new(SIZE_BYTES)) }
    }

    fn open(&self) -> Store {
        self.open_on(Arc::clone(&self.device) as Arc<dyn Device>)
    }

    fn open_on(&self, device: Arc<dyn Device>) -> Store {
        if self.options.policy.layout.keeps_files() {
            Store::open_on_files(device, Arc::clone(&self.directory) as Arc<dyn Directory>, &self.options).unwrap()
        } else {
            Store::open_on(device, &self.options).unwrap()
        }
    }

    /// Returns the store that the next process finds if this one is killed now.
    fn after_kill(&self) -> Store {
        self.open_on(Arc::new(self.device.inner.snapshot()))
    }

    fn wait(&self, store: &Store, time: Duration) {
        self.options.clock.advance(time);
        block_on(store.maintain());
    }
}

/// Returns a store of each key, and of one key more.
fn filled(policy: &'static Policy) -> (Subject, Store) {
    let subject = Subject::new(policy);
    let store = subject.open();
    KEYS.for_each(|key| assert!(insert(&store, key, 1, 500)));
    let mut writer = store.insert(&key_bytes(100), head(100, 1, 50), Hints::default()).unwrap();
    writer.write(body(100, 1, 50)).unwrap();
    block_on(writer.commit()).unwrap();
    block_on(store.sync()).unwrap();
    (subject, store)
}

/// Returns each policy with each kind of error.
fn policies_and_kinds() -> impl Iterator<Item = (&'static Policy, io::ErrorKind)> {
    Policy::all().iter().flat_map(|policy| KINDS.map(|kind| (policy, kind)))
}

#[test]
fn clearing_that_cannot_be_written_is_an_error_and_is_made_up_for() {
    for (policy, kind) in policies_and_kinds() {
        let (subject, store) = filled(policy);
        subject.device.fail(kind);
        assert_eq!(block_on(store.clear()).unwrap_err().kind(), ErrorKind::Unavailable, "{policy}, {kind}");
        assert!(store.stats().removals_waiting > 0, "{policy}, {kind}");
        assert!({ KEYS }.all(|key| version_of(&store, key).is_none()), "{policy}, {kind}");
        assert!(!insert(&store, 200, 1, 500), "{policy}, {kind}: nothing is stored meanwhile");
        subject.device.set(None);
        subject.wait(&store, Duration::from_secs(10));
        assert_eq!(store.stats().removals_waiting, 0, "{policy}, {kind}");
        assert!({ KEYS }.all(|key| version_of(&subject.after_kill(), key).is_none()), "{policy}, {kind}: killed");
        assert!(insert(&store, 100, 2, 50) && version_of(&store, 100) == Some(2), "{policy}, {kind}");
    }
}

#[test]
fn a_removal_that_cannot_be_written_is_an_error_and_is_made_up_for() {
    for (policy, kind) in policies_and_kinds() {
        let (subject, store) = filled(policy);
        let before: Vec<u64> = KEYS.filter(|&key| version_of(&store, key).is_some()).collect();
        subject.device.fail(kind);
        let removed = block_on(store.remove(&key_bytes(before[0])));
        assert!(removed.is_err(), "{policy}, {kind}: {removed:?}");
        assert!(block_on(store.remove(&key_bytes(100))).is_err(), "{policy}, {kind}");
        assert!(store.stats().removals_waiting > 0, "{policy}, {kind}");
        assert_eq!((version_of(&store, before[0]), version_of(&store, 100)), (None, None), "{policy}, {kind}");
        assert_eq!(version_of(&store, before[1]), Some(1), "{policy}, {kind}: what is not concerned is found");
        assert!(!insert(&store, 200, 1, 500), "{policy}, {kind}: nothing is stored meanwhile");
        // The removal is retried until it succeeds.
        subject.wait(&store, Duration::from_secs(2));
        assert!(store.stats().removals_waiting > 0, "{policy}, {kind}");
        subject.device.set(None);
        subject.wait(&store, Duration::from_secs(10));
        assert_eq!(store.stats().removals_waiting, 0, "{policy}, {kind}");
        let after = subject.after_kill();
        assert_eq!((version_of(&after, before[0]), version_of(&after, 100)), (None, None), "{policy}, {kind}: killed");
        assert!(insert(&store, before[0], 2, 500) && insert(&store, 100, 2, 50), "{policy}, {kind}");
        assert_eq!((version_of(&store, before[0]), version_of(&store, 100)), (Some(2), Some(2)), "{policy}, {kind}");
    }
}

#[test]
fn what_a_store_could_not_remove_until_its_stop_empties_it_or_is_told() {
    for policy in Policy::all() {
        for spares_superblocks in [true, false] {
            let (subject, store) = filled(policy);
            subject.device.set(Some(Fault { kind: io::ErrorKind::StorageFull, spares_superblocks }));
            block_on(store.remove(&key_bytes(1))).unwrap_err();
            let closed = block_on(store.close());
            drop(store);
            subject.device.set(None);
            if spares_superblocks {
                let store = subject.open();
                assert!(KEYS.into_iter().all(|key| version_of(&store, key).is_none()), "{policy}: it was emptied");
                assert!(insert(&store, 1, 2, 500) && version_of(&store, 1) == Some(2), "{policy}");
            } else {
                let message = closed.unwrap_err().to_string();
                assert!(message.contains("removals could not be written"), "{policy}: {message}");
            }
        }
    }
}

/// Guards against an acknowledged entry that is replaced by one that could not be written.
#[test]
fn what_was_replaced_by_an_entry_that_could_not_be_written_does_not_come_back() {
    for (policy, kind) in policies_and_kinds() {
        let (subject, store) = filled(policy);
        subject.device.fail(kind);
        // Few entries, so that the volume is not excluded.
        let replaced = KEYS.take(2).filter(|&key| insert(&store, key, 2, 500)).collect::<Vec<_>>();
        let _ = block_on(store.sync());
        subject.device.set(None);
        subject.wait(&store, Duration::from_secs(2));
        let after = subject.after_kill();
        for key in replaced {
            let found = version_of(&after, key);
            assert!(found.is_none_or(|version| version == 2), "{policy}, {kind}: version {found:?} of key {key}");
        }
        // A volume with too many consecutive failures is excluded until the next start.
        if store.stats().volumes_out == 0 {
            assert!(insert(&store, 1, 3, 500) && version_of(&store, 1) == Some(3), "{policy}, {kind}");
        }
    }
}

/// Protects the hits of a store whose disk is full at its start.
#[test]
fn a_store_that_cannot_be_written_at_its_start_keeps_its_hits_and_refuses_at_once() {
    for (policy, kind) in policies_and_kinds() {
        let (subject, store) = filled(policy);
        let before: Vec<_> = KEYS.map(|key| version_of(&store, key)).collect();
        block_on(store.close()).unwrap();
        drop(store);
        subject.device.fail(kind);
        let store = subject.open();
        let found: Vec<_> = KEYS.map(|key| version_of(&store, key)).collect();
        if policy.index == IndexAxis::RecentSetPlaces {
            // The position file is rewritten at each start; memory has room for some positions only.
            assert!(
                found.iter().zip(&before).all(|(found, before)| found.is_none() || found == before),
                "{policy}, {kind}"
            );
            assert!(found.iter().any(Option::is_some), "{policy}, {kind}");
        } else {
            assert_eq!(found, before, "{policy}, {kind}");
        }
        let mut writer = store.insert(&key_bytes(200), head(200, 1, 50), Hints::default()).unwrap();
        writer.write(body(200, 1, 50)).unwrap();
        // Policies that write nothing at their start may lose the entry later.
        let refused = block_on(writer.commit()).and_then(|()| block_on(store.sync()));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unavailable, "{policy}, {kind}");
        subject.device.set(None);
        subject.wait(&store, Duration::from_secs(2));
        let mut writer = store.insert(&key_bytes(201), head(201, 1, 50), Hints::default()).unwrap();
        writer.write(body(201, 1, 50)).unwrap();
        block_on(writer.commit()).unwrap_or_else(|error| panic!("{policy}, {kind}: {error:?}"));
        assert_eq!(version_of(&store, 201), Some(1), "{policy}, {kind}");
        assert_eq!(version_of(&store, 1), found[1], "{policy}, {kind}");
    }
}

/// Guards against the loss of all stored entries because the disk accepts no writes for two seconds, with removals in
/// between.
#[test]
fn two_seconds_without_writes_cost_only_what_was_stored_and_removed_in_them() {
    for (policy, kind) in policies_and_kinds() {
        let (subject, store) = filled(policy);
        let before: Vec<u64> = KEYS.filter(|&key| version_of(&store, key).is_some()).collect();
        subject.device.fail(kind);
        for round in 0..20 {
            let _ = block_on(store.remove(&key_bytes(before[round / 4])));
            insert(&store, 1000 + round as u64, 1, 500);
            subject.wait(&store, Duration::from_millis(100));
        }
        subject.device.set(None);
        subject.wait(&store, Duration::from_secs(8));
        assert_eq!(store.stats().removals_waiting, 0, "{policy}, {kind}");
        let count = |store: &Store| before[5..].iter().filter(|&&key| version_of(store, key).is_some()).count();
        let all = before.len() - 5;
        // A set of a disk table whose write failed is wiped before it is trusted again.
        let most = if policy.name.starts_with("hashcache") { all / 2 } else { all };
        let killed = subject.after_kill();
        assert!(count(&store) >= most, "{policy}, {kind}: {} of {all}", count(&store));
        assert!(count(&killed) >= most, "{policy}, {kind}: {} of {all} after a kill", count(&killed));
        assert!(before[..5].iter().all(|&key| version_of(&killed, key).is_none()), "{policy}, {kind}");
        // A write error that was made up for by a retry must not make the close fail.
        assert!(insert(&store, 2000, 1, 500), "{policy}, {kind}");
        let closed = block_on(store.close());
        assert!(closed.is_ok(), "{policy}, {kind}: {closed:?}");
        drop(store);
        let again = subject.open();
        assert!(count(&again) >= most, "{policy}, {kind}: {} of {all} after a stop", count(&again));
    }
}
