//! Checks the costs per operation that the policy `log` promises, counted on a device in memory.

use super::log_checkpoint::Journal;
use crate::support::{HEAD_VERSION, SIZE_BYTES, block_on, body, head, insert, key_bytes, options, version_of};
use larder_device::{Device, MemoryDevice};
use larder_store::{EvictedEntry, EvictionReceiver, Hints, Objective, Store, StoreOptions};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

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
    let reads = journal.reads();
    let writes = journal.writes();
    let hits = (0..KEYS).filter(|&key| version_of(&store, key) == Some(1)).count();
    assert_eq!(hits as u64, KEYS);
    let more = journal.reads() - reads - hits;
    assert!(more <= 12, "one read a hit, and one for a newer entry of the same address: {more} more");
    let reads = journal.reads();
    let misses = 20_000;
    assert!((KEYS..KEYS + misses).all(|key| block_on(store.get(&key_bytes(key))).unwrap().is_none()));
    let strangers = journal.reads() - reads;
    assert!(strangers as f64 <= 0.004 * misses as f64, "{strangers} reads for {misses} misses");
    assert_eq!(journal.writes(), writes);
}

/// Creates a store whose index, but not its volume, is nearly full of small entries. Returns their number too.
fn crowded() -> (Arc<Journal>, Store, StoreOptions, u64) {
    let size_bytes = 8 * SIZE_BYTES;
    let options = StoreOptions { size_bytes, index_bytes_max: 36_000, ..options() };
    let journal = Journal::of(size_bytes);
    let store = Store::open_on(Arc::clone(&journal) as Arc<dyn Device>, &options).unwrap();
    let keys = store.stats().entries_max;
    assert!((4_000..8_000).contains(&keys), "{keys}");
    (0..keys).for_each(|key| assert!(insert(&store, key, 1, 60)));
    (journal, store, options, keys)
}

#[test]
fn no_insert_drops_another_keys_entry() {
    let mut reads_a_hit = Vec::new();
    for _ in 0..8 {
        let (journal, store, _, keys) = crowded();
        block_on(store.sync()).unwrap();
        let reads = journal.reads();
        let found = (0..keys).filter(|&key| version_of(&store, key) == Some(1)).count() as u64;
        let displaced = store.stats().displaced;
        assert_eq!(store.stats().entries, found, "what is counted is found");
        assert!(found + 2 * displaced >= keys && displaced <= keys / 200, "{found} of {keys}, {displaced} displaced");
        reads_a_hit.push((journal.reads() - reads) as f64 / keys as f64);
        // Replaced and removed among strangers.
        (0..keys).step_by(2).for_each(|key| assert!(insert(&store, key, 2, 60)));
        (0..keys).step_by(3).for_each(|key| block_on(store.remove(&key_bytes(key))).unwrap());
        let displaced = store.stats().displaced;
        assert!(displaced <= keys / 200, "{displaced} displaced");
        for key in 0..keys {
            let expected = (key % 3 != 0).then_some(if key % 2 == 0 { 2 } else { 1 });
            let found = version_of(&store, key);
            assert!(found == expected || (found.is_none() && displaced > 0), "key {key}: {found:?}");
        }
    }
    let mean = reads_a_hit.iter().sum::<f64>() / reads_a_hit.len() as f64;
    assert!(mean <= 1.003, "{reads_a_hit:?}");
}

#[test]
fn what_is_found_after_a_kill_is_the_newest_of_every_key_however_crowded() {
    let mut lost_of_all = 0;
    let mut all = 0;
    for seed in 0..4 {
        let (journal, store, options, keys) = crowded();
        // A checkpoint of some moment, and news after it.
        block_on(store.close()).unwrap();
        let store = Store::open_on(Arc::clone(&journal) as Arc<dyn Device>, &options).unwrap();
        (seed..keys).step_by(7).for_each(|key| assert!(insert(&store, key, 2, 60)));
        (seed..keys).step_by(11).for_each(|key| block_on(store.remove(&key_bytes(key))).unwrap());
        (seed..keys).step_by(21).for_each(|key| assert!(insert(&store, key, 3, 60)));
        block_on(store.sync()).unwrap();
        let model = |key: u64| {
            let is = |step: u64| key.checked_sub(seed).is_some_and(|from_seed| from_seed.is_multiple_of(step));
            if is(21) {
                Some(3)
            } else if is(11) {
                None
            } else if is(7) {
                Some(2)
            } else {
                Some(1)
            }
        };
        let expected: Vec<_> = (0..keys).map(|key| version_of(&store, key)).collect();
        let store = Store::open_on(journal.killed(), &options).unwrap();
        let mut lost = 0;
        for key in 0..keys {
            let found = version_of(&store, key);
            assert!(found.is_none() || found == model(key), "key {key}: {found:?}");
            lost += u64::from(found != expected[key as usize]);
        }
        (lost_of_all, all) = (lost_of_all + lost, all + keys);
        // The owners of the slots can still be distinguished.
        (seed..keys).step_by(7).for_each(|key| block_on(store.remove(&key_bytes(key))).unwrap());
        (seed..keys).step_by(7).for_each(|key| assert_eq!(version_of(&store, key), None));
        let gone = (0..keys).filter(|key| *key < seed || (key - seed) % 7 != 0);
        let wrong = gone.filter(|&key| version_of(&store, key) != expected[key as usize]).count() as u64;
        assert!(wrong <= lost, "removals took nobody else's entry");
    }
    // If there is no room for two slots that may or may not be of one key, one is dropped: on average two or three of a
    // volume's 5,000 keys. Which ones, and how many, depends on the volume's secret.
    let lost = lost_of_all;
    assert!(lost <= all / 1000, "what was there before the kill is there after it: {lost} of {all} are not");
}

