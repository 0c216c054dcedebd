//! Locating an entry without reading it. Guards against a long body that is reported as a hit although one of its
//! chunks is missing, because memory cannot distinguish the chunk from another key.

use larder_device::MemoryDevice;
use larder_store::{LayoutAxis, Policy, Store, StoreOptions};
use std::sync::Arc;

use crate::support::{block_on, insert, key_bytes, options, version_of};

/// Length of entries, long enough to distinguish locating one from reading it.
const BODY_BYTES: usize = 60_000;
const SIZE_BYTES: u64 = 24 << 20;
/// Maximum bytes read to recognize a record's key.
const LOOK_BYTES_MAX: u64 = 8 << 10;
/// Maximum entries that leave with another's removal. The published rows remove what has the same set and tag, which a
/// pair of 20 keys has in 1 of 130 stores.
const SHARED_TAGS_MAX: usize = 3;

fn open(policy: &'static Policy) -> Store {
    let options = StoreOptions { policy, size_bytes: SIZE_BYTES, mean_entry_bytes: 32 << 10, ..options() };
    Store::open_on(Arc::new(MemoryDevice::new(SIZE_BYTES)), &options).unwrap()
}

#[test]
fn entry_is_located_until_it_is_removed_and_no_other_is() {
    for policy in Policy::all().iter().filter(|policy| !policy.layout.keeps_files()) {
        let store = open(policy);
        let name = policy.name;
        block_on(store.maintain());
        let there: Vec<u64> = (0..20).filter(|&key| insert(&store, key, 1, BODY_BYTES)).collect();
        block_on(store.sync()).unwrap();
        let there: Vec<u64> = there.into_iter().filter(|&key| version_of(&store, key).is_some()).collect();
        assert!(there.len() > 5, "{name}: {}", there.len());
        let mut left_with_others = 0;
        for key in there {
            let read_bytes = store.stats().read_bytes;
            let key = key_bytes(key);
            let Some(seen) = block_on(store.locate(&key)).unwrap() else {
                left_with_others += 1;
                continue;
            };
            if policy.layout == LayoutAxis::Segments {
                assert!(store.stats().read_bytes - read_bytes <= LOOK_BYTES_MAX, "{name}");
            }
            let reads = store.stats().reads;
            let is_known = matches!(policy.layout, LayoutAxis::Bins | LayoutAxis::Sets | LayoutAxis::FrontAndSets);
            assert_eq!(store.is_at(&key, seen), !is_known, "{name}: memory tells");
            assert_eq!(store.stats().reads, reads, "{name}: for free");
            block_on(store.remove(&key)).unwrap();
            assert!(!store.is_at(&key, seen), "{name}");
            assert!(block_on(store.locate(&key)).unwrap().is_none(), "{name}");
        }
        let left_max = if name.starts_with("hashcache") { SHARED_TAGS_MAX } else { 0 };
        assert!(left_with_others <= left_max, "{name}: {left_with_others} left with the removal of others");
        assert!((1000..1100).all(|key| block_on(store.locate(&key_bytes(key))).unwrap().is_none()), "{name}");
    }
}

#[test]
fn entry_that_was_written_again_elsewhere_is_out_of_sight() {
    let store = open(Policy::default_policy());
    assert!(insert(&store, 1, 1, BODY_BYTES));
    let seen = block_on(store.locate(&key_bytes(1))).unwrap().unwrap();
    assert!(store.is_at(&key_bytes(1), seen));
    assert!(insert(&store, 1, 2, BODY_BYTES));
    assert!(!store.is_at(&key_bytes(1), seen));
}
