//! At stake: what the `log` row promises per operation, counted on a device in memory.

use super::log_checkpoint::Journal;
use crate::support::{HEAD_VERSION, block_on, head, insert, key_bytes, options, version_of};
use larder_store::{
    Hints, Store, StoreOptions,
    device::{Device, MemoryDevice},
};
use std::{sync::Arc, time::Duration};

/// Entries of about 1 KiB with their records.
const BODY_BYTES: usize = 800;
const KEYS: u64 = 1000;

fn filled(journal: &Arc<Journal>) -> (Store, StoreOptions) {
    let mut options = options();
    options.tuning.checkpoint_share = 0.0;
    let store = Store::open_on(Arc::clone(journal) as Arc<dyn Device>, &options).unwrap();
    (0..KEYS).for_each(|key| assert!(insert(&store, key, 1, BODY_BYTES)));
    (store, options)
}

#[test]
fn a_hit_costs_one_read_and_a_miss_none() {
    let journal = Journal::new();
    let (store, _) = filled(&journal);
    block_on(store.sync()).unwrap();
    let (reads, writes) = (journal.reads(), journal.writes());
    let hits = (0..KEYS).filter(|&key| version_of(&store, key) == Some(1)).count();
    // In so small an index a few keys have the same address.
    assert!(hits as u64 >= KEYS - 15, "{hits} hits");
    assert_eq!(journal.reads() - reads, KEYS as usize, "one read a hit, and one for each stranger at an address");
    let misses = 20_000;
    assert!((KEYS..KEYS + misses).all(|key| block_on(store.get(&key_bytes(key))).unwrap().is_none()));
    let strangers = journal.reads() - reads - KEYS as usize;
    assert!(strangers as f64 <= 0.004 * misses as f64, "{strangers} reads for {misses} misses");
    assert_eq!(journal.writes(), writes);
}

#[test]
fn an_entry_that_waits_for_its_unit_costs_no_read_and_no_write() {
    let journal = Journal::new();
    let (store, _) = filled(&journal);
    block_on(store.sync()).unwrap();
    let (reads, writes) = (journal.reads(), journal.writes());
    assert!(insert(&store, 5000, 1, BODY_BYTES));
    assert_eq!(version_of(&store, 5000), Some(1));
    assert_eq!((journal.reads(), journal.writes()), (reads, writes));
}

#[test]
fn inserts_are_gathered_into_units_of_a_quarter_of_a_small_segment() {
    let journal = Journal::new();
    let before = {
        let _superblocks = Store::open_on(Arc::clone(&journal) as Arc<dyn Device>, &options()).unwrap();
        journal.writes()
    };
    let (store, _) = filled(&journal);
    block_on(store.sync()).unwrap();
    let (count, bytes) = journal.writes();
    // A unit of 64 KiB holds its header and 63 records of 1 KiB; four units less a trailer fill a segment.
    let units = KEYS.div_ceil(63);
    let trailers = units.div_ceil(4);
    let expected = units..=units + 2 * trailers;
    assert!(expected.contains(&((count - before.0) as u64)), "{} writes", count - before.0);
    let records = KEYS * 1024;
    let share = (bytes - before.1) as f64 / records as f64;
    assert!(share <= 1.06, "{share} bytes written per byte of records");
}

#[test]
fn a_unit_that_is_not_full_is_written_after_the_flush_interval() {
    let journal = Journal::new();
    let (store, options) = filled(&journal);
    block_on(store.sync()).unwrap();
    assert!(insert(&store, 5000, 1, BODY_BYTES));
    let (writes, _) = journal.writes();
    options.clock.advance(options.flush_interval - Duration::from_millis(1));
    block_on(store.maintain());
    assert_eq!(journal.writes().0, writes);
    options.clock.advance(Duration::from_millis(1));
    block_on(store.maintain());
    assert_eq!(journal.writes().0, writes + 1);
}

/// Writes as much as the volume holds, asking for `wanted` now and then.
fn turn_over(store: &Store, from: u64, wanted: u64) {
    for key in from..from + 600 {
        assert!(insert(store, key, 1, 12_000));
        if key % 5 == 0 {
            version_of(store, wanted);
        }
    }
}

#[test]
fn an_entry_that_is_hit_outlives_its_segment_with_a_new_head_too() {
    // The share of a segment that is written again takes the longer one too.
    let options = StoreOptions { segment_size_bytes: 512 << 10, ..options() };
    for body_bytes in [20_000, 100_000] {
        let store = Store::open_on(Arc::new(MemoryDevice::new(6 << 20)), &options).unwrap();
        assert!(insert(&store, 1, 1, body_bytes));
        turn_over(&store, 10_000, 1);
        assert_eq!(version_of(&store, 1), Some(1));
        // The new head stands in a segment of its own, far from the body's.
        let new = head(1, HEAD_VERSION + 1, body_bytes);
        assert!(block_on(store.update_head(&key_bytes(1), new, Hints::default())).unwrap());
        for round in 2..5 {
            turn_over(&store, round * 10_000, 1);
            assert_eq!(version_of(&store, 1), Some(HEAD_VERSION + 1), "body of {body_bytes}, round {round}");
        }
    }
}

#[test]
fn with_second_hit_admission_an_entry_is_stored_the_second_time() {
    let mut options = options();
    options.tuning.second_hit = true;
    let journal = Journal::new();
    let store = Store::open_on(Arc::clone(&journal) as Arc<dyn Device>, &options).unwrap();
    let before = journal.writes();
    let stored_at_once =
        (0..200).filter(|&key| insert(&store, key, 1, 500) && version_of(&store, key).is_some()).count();
    assert!(stored_at_once <= 20, "{stored_at_once} of 200 taken for seen");
    assert_eq!(store.stats().not_admitted, 200 - stored_at_once as u64);
    (0..200).for_each(|key| assert!(insert(&store, key, 2, 500)));
    let found = (0..200).filter(|&key| version_of(&store, key) == Some(2)).count();
    assert!(found >= 195, "{found} of 200");
    // What is there already is replaced at once.
    (0..200).for_each(|key| assert!(insert(&store, key, 3, 500)));
    assert!((0..200).all(|key| version_of(&store, key).is_none_or(|version| version == 3)));
    assert!(journal.writes().0 > before.0);
}
