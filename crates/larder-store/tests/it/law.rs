//! Checks that a cache may forget, but never lies. Random operations on every policy are compared with a model that may
//! only forget. After a crash, data that was not durable may be lost, but nothing else may appear.

use crate::support::{GatedDevice, block_on, body, head, insert, key_bytes, version_of};
use bytes::Bytes;
use larder_device::Device;
use larder_store::{Hints, Policy, Store, StoreOptions};
use larder_torture::{Crash, Operation, Trial, faults, options};
use proptest::{
    prelude::*,
    test_runner::{RngAlgorithm, TestCaseError, TestRng, TestRunner},
};
use std::{
    future::Future,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

/// Cases of each policy without faults, and under each kind of fault. `cargo xtask sim` can run any number.
const CASES: u32 = 16;
const CASES_UNDER_FAULTS: u32 = 2;

fn operation() -> impl Strategy<Value = Operation> {
    let key = 0..40_u64;
    let len = prop_oneof![4 => 0..3000_u64, 2 => 3000..40_000_u64, 1 => 60_000..140_000_u64];
    let insert = (key.clone(), len, prop::bool::weighted(0.1))
        .prop_map(|(key, body_bytes, short_lived)| Operation::Insert { key, body_bytes, short_lived });
    let crash = (any::<bool>(), prop::option::of(0..40_u64)).prop_map(|(is_kill, again_after)| Operation::Crash {
        how: if is_kill { Crash::Kill } else { Crash::PowerCut },
        again_after,
    });
    prop_oneof![
        40 => insert,
        25 => key.clone().prop_map(|key| Operation::Read { key }),
        10 => (key.clone(), any::<u64>()).prop_map(|(key, part)| Operation::ReadPart { key, part }),
        6 => key.clone().prop_map(|key| Operation::Remove { key }),
        6 => key.clone().prop_map(|key| Operation::UpdateHead { key }),
        2 => key.prop_map(|key| Operation::Abandon { key }),
        3 => Just(Operation::Sync),
        6 => prop_oneof![Just(700), Just(6_500), Just(70_000)].prop_map(|milliseconds| Operation::Wait { milliseconds }),
        1 => Just(Operation::Clear),
        1 => Just(Operation::Reopen),
        2 => crash,
    ]
}

/// Runs operations on a row; the law it broke.
fn check(policy: &'static Policy, faults: &str, seed: u64, operations: &[Operation]) -> Result<Trial, String> {
    let faults = faults::named(faults).expect("a kind of faults");
    let mut trial = Trial::new(options(policy, seed), &faults, seed)?;
    operations.iter().try_for_each(|&operation| trial.step(operation))?;
    trial.check_all()?;
    Ok(trial)
}

/// Runs random operations on every policy under one kind of fault. They are the same in every run.
fn check_random_operations(faults: &str, cases: u32) {
    for policy in Policy::all() {
        let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
        let strategy = (any::<u64>(), prop::collection::vec(operation(), 1..250));
        let outcome = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
            .run(&strategy, |(seed, operations)| {
                check(policy, faults, seed, &operations).map(drop).map_err(TestCaseError::fail)
            });
        outcome.unwrap_or_else(|broken| panic!("row {policy}: {broken}"));
    }
}

#[test]
fn a_store_may_forget_but_never_lies() {
    check_random_operations("none", CASES);
}

/// If a policy's memory cannot distinguish an entry from an older one of its key, an older one may appear after a write
/// that was acknowledged and lost, and only then.
#[test]
fn a_failing_or_lying_device_costs_entries_but_never_shows_wrong_ones() {
    for faults in ["slow", "errors", "torn", "lost", "misdirected", "flipped", "full", "dead"] {
        check_random_operations(faults, CASES_UNDER_FAULTS);
    }
}

#[test]
fn a_store_that_is_full_many_times_over_keeps_to_the_law_and_to_its_size() {
    for policy in Policy::all() {
        let mut operations = Vec::new();
        for round in 0..1500_u64 {
            operations.push(Operation::Insert {
                key: round % 700,
                body_bytes: round * 7919 % 30_000,
                short_lived: false,
            });
            operations.push(Operation::Read { key: round * 7 % 40 });
            if round % 50 == 0 {
                operations.push(Operation::Wait { milliseconds: 6_500 });
            }
        }
        let trial = check(policy, "none", 1, &operations).unwrap_or_else(|broken| panic!("row {policy}: {broken}"));
        let stats = trial.store().unwrap().stats();
        assert!(stats.written_bytes > 2 * stats.size_bytes, "row {policy} went round: {stats:?}");
        assert!(stats.evicted + stats.displaced > 0 || stats.entries == 0, "row {policy}: {stats:?}");
        assert_eq!(stats.corrupt, 0, "row {policy}");
    }
}

#[test]
fn hit_entries_survive_reclaim_in_the_log() {
    let mut operations = Vec::new();
    for round in 0..1500_u64 {
        operations.push(Operation::Insert { key: 100 + round, body_bytes: 15_000, short_lived: false });
        operations.extend(
            [Operation::Insert { key: 1, body_bytes: 500, short_lived: false }].into_iter().filter(|_| round == 0),
        );
        operations.push(Operation::Read { key: 1 });
    }
    // With some seeds, the entry is lost to another key with the same address.
    let survives = |seed| {
        let trial = check(Policy::default_policy(), "none", seed, &operations).unwrap();
        let store = trial.store().unwrap();
        assert!(store.stats().reinserted > 0 && store.stats().evicted > 0);
        block_on(store.get(&larder_torture::content::key_bytes(1))).unwrap().is_some()
    };
    let survived = (1..=6).filter(|&seed| survives(seed)).count();
    assert!(survived >= 5, "with {survived} of 6 seeds");
}

#[test]
fn a_removed_entry_stays_removed_after_a_crash() {
    for policy in Policy::all() {
        let mut operations: Vec<_> =
            (0..20).map(|key| Operation::Insert { key, body_bytes: 1000, short_lived: false }).collect();
        let crash = Operation::Crash { how: Crash::Kill, again_after: None };
        operations.extend([Operation::Sync, Operation::Remove { key: 7 }, crash]);
        let trial = check(policy, "none", 1, &operations).unwrap_or_else(|broken| panic!("row {policy}: {broken}"));
        let store = trial.store().unwrap();
        let found = |key| block_on(store.get(&larder_torture::content::key_bytes(key))).unwrap().is_some();
        assert!(!found(7), "row {policy}");
        if policy.name == "log" {
            assert_eq!((0..20).filter(|&key| found(key)).count(), 19);
        }
    }
}

#[test]
fn an_invalidation_outlives_a_crash_and_covers_writers_begun_before_it() {
    for policy in Policy::all() {
        let mut trial = Trial::new(options(policy, 1), &faults::named("none").unwrap(), 1).unwrap();
        let store = trial.store().unwrap().clone();
        assert!(insert(&store, 1, 1, 100));
        let mut writer = store.insert(&key_bytes(2), head(2, 9, 0), Hints::default()).unwrap();
        writer.write(Bytes::new()).unwrap();
        block_on(store.clear()).unwrap();
        block_on(writer.commit()).unwrap();
        assert!(insert(&store, 3, 1, 100));
        block_on(store.sync()).unwrap();
        assert_eq!([1, 2, 3].map(|key| version_of(&store, key).is_some()), [false, false, true], "row {policy}");
        trial.step(Operation::Crash { how: Crash::Kill, again_after: None }).unwrap();
        let store = trial.store().unwrap();
        assert_eq!([1, 2].map(|key| version_of(store, key)), [None, None], "row {policy}");
    }
}

fn store_of(policy: &'static Policy) -> (Store, StoreOptions) {
    let options = options(policy, 1);
    let trial = Trial::new(options.clone(), &faults::named("none").unwrap(), 1).unwrap();
    (trial.store().unwrap().clone(), options)
}

#[test]
fn an_entry_of_no_more_use_is_a_miss() {
    for policy in Policy::all() {
        let (store, options) = store_of(policy);
        let hints = Hints { expires_at: 1_700_000_100, ..Hints::default() };
        let mut writer = store.insert(&key_bytes(1), head(1, 1, 0), hints).unwrap();
        writer.write(Bytes::new()).unwrap();
        block_on(writer.commit()).unwrap();
        assert_eq!(version_of(&store, 1), Some(1), "row {policy}");
        options.clock.advance(Duration::from_secs(101));
        let reads_before = store.stats().reads;
        assert_eq!(version_of(&store, 1), None, "row {policy}");
        if policy.name == "log" {
            assert_eq!(store.stats().reads, reads_before, "known from memory, without a device read");
        }
    }
}

#[test]
fn a_writer_that_is_dropped_leaves_no_trace() {
    for policy in Policy::all() {
        let (store, _) = store_of(policy);
        let mut writer = store.insert(&key_bytes(1), head(1, 1, 3), Hints::default()).unwrap();
        writer.write("abc".into()).unwrap();
        drop(writer);
        assert_eq!(version_of(&store, 1), None, "row {policy}");
    }
}

#[test]
fn a_new_head_does_not_bring_back_what_was_removed_or_replaced_meanwhile() {
    // Reads of files cannot be delayed.
    let rows = Policy::all().iter().filter(|policy| !policy.layout.keeps_files());
    for (policy, replaced) in rows.flat_map(|policy| [(policy, false), (policy, true)]) {
        let device = Arc::new(GatedDevice::new());
        let store = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &options(policy, 1)).unwrap();
        assert!(insert(&store, 1, 1, 100_000));
        block_on(store.sync()).unwrap();
        device.hold_reads();
        let key = key_bytes(1);
        let new_head = head(1, 1 + crate::support::HEAD_VERSION, 100_000);
        let mut update = Box::pin(store.update_head(&key, new_head, Hints::default()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(update.as_mut().poll(&mut context).is_pending(), "row {policy} waits for the device");
        let change = async {
            // Both first look up whether the key has an entry, which takes a read.
            if replaced {
                let mut writer = store.insert(&key, head(1, 2, 500), Hints::default()).unwrap();
                writer.write(body(1, 2, 500)).unwrap();
                writer.commit().await.unwrap();
            } else {
                store.remove(&key_bytes(1)).await.unwrap();
            }
        };
        let mut change = Box::pin(change);
        let is_done = change.as_mut().poll(&mut context).is_ready();
        device.release_reads();
        if !is_done {
            block_on(change.as_mut());
        }
        let updated = block_on(update).unwrap();
        let found = version_of(&store, 1);
        assert!(!updated, "row {policy}: the entry changed before the head was given");
        assert_eq!(found, replaced.then_some(2), "row {policy}");
    }
}
