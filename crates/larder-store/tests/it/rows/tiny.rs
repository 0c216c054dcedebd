//! Checks the promises of `tiny`. One read for a short entry, two for a long one, several entries in one write of a
//! set, at most nine bits of memory per entry.

use crate::support::{block_on, body, cost, head, insert, key_bytes, options, version_of};
use larder_device::MemoryDevice;
use larder_store::{Hints, Policy, Store, StoreOptions};
use std::{sync::Arc, time::Duration};

const SHORT: usize = 900;
const LONG: usize = 30_000;

fn tiny_options(mean_entry_bytes: u64) -> StoreOptions {
    let policy = Policy::named("tiny").expect("it is in the table");
    StoreOptions { policy, mean_entry_bytes, identity_seed: Some(1), ..options() }
}

fn store(size_bytes: u64, options: &StoreOptions) -> Store {
    Store::open_on(Arc::new(MemoryDevice::new(size_bytes)), options).unwrap()
}

#[test]
fn a_short_entry_is_one_read_a_long_one_two_and_a_dirty_one_none() {
    let store = store(64 << 20, &tiny_options(2048));
    assert!(insert(&store, 1, 1, SHORT) && insert(&store, 2, 1, LONG));
    let dirty = cost(&store, || assert_eq!([1, 2].map(|key| version_of(&store, key)), [Some(1); 2]));
    assert_eq!((dirty.reads, dirty.writes), (0, 0));
    block_on(store.sync()).unwrap();
    assert_eq!(cost(&store, || assert_eq!(version_of(&store, 1), Some(1))).reads, 1);
    assert_eq!(cost(&store, || assert_eq!(version_of(&store, 2), Some(1))).reads, 2);
    assert_eq!(cost(&store, || assert_eq!(version_of(&store, 3), None)).reads, 0, "memory tells a miss");
}

#[test]
fn entries_share_writes_on_their_way_to_the_front_and_into_sets() {
    let store = store(64 << 20, &tiny_options(1024));
    let count = 1500;
    let front = cost(&store, || (0..count).for_each(|key| assert!(insert(&store, key, 1, SHORT))));
    assert!(front.writes * 50 < count, "{} writes of {count} entries", front.writes);
    (count..60_000).for_each(|key| assert!(insert(&store, key, 1, SHORT)));
    // From now on sets are not almost empty.
    let filled = cost(&store, || (60_000..120_000).for_each(|key| assert!(insert(&store, key, 1, SHORT))));
    let stats = store.stats();
    assert!(stats.evicted > 0 && stats.corrupt == 0, "{stats:?}");
    assert!(filled.writes * 3 < 60_000, "{} writes of 60000 entries", filled.writes);
    let hits = cost(&store, || {
        (110_000..120_000).for_each(|key| {
            let _ = version_of(&store, key);
        })
    });
    assert!(hits.hits > 3000, "{}", hits.hits);
    // The others are misses. A filter of three bits lets about a quarter of them through.
    let misses = 10_000 - hits.hits;
    assert!(hits.reads < hits.hits * 102 / 100 + misses * 35 / 100, "{} reads, {} hits", hits.reads, hits.hits);
}

#[test]
fn a_full_store_takes_at_most_nine_bits_of_memory_an_entry() {
    // Lengths as on the web: most entries are short, and most bytes are in long ones.
    for (mean, lens) in
        [(1200, [200, 300, 400, 600, 800, 1200, 1800, 3000]), (5600, [300, 900, 1500, 2500, 3500, 6000, 9000, 20_000])]
    {
        let store = store(64 << 20, &tiny_options(mean));
        for key in 0..120_000_u64 {
            assert!(insert(&store, key, 1, lens[(key * 5 % 8) as usize]));
        }
        let stats = store.stats();
        let bits = stats.index_bytes as f64 * 8.0 / stats.entries as f64;
        assert!(bits <= 9.0, "{bits} bits for each of {} entries of {mean} bytes", stats.entries);
    }
}

/// Guards against a wrong byte. A set has checksums of its own, which must not be made of a body that the front
/// damaged.
#[test]
fn a_body_that_was_damaged_in_the_front_is_not_made_valid_by_its_move_to_a_set() {
    let options = tiny_options(1024);
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let store = Store::open_on(Arc::clone(&device) as _, &options).unwrap();
    (0..200).for_each(|key| assert!(insert(&store, key, 1, SHORT)));
    block_on(store.close()).unwrap();
    let mut contents = device.contents();
    for key in (0..200).step_by(2) {
        let body = body(key, 1, SHORT);
        let start = contents.windows(SHORT).position(|window| window == body).expect("the device has the body");
        contents[start + SHORT / 2] ^= 1;
    }
    let store = Store::open_on(Arc::new(MemoryDevice::from_contents(contents)), &options).unwrap();
    (1000..5000).for_each(|key| assert!(insert(&store, key, 1, SHORT)));
    let found = |rest: u64| (0..200).filter(|key| key % 2 == rest && version_of(&store, *key).is_some()).count();
    assert_eq!(found(0), 0, "a damaged entry is a miss");
    assert!(found(1) > 50, "the others have moved to sets: {}", found(1));
}

