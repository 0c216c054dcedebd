//! At stake: a cache may forget, it may never lie. Random operations against a model that may only
//! forget; after a crash, what was not yet durable may be lost, but nothing else may appear.

use crate::support::{
    GatedDevice, HEAD_VERSION, RecordingDevice, block_on, head, insert, key_bytes, open_image, options, version_of,
};
use larder_store::{Hints, Invalidation, Store, StoreOptions, device::Device};
use proptest::prelude::*;
use std::{
    collections::HashMap,
    future::Future,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

#[derive(Clone, Debug)]
enum Operation {
    Insert { key: u64, body_len: usize },
    Get { key: u64 },
    Remove { key: u64 },
    UpdateHead { key: u64 },
    Sync,
    Wait,
    InvalidateAll,
    Reopen,
    Crash,
}

fn operation() -> impl Strategy<Value = Operation> {
    let key = 0..40_u64;
    let len = prop_oneof![4 => 0..3000_usize, 2 => 3000..40_000_usize, 1 => 60_000..140_000_usize];
    prop_oneof![
        40 => (key.clone(), len).prop_map(|(key, body_len)| Operation::Insert { key, body_len }),
        30 => key.clone().prop_map(|key| Operation::Get { key }),
        6 => key.clone().prop_map(|key| Operation::Remove { key }),
        6 => key.prop_map(|key| Operation::UpdateHead { key }),
        3 => Just(Operation::Sync),
        6 => Just(Operation::Wait),
        1 => Just(Operation::InvalidateAll),
        1 => Just(Operation::Reopen),
        2 => Just(Operation::Crash),
    ]
}

/// What may be found of one key: the last version, or after a crash any since the last durable one.
#[derive(Clone, Debug, Default)]
struct Known {
    versions: Vec<u64>,
    lens: HashMap<u64, usize>,
    crashed: bool,
}

struct Run {
    device: Arc<RecordingDevice>,
    options: StoreOptions,
    store: Store,
    model: HashMap<u64, Known>,
    next_version: u64,
}

impl Run {
    fn new() -> Self {
        let (device, options) = (Arc::new(RecordingDevice::new()), options());
        let store = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &options).unwrap();
        Self { device, options, store, model: HashMap::new(), next_version: 1 }
    }

    fn step(&mut self, operation: &Operation) {
        match *operation {
            Operation::Insert { key, body_len } => self.insert(key, body_len),
            Operation::Get { key } => self.check(key),
            Operation::Remove { key } => {
                block_on(self.store.remove(&key_bytes(key))).unwrap();
                self.model.remove(&key);
                assert_eq!(version_of(&self.store, key), None, "a removed entry is gone");
            }
            Operation::UpdateHead { key } => self.update_head(key),
            Operation::Sync => {
                block_on(self.store.sync()).unwrap();
                self.all_durable();
            }
            Operation::Wait => {
                self.options.clock.advance(Duration::from_secs(6));
                block_on(self.store.maintain());
            }
            Operation::InvalidateAll => {
                block_on(self.store.invalidate(Invalidation::All)).unwrap();
                self.model.clear();
            }
            Operation::Reopen => {
                block_on(self.store.close()).unwrap();
                self.all_durable();
                self.open_again();
            }
            Operation::Crash => {
                self.open_again();
                self.model.values_mut().for_each(|known| known.crashed = true);
            }
        }
    }

    fn insert(&mut self, key: u64, body_len: usize) {
        let version = self.next_version;
        self.next_version += 1;
        if insert(&self.store, key, version, body_len) {
            self.note(key, version, body_len);
        }
    }

    fn update_head(&mut self, key: u64) {
        self.check(key);
        let Some(version) = version_of(&self.store, key) else { return };
        let body_len = self.model[&key].lens[&version];
        let new_version = version % HEAD_VERSION + HEAD_VERSION;
        let new_head = head(key, new_version, body_len);
        if block_on(self.store.update_head(&key_bytes(key), new_head, Hints::default())).is_ok_and(|updated| updated) {
            self.note(key, new_version, body_len);
        }
    }

    fn note(&mut self, key: u64, version: u64, body_len: usize) {
        let known = self.model.entry(key).or_default();
        known.versions.push(version);
        known.lens.insert(version, body_len);
        known.crashed = false;
    }

    fn check(&self, key: u64) {
        let Some(found) = version_of(&self.store, key) else { return };
        let known = self.model.get(&key).unwrap_or_else(|| panic!("key {key} was never stored, or removed: {found}"));
        if known.crashed {
            assert!(known.versions.contains(&found), "key {key}: {found} is none of {:?}", known.versions);
        } else {
            assert_eq!(Some(&found), known.versions.last(), "key {key}");
        }
    }

    fn all_durable(&mut self) {
        for known in self.model.values_mut().filter(|known| !known.crashed) {
            known.versions.drain(..known.versions.len() - 1);
        }
    }

    /// Continues on what the device holds now, as after a kill.
    fn open_again(&mut self) {
        let device: Arc<dyn Device> = Arc::clone(&self.device) as _;
        self.store = Store::open_on(device, &self.options).unwrap();
    }

    fn check_all(&self) {
        (0..40).for_each(|key| self.check(key));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_store_may_forget_but_never_lies(operations in prop::collection::vec(operation(), 1..300)) {
        let mut run = Run::new();
        for operation in &operations {
            run.step(operation);
        }
        run.check_all();
    }
}

#[test]
fn a_store_that_is_full_many_times_over_keeps_to_the_law_and_to_its_size() {
    let mut run = Run::new();
    for round in 0..3000_u64 {
        run.insert(round % 700, (round as usize * 7919) % 30_000);
        run.step(&Operation::Get { key: (round * 7) % 40 });
        if round % 50 == 0 {
            run.step(&Operation::Wait);
        }
    }
    run.check_all();
    let stats = run.store.stats();
    assert!(stats.written_bytes > 5 * stats.size_bytes, "the log went round: {stats:?}");
    assert!(stats.reinserted > 0 && stats.evicted > 0, "{stats:?}");
    assert_eq!(stats.corrupt, 0);
}

#[test]
fn a_removed_entry_stays_removed_after_a_crash() {
    let mut run = Run::new();
    for key in 0..20 {
        run.insert(key, 1000);
    }
    run.step(&Operation::Sync);
    run.step(&Operation::Remove { key: 7 });
    let reopened = open_image(run.device.contents());
    assert_eq!(version_of(&reopened, 7), None);
    assert_eq!((0..20).filter(|&key| version_of(&reopened, key).is_some()).count(), 19);
}

#[test]
fn an_invalidation_outlives_a_crash_and_covers_writers_begun_before_it() {
    let mut run = Run::new();
    run.insert(1, 100);
    let mut writer = run.store.insert(&key_bytes(2), head(2, 9, 0), Hints::default()).unwrap();
    writer.write(bytes::Bytes::new()).unwrap();
    run.step(&Operation::InvalidateAll);
    block_on(writer.commit()).unwrap();
    run.insert(3, 100);
    run.step(&Operation::Sync);
    let reopened = open_image(run.device.contents());
    assert_eq!([1, 2, 3].map(|key| version_of(&reopened, key).is_some()), [false, false, true]);
}

#[test]
fn an_entry_of_no_more_use_is_a_miss() {
    let run = Run::new();
    let hints = Hints { useless_after: 1_700_000_100, ..Hints::default() };
    let mut writer = run.store.insert(&key_bytes(1), head(1, 1, 0), hints).unwrap();
    writer.write(bytes::Bytes::new()).unwrap();
    block_on(writer.commit()).unwrap();
    assert_eq!(version_of(&run.store, 1), Some(1));
    run.options.clock.advance(Duration::from_secs(101));
    let reads_before = run.store.stats().reads;
    assert_eq!(version_of(&run.store, 1), None);
    assert_eq!(run.store.stats().reads, reads_before, "known from memory, without a device read");
}

#[test]
fn a_writer_that_is_dropped_leaves_no_trace() {
    let run = Run::new();
    let mut writer = run.store.insert(&key_bytes(1), head(1, 1, 3), Hints::default()).unwrap();
    writer.write("abc".into()).unwrap();
    drop(writer);
    assert_eq!(version_of(&run.store, 1), None);
}

#[test]
fn a_new_head_does_not_bring_back_what_was_removed_or_replaced_meanwhile() {
    for replaced in [false, true] {
        let device = Arc::new(GatedDevice::new());
        let store = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &options()).unwrap();
        assert!(insert(&store, 1, 1, 100_000));
        block_on(store.sync()).unwrap();
        device.hold_reads();
        let (key, new_head) = (key_bytes(1), head(1, 1 + HEAD_VERSION, 100_000));
        let mut update = Box::pin(store.update_head(&key, new_head, Hints::default()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(update.as_mut().poll(&mut context).is_pending(), "it waits for the device");
        if replaced {
            assert!(insert(&store, 1, 2, 500));
        } else {
            block_on(store.remove(&key)).unwrap();
        }
        device.release_reads();
        assert!(!block_on(update).unwrap());
        assert_eq!(version_of(&store, 1), replaced.then_some(2));
    }
}
