//! Pinned entries, and the keys of a store in use. Guards against a pinned entry that is gone months later when it is
//! needed, or pins that leave no room for anything else.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use larder_device::{Device, MemoryDevice, Transfer};
use larder_store::{ErrorKind, Hints, Policy, ScanSummary, SplitMix64, Store, StoreOptions, Tuning, TuningValue};

use crate::support::{HEAD_VERSION, SIZE_BYTES, block_on, head, insert, key_bytes, options, version_of};

/// A larger store than usual, so that a quarter of it is several segments.
const ROOM_BYTES: u64 = 3 * SIZE_BYTES;

fn options_of(policy: &'static Policy) -> StoreOptions {
    StoreOptions { policy, size_bytes: ROOM_BYTES, ..options() }
}

fn rows_that_pin() -> impl Iterator<Item = &'static Policy> {
    Policy::all().iter().filter(|policy| policy.can_pin())
}

/// Stores an entry that nothing pins, of 11 KB on average, in both generations. Returns whether there was room.
fn insert_filler(store: &Store, key: u64) -> bool {
    let len = 500 + 997 * (key as usize % 22);
    // The first insertion goes to probation; the second, a replacement, to a main segment.
    insert(store, key, 1, len) && insert(store, key, 1, len)
}

/// Stores more than the whole volume of other entries.
fn turn_over(store: &Store, from: u64) {
    let count = ROOM_BYTES / 11_000;
    (from..from + count).for_each(|key| assert!(insert_filler(store, key), "room for entry {key}"));
}

/// Returns keys with various lengths. The longest nearly fill a segment.
fn wanted() -> Vec<(u64, usize)> {
    let short = (1..60).map(|key| (key, 300 + 811 * (key as usize % 30)));
    short.chain([(60, 100_000), (61, 120_000), (62, 200_000), (63, 90_000), (64, 240_000)]).collect()
}

#[test]
fn what_is_pinned_is_there_after_turnovers_and_a_kill_and_what_is_not_goes() {
    for policy in rows_that_pin() {
        let device = Arc::new(MemoryDevice::new(ROOM_BYTES));
        let store = Store::open_on(device.clone(), &options_of(policy)).unwrap();
        for (key, len) in wanted() {
            assert!(store.pin(&key_bytes(key), len as u64 + 30), "{policy} pins {key}: {:?}", store.stats());
            assert!(insert(&store, key, 1, len));
        }
        assert!(insert(&store, 99, 1, 1000));
        let all_there = |store: &Store, when: &str| {
            let gone: Vec<_> = wanted().into_iter().filter(|(key, _)| version_of(store, *key) != Some(1)).collect();
            assert!(gone.is_empty(), "{policy}, {when}: gone are {gone:?}: {:?}", store.stats());
            store.check_invariants();
        };
        for round in 1..=3 {
            turn_over(&store, round * 1_000_000);
            all_there(&store, "turned over");
            // As after kill -9 without a sync: a segment is reused only when its pinned entries are on the device again.
            let killed = Store::open_on(Arc::new(device.snapshot()), &options_of(policy)).unwrap();
            all_there(&killed, "killed");
        }
        assert_eq!(version_of(&store, 99), None, "what is not pinned is evicted");
        assert_eq!(store.stats().unpinned, 0);
        // As after kill -9: only what is on the device remains.
        block_on(store.sync()).unwrap();
        let image: Arc<MemoryDevice> = Arc::new(MemoryDevice::from_contents(device.contents()));
        let store = Store::open_on(image, &options_of(policy)).unwrap();
        assert!(wanted().iter().all(|(key, len)| store.pin(&key_bytes(*key), *len as u64 + 30)));
        block_on(store.ready());
        for round in 4..=6 {
            turn_over(&store, round * 1_000_000);
            all_there(&store, "killed and turned over");
        }
        assert!(wanted().iter().all(|(key, _)| store.unpin(&key_bytes(*key))));
        assert_eq!((store.stats().pinned_entries, store.stats().pinned_bytes), (0, 0));
        (7..=12).for_each(|round| turn_over(&store, round * 1_000_000));
        assert!(
            wanted().iter().all(|(key, _)| version_of(&store, *key).is_none()),
            "{policy} lets go of what is unpinned"
        );
    }
}