#[test]
fn a_full_store_of_small_entries_takes_at_most_nine_bits_of_memory_an_entry() {
    let store = store(8 << 20, &tiny_options(150));
    (0..160_000_u64).for_each(|key| assert!(insert(&store, key, 1, (100 + key * 7 % 101) as usize)));
    let stats = store.stats();
    let bits = stats.index_bytes as f64 * 8.0 / stats.entries as f64;
    assert!(stats.entries > 30_000 && bits <= 9.0, "{bits} bits for each of {} entries", stats.entries);
}

#[test]
fn entries_of_64_bytes_are_the_smallest_that_tiny_can_be_set_up_for_and_of_512_those_of_others() {
    let refusal = |options: &StoreOptions| {
        Store::open_on(Arc::new(MemoryDevice::new(64 << 20)), options).err().map(|error| error.to_string())
    };
    assert_eq!(refusal(&tiny_options(64)), None);
    assert!(refusal(&tiny_options(63)).is_some_and(|message| message.contains("from 64 bytes")));
    let log = StoreOptions { mean_entry_bytes: 511, ..options() };
    assert!(refusal(&log).is_some_and(|message| message.contains("from 512 bytes")));
}

#[test]
fn a_clean_close_keeps_everything_and_a_kill_what_was_flushed() {
    let options = tiny_options(1024);
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let store = Store::open_on(Arc::clone(&device) as _, &options).unwrap();
    (0..9000).for_each(|key| assert!(insert(&store, key, 1, SHORT)));
    let found = |store: &Store| (0..9000).filter(|&key| version_of(store, key).is_some()).count();
    let before = found(&store);
    block_on(store.sync()).unwrap();
    let killed = Store::open_on(Arc::new(device.snapshot()), &options).unwrap();
    assert!(killed.stats().loaded);
    assert_eq!(found(&killed), before, "the sets are read again");
    block_on(store.close()).unwrap();
    let reads_of_start = |device: MemoryDevice| {
        let again = Store::open_on(Arc::new(device), &options).unwrap();
        let reads = again.stats().reads;
        assert_eq!(found(&again), before);
        reads
    };
    let with_snapshot = reads_of_start(device.snapshot());
    assert!(with_snapshot < killed.stats().reads, "a snapshot saves reading the sets");
}

#[test]
fn a_new_version_hides_the_old_one_wherever_that_is() {
    let store = store(16 << 20, &tiny_options(1024));
    for round in 1..=12 {
        for key in 0..700 {
            let len = if (key + round) % 5 == 0 { LONG } else { SHORT };
            assert!(insert(&store, key, round, len));
        }
        (10_000 * round..10_000 * round + 900).for_each(|key| assert!(insert(&store, key, 1, SHORT)));
        for key in 0..700 {
            let found = version_of(&store, key);
            assert!(found.is_none_or(|found| found == round), "key {key} of round {round}: {found:?}");
        }
    }
}

#[test]
fn a_removed_entry_stays_removed_when_its_tombstone_moves_and_after_a_kill() {
    let options = tiny_options(1024);
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let store = Store::open_on(Arc::clone(&device) as _, &options).unwrap();
    (0..8000).for_each(|key| assert!(insert(&store, key, 1, SHORT)));
    let kept: Vec<u64> = (0..8000).filter(|&key| version_of(&store, key).is_some()).step_by(3).collect();
    assert!(kept.len() > 500);
    for key in &kept {
        block_on(store.remove(&key_bytes(*key))).unwrap();
    }
    // The tombstones leave the front.
    (100_000..104_000).for_each(|key| assert!(insert(&store, key, 1, SHORT)));
    options.clock.advance(Duration::from_secs(6));
    block_on(store.maintain());
    assert!(kept.iter().all(|&key| version_of(&store, key).is_none()));
    let killed = Store::open_on(Arc::new(device.snapshot()), &options).unwrap();
    assert!(kept.iter().all(|&key| version_of(&killed, key).is_none()));
}

#[test]
fn a_hit_keeps_a_short_entry_in_its_set() {
    let store = store(16 << 20, &tiny_options(1024));
    let popular = 300;
    for key in 0..60_000 {
        assert!(insert(&store, 1000 + key, 1, SHORT));
        if key < popular {
            assert!(insert(&store, key, 1, SHORT));
        }
        let _ = version_of(&store, key % popular);
    }
    let kept = (0..popular).filter(|&key| version_of(&store, key).is_some()).count();
    let old = (0..popular).filter(|&key| version_of(&store, 1000 + key).is_some()).count();
    assert!(kept > 200 && old < 20, "{kept} that were hit and {old} that were not");
}

#[test]
fn a_head_is_replaced_in_front_and_set() {
    let store = store(16 << 20, &tiny_options(1024));
    (0..8000).for_each(|key| assert!(insert(&store, key, 1, SHORT)));
    let kept: Vec<u64> = (0..8000).filter(|&key| version_of(&store, key).is_some()).step_by(50).collect();
    let mut replaced = 0;
    for &key in &kept {
        // Heads that are replaced go to the front, and may drop others.
        if version_of(&store, key).is_none() {
            continue;
        }
        replaced += 1;
        assert!(block_on(store.update_head(&key_bytes(key), "new".into(), Hints::default())).unwrap());
        let reader = block_on(store.get(&key_bytes(key))).unwrap().unwrap();
        assert_eq!(reader.head(), "new");
        assert_eq!(block_on(reader.read(0..reader.len())).unwrap().unwrap(), body(key, 1, SHORT));
        assert_ne!(reader.head(), head(key, 1, SHORT));
    }
    assert!(replaced > 100, "{replaced} of {}", kept.len());
}
