//! Stores of several volumes. Checks that the loss of a volume costs only its share, and that a volume that was absent
//! never brings back entries removed or replaced in the meantime.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use larder_device::{Device, MemoryDevice, Transfer};
use larder_store::{ErrorKind, Store, StoreOptions};

use crate::support::{SIZE_BYTES, block_on, insert, key_bytes, options, refuse, version_of};

const KEYS: std::ops::Range<u64> = 0..300;
const BODY_BYTES: usize = 700;

/// A memory device that can die, and return with its content.
struct MortalDevice {
    inner: MemoryDevice,
    is_dead: AtomicBool,
}

impl MortalDevice {
    fn new(len_bytes: u64) -> Arc<Self> {
        Arc::new(Self { inner: MemoryDevice::new(len_bytes), is_dead: AtomicBool::new(false) })
    }

    fn set_dead(&self, is_dead: bool) {
        self.is_dead.store(is_dead, Ordering::SeqCst);
    }
}

impl Device for MortalDevice {
    fn submit(&self, transfer: Transfer) {
        if !self.is_dead.load(Ordering::SeqCst) {
            return self.inner.submit(transfer);
        }
        refuse(transfer);
    }

    larder_device::delegate_device!(inner);
}

fn devices(count: usize) -> Vec<Arc<MortalDevice>> {
    (0..count).map(|_| MortalDevice::new(SIZE_BYTES)).collect()
}

fn open(devices: &[Arc<MortalDevice>]) -> Store {
    let devices = devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
    Store::open_on_all(devices, &options()).unwrap()
}

fn fill(store: &Store, version: u64) {
    KEYS.for_each(|key| assert!(insert(store, key, version, BODY_BYTES)));
}

/// Returns the keys in the store, and checks that each has `version`.
#[track_caller]
fn found(store: &Store, version: u64) -> Vec<u64> {
    let found = KEYS.filter_map(|key| version_of(store, key).map(|found| (key, found)));
    found.map(|(key, found)| if found == version { key } else { panic!("key {key} has version {found}") }).collect()
}

#[track_caller]
fn check_share(count: usize, expected: f64) {
    let share = count as f64 / KEYS.count() as f64;
    assert!((share - expected).abs() < 0.1, "{share} is not about {expected}");
}

/// Checks that nearly all keys were found: keys that look the same in memory displace each other.
#[track_caller]
fn check_nearly_all(count: usize, of: usize) {
    assert!(count <= of && count + 3 >= of, "{count} of {of}");
}

/// Looks up every key until the dead volume is excluded.
fn notice_death(store: &Store) {
    for round in 0..100 {
        KEYS.for_each(|key| drop(block_on(store.get(&key_bytes(key)))));
        if store.stats().volumes_out == 1 {
            return;
        }
        assert!(round < 99, "the dead volume is still in use");
    }
}

#[test]
fn each_volume_has_a_share_by_its_size() {
    let sizes = [1, 2, 3].map(|factor| SIZE_BYTES * factor);
    let devices = sizes.map(|size_bytes| Arc::new(MemoryDevice::new(size_bytes)) as Arc<dyn Device>);
    let store = Store::open_on_all(devices.to_vec(), &options()).unwrap();
    fill(&store, 1);
    check_nearly_all(found(&store, 1).len(), KEYS.count());
    for (volume, expected) in store.volumes().zip([1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0]) {
        check_share(volume.stats.commits as usize, expected);
    }
    let stats = store.stats();
    assert_eq!((stats.volumes, stats.volumes_out), (3, 0));
    check_nearly_all(stats.entries as usize, KEYS.count());
    assert_eq!(stats.size_bytes, 6 * SIZE_BYTES);
}

#[test]
fn a_volume_that_joins_clears_nothing() {
    let devices = devices(3);
    let store = open(&devices[..1]);
    fill(&store, 1);
    block_on(store.close()).unwrap();
    drop(store);
    let store = open(&devices[..2]);
    check_share(found(&store, 1).len(), 1.0 / 2.0);
    KEYS.filter(|key| version_of(&store, *key).is_none()).for_each(|key| assert!(insert(&store, key, 1, BODY_BYTES)));
    block_on(store.close()).unwrap();
    drop(store);
    let store = open(&devices);
    check_share(found(&store, 1).len(), 2.0 / 3.0);
    assert!(store.volumes().next().unwrap().stats.entries > 100, "what moved is still there, and not in the way");
}