#[test]
fn an_entry_that_waits_for_its_unit_costs_no_read_and_no_write() {
    let journal = Journal::new();
    let (store, _) = filled(&journal);
    block_on(store.sync()).unwrap();
    let reads = journal.reads();
    let writes = journal.writes();
    assert!(insert(&store, 5000, 1, BODY_BYTES));
    assert_eq!(version_of(&store, 5000), Some(1));
    assert_eq!((journal.reads(), journal.writes()), (reads, writes));
}

#[test]
fn inserts_are_gathered_into_units_of_half_of_a_small_segment() {
    let journal = Journal::new();
    let before = {
        let _superblocks = Store::open_on(Arc::clone(&journal) as Arc<dyn Device>, &options()).unwrap();
        journal.writes()
    };
    let (store, _) = filled(&journal);
    block_on(store.sync()).unwrap();
    let (count, bytes) = journal.writes();
    // A unit of 128 KiB holds its header and at least 145 records; two units and a trailer fill a segment.
    let record_bytes = (64 + key_bytes(0).len() + head(0, 1, BODY_BYTES).len() + BODY_BYTES) as u64;
    let units = KEYS.div_ceil(((128 << 10) - 64) / record_bytes.next_multiple_of(8));
    let trailers = units.div_ceil(2);
    let expected = units..=units + 2 * trailers;
    assert!(expected.contains(&((count - before.0) as u64)), "{} writes", count - before.0);
    let records = KEYS * record_bytes;
    let share = (bytes - before.1) as f64 / records as f64;
    assert!(share <= 1.06, "{share} bytes written per byte of records");
}

#[test]
fn a_unit_that_is_not_full_is_written_after_the_flush_interval() {
    let journal = Journal::new();
    let (store, options) = filled(&journal);
    block_on(store.sync()).unwrap();
    // After this, the superblock vouches for the filled segments.
    block_on(store.maintain());
    assert!(insert(&store, 5000, 1, BODY_BYTES));
    let (writes, _) = journal.writes();
    options.clock.advance(options.flush_interval - Duration::from_millis(1));
    block_on(store.maintain());
    assert_eq!(journal.writes().0, writes);
    options.clock.advance(Duration::from_millis(1));
    block_on(store.maintain());
    assert_eq!(journal.writes().0, writes + 1);
}

/// Writes as many bytes as the volume holds, requesting `wanted` now and then.
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
    // The share of a segment that may be rewritten holds the longer entry too.
    let options = StoreOptions { segment_size_bytes: Some(512 << 10), ..options() };
    for body_bytes in [20_000, 100_000] {
        let store = Store::open_on(Arc::new(MemoryDevice::new(6 << 20)), &options).unwrap();
        assert!(insert(&store, 1, 1, body_bytes));
        turn_over(&store, 10_000, 1);
        assert_eq!(version_of(&store, 1), Some(1));
        // The new head is in a segment of its own, far from the body's.
        let new = head(1, HEAD_VERSION + 1, body_bytes);
        assert!(block_on(store.update_head(&key_bytes(1), new, Hints::default())).unwrap());
        for round in 2..5 {
            turn_over(&store, round * 10_000, 1);
            assert_eq!(version_of(&store, 1), Some(HEAD_VERSION + 1), "body of {body_bytes}, round {round}");
        }
    }
}