#[test]
fn a_pinned_body_survives_new_heads_and_replacements() {
    let store = Store::open_on(Arc::new(MemoryDevice::new(ROOM_BYTES)), &options_of(Policy::default_policy())).unwrap();
    assert!(store.pin(&key_bytes(1), 100_030) && store.pin(&key_bytes(2), 5_030));
    assert!(insert(&store, 1, 1, 100_000) && insert(&store, 2, 1, 5_000));
    turn_over(&store, 1_000_000);
    let new_head = head(1, 1 + HEAD_VERSION, 100_000);
    assert!(block_on(store.update_head(&key_bytes(1), new_head, Hints::default())).unwrap());
    assert!(insert(&store, 2, 2, 4_000));
    (2..=4).for_each(|round| turn_over(&store, round * 1_000_000));
    assert_eq!((version_of(&store, 1), version_of(&store, 2)), (Some(1 + HEAD_VERSION), Some(2)));
}

/// Guards against a confirmed response that stays stale, because the room for its new head took a reclaim that moved
/// it.
#[test]
fn a_new_head_is_stored_although_room_for_it_moves_the_entry() {
    const BODY_BYTES: usize = 100_000;
    for policy in rows_that_pin() {
        let store = Store::open_on(Arc::new(MemoryDevice::new(ROOM_BYTES)), &options_of(policy)).unwrap();
        let key = key_bytes(1);
        assert!(store.pin(&key, BODY_BYTES as u64 + 30) && insert(&store, 1, 1, BODY_BYTES), "{policy}");
        // Nothing else is written, so each reclaim makes room for a head. Some reach the segments with the body.
        let long_head = Bytes::from(vec![b'x'; 30_000]);
        for round in 0..2 * ROOM_BYTES / 30_000 {
            let updated = block_on(store.update_head(&key, long_head.clone(), Hints::default()));
            assert!(updated.unwrap(), "{policy}, round {round}");
        }
        assert!(store.stats().reinserted > 0, "{policy} moved the entry");
        let last_head = head(1, 1 + HEAD_VERSION, BODY_BYTES);
        assert!(block_on(store.update_head(&key, last_head, Hints::default())).unwrap());
        assert_eq!(version_of(&store, 1), Some(1 + HEAD_VERSION), "{policy}");
    }
}

/// Guards against a pinned entry that finds no room when it is rewritten, because reclaim spent the reserve on an entry
/// that it had moved already. It did so when it came to the old record of an entry in parts.
#[test]
fn a_pinned_entry_in_parts_is_rewritten_once_a_round() {
    const FILLER_BYTES: usize = 10_000;
    let mut tuning = Tuning::default();
    tuning.set("reinsertion_share", TuningValue::Share(0.0)).unwrap();
    let options = StoreOptions { tuning, ..options_of(Policy::default_policy()) };
    let store = Store::open_on(Arc::new(MemoryDevice::new(ROOM_BYTES)), &options).unwrap();
    let pinned = [(1, 700_000), (2, 610_000), (3, 520_000), (4, 100_000)];
    for (key, len) in pinned {
        assert!(store.pin(&key_bytes(key), len as u64 + 30) && insert(&store, key, 1, len));
    }
    let locate = |key| block_on(store.locate(&key_bytes(key))).unwrap().expect("it is pinned");
    let mut places = pinned.map(|(key, _)| locate(key));
    let mut move_count = 0;
    for filler in 1_000_000..1_000_000 + 8 * ROOM_BYTES / FILLER_BYTES as u64 {
        // The first insertion goes to probation; the second, a replacement, to a main segment.
        assert!(insert(&store, filler, 1, FILLER_BYTES) && insert(&store, filler, 1, FILLER_BYTES));
        let places_now = pinned.map(|(key, _)| locate(key));
        move_count += places.iter().zip(&places_now).filter(|(before, now)| before != now).count() as u64;
        places = places_now;
    }
    assert!(move_count >= 3 * pinned.len() as u64, "{move_count}");
    assert_eq!(store.stats().reinserted, move_count);
}

