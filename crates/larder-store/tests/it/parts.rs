//! Checks entries longer than a segment, and the room at the end of each segment.

use crate::support::{SEGMENT_BYTES, SIZE_BYTES, block_on, body, head, insert, key_bytes, options, version_of};
use larder_device::MemoryDevice;
use larder_store::{Hints, Policy, Store, StoreOptions, Writer};
use std::sync::Arc;

/// Longer than three of the segments.
const LONG_BYTES: usize = 900_000;

fn store_on(device: &Arc<MemoryDevice>) -> Store {
    Store::open_on(Arc::clone(device) as _, &options()).unwrap()
}

#[test]
fn an_entry_longer_than_a_segment_is_stored_and_read_back_whole_and_by_ranges() {
    let device = Arc::new(MemoryDevice::new(SIZE_BYTES));
    let store = store_on(&device);
    assert!(insert(&store, 1, 1, LONG_BYTES) && insert(&store, 2, 1, 3_000));
    assert_eq!((version_of(&store, 1), version_of(&store, 2)), (Some(1), Some(1)), "from memory");
    block_on(store.close()).unwrap();
    let again = store_on(&device);
    block_on(again.ready());
    assert_eq!((version_of(&again, 1), version_of(&again, 2)), (Some(1), Some(1)));
    let reader = block_on(again.front(&key_bytes(1))).unwrap().unwrap();
    let expected = body(1, 1, LONG_BYTES);
    for range in [0..10, 65_530..65_540, 200_000..600_000, 250_000..270_000, 899_990..900_000] {
        let read = block_on(reader.read(range.start as u64..range.end as u64)).unwrap().unwrap();
        assert!(read == expected[range.clone()], "{range:?}");
    }
}

#[test]
fn entries_in_parts_are_replaced_get_new_heads_are_removed_and_make_room() {
    let device = Arc::new(MemoryDevice::new(SIZE_BYTES));
    let store = store_on(&device);
    assert!(insert(&store, 1, 1, LONG_BYTES) && insert(&store, 1, 2, LONG_BYTES));
    let new_head = head(1, 2, LONG_BYTES);
    assert!(block_on(store.update_head(&key_bytes(1), new_head, Hints::default())).unwrap());
    assert_eq!(version_of(&store, 1), Some(2));
    block_on(store.remove(&key_bytes(1))).unwrap();
    assert_eq!(version_of(&store, 1), None);
    // Ten times the store.
    for key in 10..50 {
        assert!(insert(&store, key, 1, LONG_BYTES), "{key}");
        assert_eq!(version_of(&store, key), Some(1));
    }
    let there = (10..50).filter(|&key| version_of(&store, key).is_some()).count() as u64;
    assert!(there >= 1 && there == store.stats().entries, "{there} of {}", store.stats().entries);
    assert_eq!(store.stats().corrupt, 0);
    block_on(store.close()).unwrap();
    let again = store_on(&device);
    block_on(again.ready());
    let left = (10..50).filter(|&key| version_of(&again, key).is_some()).count() as u64;
    assert_eq!(left, there, "after a restart");
}

/// Guards against wasting the room at the end of each segment, a quarter of the volume for bodies of this length.
#[test]
fn what_is_left_of_a_segment_is_filled_with_a_part_of_the_next_entry() {
    // Undivided, two of them would fill 76% of a segment.
    const BODY_BYTES: usize = 100_000;
    // Divided or not, this many entries need no reclaim, which would leave gaps where it dropped parts of entries.
    const COUNT: u64 = 80;
    // The open segments of probation and main are still being filled. All others are sealed when they are full.
    const OPEN_SEGMENTS_MAX: u64 = 2;
    let size_bytes = 4 * SIZE_BYTES;
    let options = StoreOptions { size_bytes, ..options() };
    let store = Store::open_on(Arc::new(MemoryDevice::new(size_bytes)), &options).unwrap();
    (0..COUNT).for_each(|key| assert!(insert(&store, key, 1, BODY_BYTES)));
    let stats = store.stats();
    assert_eq!((stats.entries, stats.evicted), (COUNT, 0));
    let full_bytes = (stats.segments_in_use - OPEN_SEGMENTS_MAX) * SEGMENT_BYTES;
    let live_bytes = COUNT * BODY_BYTES as u64;
    assert!(live_bytes * 100 >= full_bytes * 95, "{live_bytes} of {full_bytes}");
    (COUNT..5 * COUNT).for_each(|key| assert!(insert(&store, key, 1, BODY_BYTES)));
    let found = (0..5 * COUNT).filter(|&key| version_of(&store, key).is_some()).count() as u64;
    assert_eq!(found, store.stats().entries, "after reclaims");
}

/// Guards against a wrong byte. The parts of a body that is divided again have checksums of their own, which must not
/// be made of a body that the disk damaged.
#[test]
fn a_body_that_was_damaged_is_not_made_valid_when_it_is_divided_again() {
    const BODY_BYTES: usize = 60_000;
    const KEPT: u64 = 20;
    let size_bytes = 2 * SIZE_BYTES;
    let options = StoreOptions { size_bytes, ..options() };
    let device = Arc::new(MemoryDevice::new(size_bytes));
    let store = Store::open_on(Arc::clone(&device) as _, &options).unwrap();
    (0..KEPT).for_each(|key| assert!(insert(&store, key, 1, BODY_BYTES)));
    block_on(store.close()).unwrap();
    let mut contents = device.contents();
    for key in (0..KEPT).step_by(2) {
        // Some are divided already. The first bytes of a body's second half are in one piece.
        let half = &body(key, 1, BODY_BYTES)[BODY_BYTES / 2..][..64];
        let start = contents.windows(half.len()).position(|window| window == half).expect("the device has the body");
        contents[start] ^= 1;
    }
    let store = Store::open_on(Arc::new(MemoryDevice::from_contents(contents)), &options).unwrap();
    block_on(store.ready());
    // Pinned, so that they are rewritten without a read of their bodies.
    (0..KEPT).for_each(|key| assert!(store.pin(&key_bytes(key), BODY_BYTES as u64 + 30)));
    (1000..1300).for_each(|key| assert!(insert(&store, key, 1, BODY_BYTES)));
    let found = |rest: u64| (0..KEPT).filter(|key| key % 2 == rest && version_of(&store, *key).is_some()).count();
    assert_eq!((found(0), found(1)), (0, KEPT as usize / 2), "a damaged entry is a miss, the others are found");
}

/// Protects long downloads, whose chunks have 1 MiB, on small volumes of policies that store entries undivided.
#[test]
fn every_policy_stores_an_entry_of_one_mebibyte_on_the_smallest_volume() {
    const SMALLEST_BYTES: u64 = 64 << 20;
    for policy in Policy::all().iter().filter(|policy| !policy.layout.keeps_files()) {
        let device = Arc::new(MemoryDevice::new(SMALLEST_BYTES));
        let options = StoreOptions { policy, background: false, ..StoreOptions::new("", SMALLEST_BYTES) };
        let store = Store::open_on(device, &options).unwrap();
        assert!(insert(&store, 1, 1, Writer::BODY_MAX_BYTES as usize), "{policy}");
        assert_eq!(version_of(&store, 1), Some(1), "{policy}");
    }
}