#[test]
fn an_entry_that_is_held_outlives_its_segment_until_it_is_let_go() {
    let mut options = StoreOptions { size_bytes: 4 * SIZE_BYTES, ..options() };
    options.tuning.reinsertion_share = 0.0;
    let store = Store::open_on(Arc::new(MemoryDevice::new(options.size_bytes)), &options).unwrap();
    // Three of them are longer than a segment, like the chunks of a long body. A volume of this size can protect three.
    let wanted = [1, 2, 3];
    wanted.iter().for_each(|&key| assert!(insert(&store, key, 1, 100_000)));
    // The first insertion goes to probation; the second, a replacement, to a main segment.
    let twice = |key| insert(&store, key, 1, 12_000) && insert(&store, key, 1, 12_000);
    let turn_over = |from: u64| (from..from + 1_200).for_each(|key| assert!(twice(key)));
    let held: Vec<_> = wanted.iter().map(|&key| store.protect(&key_bytes(key))).collect();
    (1..4).for_each(|round| turn_over(round * 10_000));
    let found: Vec<_> = wanted.iter().map(|&key| version_of(&store, key)).collect();
    assert_eq!(found, [Some(1); 3]);
    drop(held);
    turn_over(50_000);
    assert!(wanted.iter().all(|&key| version_of(&store, key).is_none()));
}

/// Guards against a long download that breaks in a busy store, because other writers take the room needed to rewrite
/// its entries.
#[test]
fn an_entry_that_is_held_outlives_turnovers_by_many_writers_at_once() {
    let mut options =
        StoreOptions { size_bytes: 48 << 20, segment_size_bytes: Some(256 << 10), background: true, ..options() };
    options.tuning.reinsertion_share = 0.0;
    let store = Store::open_on(Arc::new(MemoryDevice::new(options.size_bytes)), &options).unwrap();
    // Each takes one segment, and a volume of this size can protect this many.
    let wanted = 1..=12;
    wanted.clone().for_each(|key| assert!(insert(&store, key, 1, 230_000)));
    let _held: Vec<_> = wanted.clone().map(|key| store.protect(&key_bytes(key))).collect();
    std::thread::scope(|scope| {
        for writer in 1..=4 {
            let store = &store;
            scope.spawn(move || {
                (0..1_500).for_each(|key| {
                    assert!(insert(store, writer * 100_000 + key, 1, 3_000 + 997 * (key as usize % 60)))
                });
            });
        }
    });
    assert!(store.stats().evicted > 2_000, "{:?}", store.stats());
    let gone: Vec<_> = wanted.filter(|&key| version_of(&store, key).is_none()).collect();
    assert!(gone.is_empty(), "gone are {gone:?}:");
}

/// Creates a store with this objective, and a function that offers it entries of a given length.
fn offered(objective: Objective) -> (Store, impl Fn(&Store, u64, usize) -> bool) {
    let mut options = StoreOptions { size_bytes: 4 * SIZE_BYTES, ..options() };
    options.tuning.objective = objective;
    let store = Store::open_on(Arc::new(MemoryDevice::new(options.size_bytes)), &options).unwrap();
    let offer = |store: &Store, key: u64, body_bytes: usize| {
        let mut writer = store.insert(&key_bytes(key), head(key, 1, body_bytes), Hints::default()).unwrap();
        writer.write(body(key, 1, body_bytes)).unwrap();
        block_on(writer.offer()).unwrap()
    };
    (store, offer)
}

/// Checks that entries requested only once do not displace entries requested again. While there is room, everything is
/// stored.
#[test]
fn a_full_log_keeps_what_is_asked_for_again_and_a_filling_one_everything() {
    let (store, offer) = offered(Objective::Requests);
    let is_hit = |key: u64| version_of(&store, key).is_some();
    let fit = 3 * SIZE_BYTES / 8_600;
    assert!((0..fit).all(|key| offer(&store, key, 8_000) && is_hit(key)), "the second request is a hit");
    assert!((0..fit).all(is_hit), "so is any later one");
    assert_eq!((store.stats().not_admitted, store.stats().evicted), (0, 0));
    (fit..3 * fit).for_each(|key| _ = offer(&store, key, 8_000));
    let wanted: Vec<u64> = (10_000..10_050).collect();
    (0..8).for_each(|_| wanted.iter().for_each(|&key| _ = is_hit(key) || offer(&store, key, 8_000)));
    // Three times as much as the store holds.
    let strangers = 20_000..24_000;
    strangers.clone().for_each(|key| _ = offer(&store, key, 8_000));
    let kept = wanted.iter().filter(|&&key| is_hit(key)).count();
    assert!(kept >= 44, "{kept} of 50 survived what came once");
    let strangers_kept = strangers.filter(|&key| is_hit(key)).count();
    assert!((1..1_000).contains(&strangers_kept), "what comes once has a part of the store: {strangers_kept}");
    // An entry committed without an offer is stored, and an existing entry is replaced.
    assert!(insert(&store, 30_000, 1, 8_000) && is_hit(30_000));
    assert!(offer(&store, wanted[0], 8_000) && is_hit(wanted[0]));
}