/// Guards against a volume with another label that shows old versions when it is used alone, and against a list next to
/// the store that is used for another store.
#[test]
fn label_stays_with_each_volume_and_one_that_joins_has_none() {
    let devices = devices(3);
    let store = open(&devices[..2]);
    assert!(store.labels().eq([0, 0]));
    block_on(store.set_label(7)).unwrap();
    assert!(store.labels().eq([7, 7]));
    block_on(store.close()).unwrap();
    drop(store);
    let store = open(&devices);
    assert!(store.labels().eq([7, 7, 0]));
    devices[1].set_dead(true);
    assert!(block_on(store.set_label(8)).is_err(), "not on all of them");
    assert!(!store.labels().all(|label| label == 8));
    devices[1].set_dead(false);
    block_on(store.set_label(8)).unwrap();
    assert!(store.labels().all(|label| label == 8));
}

#[test]
fn a_key_that_moved_leaves_nothing_behind_that_comes_back() {
    let devices = devices(2);
    let store = open(&devices[..1]);
    fill(&store, 1);
    block_on(store.close()).unwrap();
    drop(store);
    let store = open(&devices);
    let replaced = 0..100;
    let removed = 100..200;
    replaced.clone().for_each(|key| assert!(insert(&store, key, 2, BODY_BYTES)));
    removed.clone().for_each(|key| block_on(store.remove(&key_bytes(key))).unwrap());
    block_on(store.close()).unwrap();
    drop(store);
    let store = open(&devices[..1]);
    assert!(replaced.clone().all(|key| version_of(&store, key).is_none_or(|version| version == 2)));
    assert!(replaced.clone().any(|key| version_of(&store, key).is_none()), "some had moved");
    assert!(removed.clone().all(|key| version_of(&store, key).is_none()));
    let kept = (200..300).filter(|key| version_of(&store, *key) == Some(1));
    check_nearly_all(kept.count(), 100);
}

#[test]
fn a_volume_that_dies_costs_its_share_only() {
    let devices = devices(3);
    let store = open(&devices);
    fill(&store, 1);
    block_on(store.sync()).unwrap();
    devices[1].set_dead(true);
    notice_death(&store);
    let left = found(&store, 1);
    check_share(left.len(), 2.0 / 3.0);
    let lost = (0..KEYS.end).find(|key| !left.contains(key)).unwrap();
    let refused = store.insert(&key_bytes(lost), "head".into(), Default::default()).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    left.iter().for_each(|key| assert!(insert(&store, *key, 2, BODY_BYTES)));
    check_nearly_all(found(&store, 2).len(), left.len());
    assert!(!store.may_contain(&key_bytes(lost)));
    block_on(store.sync()).unwrap();
    block_on(store.close()).unwrap();
}

/// Guards against the return of a key that was removed while its volume was excluded.
#[test]
fn a_volume_that_was_out_is_emptied_when_it_returns() {
    let devices = devices(2);
    let store = open(&devices);
    fill(&store, 1);
    block_on(store.sync()).unwrap();
    devices[0].set_dead(true);
    notice_death(&store);
    let left = found(&store, 1);
    let lost = (0..KEYS.end).find(|key| !left.contains(key)).unwrap();
    // The removal is acknowledged as soon as it is certain to last.
    while block_on(store.remove(&key_bytes(lost))).is_err() {
        std::thread::yield_now();
    }
    drop(store);
    devices[0].set_dead(false);
    let store = open(&devices);
    assert_eq!(found(&store, 1), left, "the other volume keeps what it has");
    assert_eq!(store.stats().volumes_out, 0);
    assert!(insert(&store, lost, 2, BODY_BYTES));
    block_on(store.close()).unwrap();
    drop(store);
    assert_eq!(version_of(&open(&devices), lost), Some(2), "it is used again");
}