#[test]
fn pins_have_a_bound_and_end_with_their_entries() {
    let mut tuning = Tuning::default();
    assert!(tuning.set("pin_share", TuningValue::Share(0.6)).is_err(), "there has to be room for others");
    tuning.set("pin_share", TuningValue::Share(0.1)).unwrap();
    let options = StoreOptions { tuning, ..options_of(Policy::default_policy()) };
    let store = Store::open_on(Arc::new(MemoryDevice::new(ROOM_BYTES)), &options).unwrap();
    let pinned = (0..1_000).take_while(|&key| store.pin(&key_bytes(key), 9_000)).count() as u64;
    let stats = store.stats();
    assert!((30..=ROOM_BYTES / 90_000).contains(&pinned), "a tenth is pinned: {pinned}");
    assert_eq!((stats.pinned_entries, stats.pinned_bytes <= stats.pinned_bytes_max), (pinned, true));
    assert!(!store.is_pinned(&key_bytes(pinned)) && store.is_pinned(&key_bytes(0)));
    assert!(insert(&store, 0, 1, 9_000));
    block_on(store.remove(&key_bytes(0))).unwrap();
    assert!(!store.is_pinned(&key_bytes(0)) && store.pin(&key_bytes(pinned), 9_000), "its room is free again");
    block_on(store.clear()).unwrap();
    assert_eq!(store.stats().pinned_entries, 0);
}

#[test]
fn a_row_that_cannot_spare_entries_says_so() {
    for policy in Policy::all().iter().filter(|policy| !policy.can_pin() && !policy.layout.keeps_files()) {
        let options = StoreOptions { size_bytes: 64 << 20, ..options_of(policy) };
        let store = Store::open_on(Arc::new(MemoryDevice::new(options.size_bytes)), &options).unwrap();
        assert!(!store.can_pin() && !store.pin(&key_bytes(1), 1), "{policy}");
        assert_eq!(store.stats().pinned_bytes_max, 0);
    }
}

#[test]
fn the_keys_of_a_store_in_use_are_told_with_what_waits_to_be_written() {
    for policy in Policy::all().iter().filter(|policy| !policy.layout.keeps_files()) {
        let options = StoreOptions { size_bytes: 64 << 20, ..options_of(policy) };
        let store = Store::open_on(Arc::new(MemoryDevice::new(options.size_bytes)), &options).unwrap();
        assert!((0..200).all(|key| insert(&store, key, 1, 100 + 97 * key as usize)), "{policy}");
        let mut told = HashSet::new();
        let mut last = (0, 1);
        let outcome = store.scan(&mut |scanned| {
            match scanned {
                ScanSummary::Key(key) => _ = told.insert(key.to_vec()),
                ScanSummary::Passed { bytes, of } => last = (bytes, of),
                _ => {}
            }
            true
        });
        if !policy.can_scan() {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Invalid, "{policy}");
            continue;
        }
        outcome.unwrap();
        let there = (0..200).filter(|&key| version_of(&store, key).is_some()).map(key_bytes);
        let untold: Vec<_> = there.filter(|key| !told.contains(key)).collect();
        assert!(untold.is_empty() && last.0 <= last.1 && last.0 > 0, "{policy}: {untold:?} {last:?}");
        let mut count = 0;
        let stopped = store.scan(&mut |_| {
            count += 1;
            count < 3
        });
        assert!(stopped.is_ok() && count == 3, "{policy}: a scan ends when it is told to: {count}");
    }
}

