//! Checks the reads of a page in `log`, and the neighbors that come with them.

use crate::support::{block_on, body, checked_version, cost, head, key_bytes, options, refuse, version_of};
use larder_device::{Device, MemoryDevice, Transfer};
use larder_store::{Hints, NeighborEntry, Reader, Store, StoreOptions};
use std::sync::{Arc, Mutex};

const OBJECTS: u64 = 11;
const LEN: usize = 3000;
/// Segments that a store of these options keeps free for writers.
const RESERVE_SEGMENTS: u64 = 3;

/// The entries that a store passed on.
type Received = Arc<Mutex<Vec<(u64, Reader)>>>;

fn open(device: &Arc<MemoryDevice>, options: &StoreOptions) -> Store {
    Store::open_on(Arc::clone(device) as Arc<dyn Device>, options).unwrap()
}

/// Stores one object of a page.
fn insert_object(store: &Store, page: u64, object: u64) {
    let key = page * 100 + object;
    let mut writer =
        store.insert(&key_bytes(key), head(key, 1, LEN), Hints { group: page, ..Hints::default() }).unwrap();
    writer.write(body(key, 1, LEN)).unwrap();
    block_on(writer.commit()).unwrap();
}

fn receive(store: &Store) -> Received {
    let received = Received::default();
    let kept = Arc::clone(&received);
    store.set_neighbors(Arc::new(move || {
        let kept = Arc::clone(&kept);
        Box::new(move |NeighborEntry { key, reader, .. }| {
            let number = str::from_utf8(&key).unwrap().rsplit('/').next().unwrap().parse().unwrap();
            kept.lock().unwrap().push((number, reader));
        })
    }));
    received
}

/// Returns the keys passed on since the last call, after checking every byte of their entries.
fn keys_of(received: &Received) -> Vec<u64> {
    let passed = std::mem::take(&mut *received.lock().unwrap());
    passed
        .into_iter()
        .map(|(key, reader)| {
            assert_eq!(checked_version(&reader, key), Some(1));
            key
        })
        .collect()
}

/// Returns the reads of a page whose objects come from `received` if they were passed on.
fn reads_of(store: &Store, received: &Received, page: u64) -> u64 {
    let mut at_hand = Vec::new();
    let read = || {
        for key in (0..OBJECTS).map(|object| page * 100 + object) {
            if !at_hand.contains(&key) {
                assert_eq!(version_of(store, key), Some(1), "{key}");
                at_hand.extend(keys_of(received));
            }
        }
    };
    cost(store, read).reads
}

/// Two pages at once, of 35 KB each: before and after a stop and a kill. A page may be divided by the end of a segment.
#[test]
fn a_page_takes_two_reads_at_most_when_two_are_stored_at_once() {
    let device = Arc::new(MemoryDevice::new(options().size_bytes));
    let options = options();
    let store = open(&device, &options);
    for pair in 0..5 {
        for object in 0..OBJECTS {
            (1..=2).for_each(|page| insert_object(&store, pair * 2 + page, object));
        }
    }
    block_on(store.sync()).unwrap();
    let check = |store: &Store, when: &str| {
        let received = receive(store);
        for page in 1..=10 {
            let reads = reads_of(store, &received, page);
            assert!(reads <= 2, "{when}: {reads} reads for page {page}");
        }
        assert_eq!(store.stats().corrupt, 0);
        let count = store.stats().neighbors;
        let bytes = store.stats().neighbor_bytes;
        assert!(count >= 10 * (OBJECTS - 2) && bytes >= count * LEN as u64, "{count} neighbors of {bytes} bytes");
    };
    check(&open(&Arc::new(MemoryDevice::from_contents(device.contents())), &options), "after a kill");
    check(&store, "running");
    block_on(store.close()).unwrap();
    check(&open(&device, &options), "after a stop");
}

/// Protects the hits of a store without pages. A segment set aside for pages that never come would take an eighth of
/// the entries of this store. A full store that gets pages must still keep some of them together.
#[test]
fn a_full_store_sets_a_segment_aside_when_the_first_page_comes() {
    let store = open(&Arc::new(MemoryDevice::new(options().size_bytes)), &options());
    let segment_count = store.stats().segment_count;
    let entries_count = 2 * options().size_bytes / LEN as u64;
    for key in 0..entries_count {
        assert!(crate::support::insert(&store, key, 1, LEN));
        block_on(store.maintain());
    }
    assert_eq!(store.stats().segments_in_use, segment_count - RESERVE_SEGMENTS);
    let pages_count = entries_count / OBJECTS;
    let page_first = entries_count / 100 + 1;
    for page in page_first..page_first + pages_count {
        (0..OBJECTS).for_each(|object| insert_object(&store, page, object));
        block_on(store.maintain());
    }
    block_on(store.sync()).unwrap();
    block_on(store.maintain());
    assert_eq!(store.stats().segments_in_use, segment_count - RESERVE_SEGMENTS - 1);
    // A volume this small has room to buffer only some of the pages.
    let received = receive(&store);
    let last_pages = page_first + pages_count - 10..page_first + pages_count;
    let reads = last_pages.map(|page| reads_of(&store, &received, page)).min();
    assert!(reads <= Some(2), "{reads:?} reads for each page");
}

/// Guards against a page that comes back with an object that was replaced, removed or invalidated.
#[test]
fn only_the_newest_entries_of_the_group_are_passed_on() {
    let device = Arc::new(MemoryDevice::new(options().size_bytes));
    let store = open(&device, &options());
    for object in 0..OBJECTS {
        (1..=2).for_each(|page| insert_object(&store, page, object));
    }
    // Without a group, in between.
    assert!(crate::support::insert(&store, 7, 1, LEN));
    block_on(store.sync()).unwrap();
    let received = receive(&store);
    block_on(store.remove(&key_bytes(104))).unwrap();
    assert!(crate::support::insert(&store, 105, 2, LEN));
    block_on(store.sync()).unwrap();
    assert_eq!(version_of(&store, 100), Some(1));
    let expected: Vec<u64> = (1..OBJECTS).map(|object| 100 + object).filter(|key| ![104, 105].contains(key)).collect();
    let passed = keys_of(&received);
    assert!(passed.len() >= 5 && passed.iter().all(|key| expected.contains(key)), "{passed:?}");
    assert_eq!(version_of(&store, 7), Some(1));
    assert!(keys_of(&received).is_empty(), "an entry without a group comes alone");
}

/// A device on which every long read meets a bad block.
struct ShortReads(MemoryDevice);

impl Device for ShortReads {
    fn submit(&self, transfer: Transfer) {
        match transfer {
            Transfer::Read { ref buffer, .. } if buffer.len() > 16 << 10 => refuse(transfer),
            transfer => self.0.submit(transfer),
        }
    }

    larder_device::delegate_device!(0);
}

/// Guards against a sound entry that is lost because of a bad block behind it.
#[test]
fn a_bad_block_behind_an_entry_costs_its_neighbors_only() {
    let device = Arc::new(ShortReads(MemoryDevice::new(options().size_bytes)));
    let store = Store::open_on(device, &options()).unwrap();
    let received = receive(&store);
    (0..OBJECTS).for_each(|object| insert_object(&store, 1, object));
    block_on(store.sync()).unwrap();
    (0..OBJECTS).for_each(|object| assert_eq!(version_of(&store, 100 + object), Some(1)));
    keys_of(&received);
    assert_eq!((store.stats().corrupt, store.stats().outages), (0, 0));
}