/// Guards against the return of a key that was removed while its volume was absent at the start.
#[test]
fn a_volume_that_was_away_is_emptied_when_it_returns() {
    let devices = devices(2);
    let store = open(&devices);
    fill(&store, 1);
    block_on(store.close()).unwrap();
    drop(store);
    let store = open(&devices[1..]);
    let left = found(&store, 1);
    check_share(left.len(), 1.0 / 2.0);
    KEYS.for_each(|key| block_on(store.remove(&key_bytes(key))).unwrap());
    block_on(store.close()).unwrap();
    drop(store);
    let store = open(&devices);
    assert_eq!(found(&store, 1), [0; 0]);
    fill(&store, 2);
    block_on(store.close()).unwrap();
    drop(store);
    // In another order: the superblocks identify the volumes.
    let store = open(&[Arc::clone(&devices[1]), Arc::clone(&devices[0])]);
    check_nearly_all(found(&store, 2).len(), KEYS.count());
}

/// Checks a store that was used with each of its volumes alone, and then with both.
#[test]
fn of_two_volumes_that_were_apart_one_is_emptied() {
    let devices = devices(2);
    drop(open(&devices));
    for device in &devices {
        let store = open(std::slice::from_ref(device));
        fill(&store, 1);
        block_on(store.close()).unwrap();
    }
    let store = open(&devices);
    check_share(found(&store, 1).len(), 1.0 / 2.0);
    assert_eq!(store.volumes().filter(|volume| volume.stats.entries > 0).count(), 2);
}

/// Guards against entries that were removed or replaced since a volume was copied, and come back when the copy is
/// restored.
#[test]
fn volume_restored_from_an_older_copy_is_emptied() {
    let image = |device: &MortalDevice| device.inner.contents();
    let memory = |image: Vec<u8>| Arc::new(MemoryDevice::from_contents(image)) as Arc<dyn Device>;
    let devices = devices(2);
    let store = open(&devices);
    fill(&store, 1);
    block_on(store.close()).unwrap();
    drop(store);
    let older = image(&devices[0]);
    let store = open(&devices);
    let removed = 0..100;
    let replaced = 100..200;
    removed.clone().for_each(|key| block_on(store.remove(&key_bytes(key))).unwrap());
    replaced.clone().for_each(|key| assert!(insert(&store, key, 2, BODY_BYTES)));
    block_on(store.close()).unwrap();
    let store = Store::open_on_all(vec![memory(older.clone()), memory(image(&devices[1]))], &options()).unwrap();
    assert!(removed.clone().all(|key| version_of(&store, key).is_none()));
    assert!(replaced.clone().all(|key| version_of(&store, key).is_none_or(|version| version == 2)));
    check_share(KEYS.filter(|&key| version_of(&store, key).is_some()).count(), 1.0 / 3.0);
    drop(store);
    let error = Store::open_on_all(vec![memory(older.clone()), memory(older)], &options()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("copies of one volume"), "{error}");
}

/// Guards against an acknowledged removal although nothing could be written.
#[test]
fn a_store_whose_only_volume_died_misses_and_promises_nothing() {
    let devices = devices(1);
    let options = options();
    let store = Store::open_on(Arc::clone(&devices[0]) as Arc<dyn Device>, &options).unwrap();
    fill(&store, 1);
    block_on(store.sync()).unwrap();
    devices[0].set_dead(true);
    for _ in 0..10 {
        KEYS.for_each(|key| assert!(block_on(store.get(&key_bytes(key))).is_err()));
        options.clock.advance(Duration::from_secs(1));
    }
    notice_death(&store);
    assert_eq!(found(&store, 1), [0; 0]);
    assert_eq!(block_on(store.remove(&key_bytes(1))).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(block_on(store.clear()).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(block_on(store.close()).unwrap_err().kind(), ErrorKind::Unavailable);
}

/// Guards against a proxy that does not start because one of its disks is missing.
#[test]
fn a_volume_that_cannot_be_had_at_start_is_gone_without() {
    let scratch = tempfile::tempdir().unwrap();
    let options = |name: &str| StoreOptions::new(scratch.path().join(name), 32 << 20);
    let both = || vec![options("a"), options("b")];
    let store = Store::open_volumes(both()).unwrap();
    fill(&store, 1);
    block_on(store.close()).unwrap();
    drop(store);
    let holder = Store::open(options("a")).unwrap();
    let store = Store::open_volumes(both()).unwrap();
    while !store.stats().loaded {
        std::thread::yield_now();
    }
    assert_eq!(store.stats().volumes, 1);
    check_share(found(&store, 1).len(), 1.0 / 2.0);
    let error = Store::open_volumes(both()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
    drop((store, holder));
    let mut wrong = both();
    wrong[1].size_bytes += 4096;
    let error = Store::open_volumes(wrong).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}