#[test]
fn scan_of_a_store_that_is_hardly_used_reads_little() {
    let options = options_of(Policy::all().first().unwrap());
    let store = Store::open_on(Arc::new(MemoryDevice::new(options.size_bytes)), &options).unwrap();
    assert!(insert(&store, 1, 1, 1_000));
    let before = store.stats().read_bytes;
    let mut key_count = 0;
    store
        .scan(&mut |scanned| {
            key_count += u32::from(matches!(scanned, ScanSummary::Key(_)));
            true
        })
        .unwrap();
    let read_bytes = store.stats().read_bytes - before;
    // One segment, and two blocks of each other one.
    assert_eq!(key_count, 1);
    assert!(read_bytes < ROOM_BYTES / 4, "{read_bytes} of {ROOM_BYTES} bytes");
}

/// A device in memory that keeps its state as a kill at one of its writes would leave it.
struct KilledDevice {
    inner: MemoryDevice,
    writes_left: AtomicU64,
    left: Mutex<Option<MemoryDevice>>,
}

impl KilledDevice {
    fn new(inner: MemoryDevice, write_count: u64) -> Self {
        Self { inner, writes_left: AtomicU64::new(write_count), left: Mutex::default() }
    }

    fn is_killed(&self) -> bool {
        self.left.lock().unwrap().is_some()
    }
}

impl Device for KilledDevice {
    fn submit(&self, transfer: Transfer) {
        if matches!(transfer, Transfer::Write { .. }) && self.writes_left.fetch_sub(1, Ordering::Relaxed) == 0 {
            *self.left.lock().unwrap() = Some(self.inner.snapshot());
        }
        self.inner.submit(transfer);
    }

    larder_device::delegate_device!(inner);
}

/// Guards against a pinned entry that is gone after a kill, because a segment was reclaimed before its pins were
/// restored, or freed at the start to make room.
#[test]
fn what_is_pinned_survives_any_number_of_kills_at_any_write() {
    for (policy, size_bytes) in rows_that_pin().flat_map(|policy| [(policy, ROOM_BYTES), (policy, ROOM_BYTES / 2)]) {
        let store_options = StoreOptions { size_bytes, ..options_of(policy) };
        // `log` stores an entry longer than a segment in parts.
        let longest = if policy == Policy::default_policy() { 300_000 } else { 200_000 };
        let whole = Arc::new(MemoryDevice::new(size_bytes));
        let store = Store::open_on(whole.clone(), &store_options).unwrap();
        let pin = |store: &Store, (key, len): (u64, usize)| store.pin(&key_bytes(key), len as u64 + 30);
        let mut pinned = vec![(70, longest)];
        pinned.extend(wanted());
        pinned.retain(|&entry| pin(&store, entry));
        assert!(pinned.len() > 20 && pinned.iter().all(|&(key, len)| insert(&store, key, 1, len)), "{policy}");
        let mut random = SplitMix64::new(1);
        let mut fillers = 1_000_000..;
        turn_over(&store, 100_000);
        block_on(store.flush()).unwrap();
        let mut state = whole.snapshot();
        for life in 0..300 {
            let device = Arc::new(KilledDevice::new(state, random.below(60)));
            let store = Store::open_on(device.clone(), &store_options).unwrap();
            for (at, &entry) in pinned.iter().enumerate() {
                // The store's own thread may run at any time before all pins are restored.
                if at % 16 == 1 {
                    block_on(store.maintain());
                }
                assert!(pin(&store, entry));
            }
            // What is not loaded yet is a miss.
            block_on(store.ready());
            let gone: Vec<_> = pinned.iter().filter(|(key, _)| version_of(&store, *key) != Some(1)).collect();
            assert!(gone.is_empty(), "{policy} of {size_bytes}, life {life}: gone are {gone:?}");
            while !device.is_killed() {
                let filler = fillers.next().expect("keys do not end");
                assert!(insert_filler(&store, filler), "{policy} of {size_bytes}, life {life}: no room");
            }
            state = device.left.lock().unwrap().take().expect("it was killed");
        }
    }
}