/// Guards against a mirror of large files that keeps small ones instead.
#[test]
fn the_objective_says_whether_long_entries_stay() {
    let kept = |objective| {
        let (store, offer) = offered(objective);
        let is_long = |key: u64| key.is_multiple_of(10);
        let size = |key| if is_long(key) { 80_000 } else { 4_000 };
        for round in 0..20_u64 {
            let wanted = (0..300).chain(1_000 * (round + 1)..1_000 * (round + 1) + 200);
            wanted.for_each(|key| _ = version_of(&store, key).is_some() || offer(&store, key, size(key)));
        }
        let is_there = |key: &u64| store.may_contain(&key_bytes(*key));
        (0..300).filter(|&key| is_long(key)).filter(is_there).count()
    };
    let requests = kept(Objective::Requests);
    let bytes = kept(Objective::Bytes);
    assert!(requests + 4 <= bytes, "{requests} of 30 long entries for requests, {bytes} for bytes");
}

#[test]
fn a_small_store_holds_entries_in_93_percent_of_its_bytes() {
    const BODY_BYTES: u64 = 60_000;
    let options = StoreOptions {
        size_bytes: 256 << 20,
        mean_entry_bytes: BODY_BYTES,
        segment_size_bytes: None,
        ..self::options()
    };
    let store = Store::open_on(Arc::new(MemoryDevice::new(options.size_bytes)), &options).unwrap();
    let body = body(1, 1, BODY_BYTES as usize);
    for key in 0..6_000 {
        let mut writer = store.insert(&key_bytes(key), head(key, 1, body.len()), Hints::default()).unwrap();
        writer.write(body.clone()).unwrap();
        block_on(writer.commit()).unwrap();
    }
    let live_bytes = store.stats().entries * BODY_BYTES;
    assert!(live_bytes * 100 >= options.size_bytes * 93, "{live_bytes} of {}", options.size_bytes);
}

/// Guards against an entry that its user takes for evicted although it was removed, replaced or damaged, or an evicted
/// one that never arrives.
#[test]
fn what_reclaim_drops_is_passed_on_and_nothing_that_was_removed_or_replaced() {
    let store = Store::open_on(Arc::new(MemoryDevice::new(SIZE_BYTES)), &options()).unwrap();
    let passed = Arc::new(Mutex::new(Vec::new()));
    let receiving = Arc::clone(&passed);
    let wanted = 3000;
    let receiver = EvictionReceiver {
        wants: Box::new(move |_, len_bytes| len_bytes > wanted),
        begin: Box::new(move || {
            let receiving = Arc::clone(&receiving);
            Box::new(move |entry| receiving.lock().unwrap().push(entry))
        }),
        finish: Box::new(|| Box::pin(async {})),
    };
    assert!(store.set_evictions(&Arc::new(receiver)));
    let generation = store.generation();
    for key in 0..600 {
        assert!(insert(&store, key, 1, 4000));
        assert!(insert(&store, 10_000 + key, 1, 100));
    }
    (0..600).step_by(3).for_each(|key| block_on(store.remove(&key_bytes(key))).unwrap());
    (1..600).step_by(3).for_each(|key| assert!(insert(&store, key, 2, 4000)));
    // Reclaim runs beside this test, so some of the first entries may be evicted before they are replaced or removed.
    let mut of_old = passed.lock().unwrap().drain(..).count();
    (20_000..22_000).for_each(|key| assert!(insert(&store, key, 1, 4000)));
    for EvictedEntry { key, head: found, body: bytes, .. } in passed.lock().unwrap().iter() {
        let number: u64 = std::str::from_utf8(key).unwrap().rsplit('/').next().unwrap().parse().unwrap();
        let version = if number < 600 && number % 3 == 1 { 2 } else { 1 };
        assert!(number >= 600 || !number.is_multiple_of(3), "{number} was removed");
        assert_eq!((found, bytes), (&head(number, version, 4000), &body(number, version, 4000)), "{number}");
        of_old += usize::from(number < 600);
    }
    assert!(of_old > 100, "{of_old}");
    assert!(passed.lock().unwrap().len() > 1000, "nearly all of what is dropped is passed on");
    assert_eq!(store.generation(), generation);
    block_on(store.clear()).unwrap();
    assert_ne!(store.generation(), generation);
}
