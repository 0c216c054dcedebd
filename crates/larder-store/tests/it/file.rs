//! Checks that a store in a real file keeps its content over restarts, and changes no file but its own.

use crate::support::{block_on, body, checked_version, head, insert, key_bytes, version_of};
use larder_store::{ErrorKind, Hints, Policy, Store, StoreOptions, Writer, glance};
use std::{fs, path::PathBuf, sync::Arc, thread, time::Duration};
use tempfile::TempDir;

const SIZE_BYTES: u64 = 64 << 20;

/// Returns a directory on a real file system, so that direct I/O is used where it exists.
fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn options(directory: &TempDir) -> StoreOptions {
    StoreOptions {
        mean_entry_bytes: 4096,
        flush_interval: Duration::from_millis(20),
        // No two of the tests' keys have one address.
        identity_seed: Some(1),
        ..StoreOptions::new(path(directory), SIZE_BYTES)
    }
}

fn path(directory: &TempDir) -> PathBuf {
    directory.path().join("store.larder")
}

#[test]
fn entries_come_back_after_a_clean_stop() {
    let directory = directory();
    let store = Store::open(options(&directory)).unwrap();
    for key in 0..500 {
        assert!(insert(&store, key, key + 1, (key as usize * 331) % 30_000));
    }
    block_on(store.close()).unwrap();
    assert_eq!(block_on(store.get(&key_bytes(1))).err().map(|error| error.kind()), Some(ErrorKind::Closed));
    drop(store);
    let store = Store::open(options(&directory)).unwrap();
    block_on(store.ready());
    for key in 0..500 {
        assert_eq!(version_of(&store, key), Some(key + 1));
    }
    let stats = store.stats();
    assert_eq!((stats.entries, stats.hits), (500, 500));
    // Each segment may end with a part of an entry.
    let reads = 500..=500 + stats.segments_in_use;
    assert!(reads.contains(&stats.reads), "one device read per hit: {stats:?}");
}

#[test]
fn what_is_committed_is_read_by_many_threads_while_it_is_dirty_and_after() {
    let directory = directory();
    let store = Store::open(options(&directory)).unwrap();
    let newest = Arc::new(std::sync::atomic::AtomicU64::new(0));
    thread::scope(|scope| {
        let writer = store.clone();
        let progress = Arc::clone(&newest);
        scope.spawn(move || {
            for key in 0..3000 {
                assert!(insert(&writer, key, 1, (key as usize * 101) % 9000));
                progress.store(key + 1, std::sync::atomic::Ordering::Release);
            }
        });
        for reader in 0..3_u64 {
            let store = store.clone();
            let newest = Arc::clone(&newest);
            scope.spawn(move || {
                let mut seen = 0;
                while seen < 2000 {
                    let below = newest.load(std::sync::atomic::Ordering::Acquire);
                    if below == 0 {
                        thread::yield_now();
                        continue;
                    }
                    let key = (seen * 7919 + reader) % below;
                    // An entry may be lost to a key with the same address, but the version must never be wrong.
                    assert!(matches!(version_of(&store, key), Some(1) | None));
                    seen += 1;
                }
            });
        }
    });
    let found = (0..3000).filter(|&key| version_of(&store, key).is_some()).count();
    assert!(found >= 2985, "{found}");
    assert_eq!(store.stats().corrupt, 0);
}

#[test]
fn the_longest_entry_is_stored_and_a_longer_one_refused() {
    let directory = directory();
    let store = Store::open(options(&directory)).unwrap();
    let longest = Writer::BODY_MAX_BYTES as usize;
    assert!(insert(&store, 1, 1, longest));
    assert_eq!(version_of(&store, 1), Some(1));
    let mut writer = store.insert(&key_bytes(2), head(2, 1, 0), Hints::default()).unwrap();
    writer.write(body(2, 1, longest)).unwrap();
    assert_eq!(writer.write("x".into()).err().map(|error| error.kind()), Some(ErrorKind::Invalid));
    let too_long = vec![0; 70_000].into();
    assert_eq!(
        store.insert(b"k", too_long, Hints::default()).err().map(|error| error.kind()),
        Some(ErrorKind::Invalid)
    );
}

#[test]
fn the_front_of_a_long_entry_is_read_first_and_its_ranges_when_asked_for() {
    let directory = directory();
    let store = Store::open(options(&directory)).unwrap();
    assert!(insert(&store, 1, 1, 900_000));
    block_on(store.close()).unwrap();
    drop(store);
    let store = Store::open(options(&directory)).unwrap();
    block_on(store.ready());
    let reader = block_on(store.front(&key_bytes(1))).unwrap().unwrap();
    let before = store.stats().read_bytes;
    let expected = body(1, 1, 900_000);
    for range in [0..10, 65_530..65_540, 500_000..500_001, 899_990..900_000] {
        let read = block_on(reader.read(range.clone())).unwrap().unwrap();
        assert_eq!(read, expected[range.start as usize..range.end as usize]);
    }
    assert!(store.stats().read_bytes - before < 500_000, "a range is read without the rest");
    assert_eq!(checked_version(&reader, 1), Some(1));
}

#[test]
fn a_new_head_for_a_long_body_does_not_write_the_body_again() {
    let directory = directory();
    let store = Store::open(options(&directory)).unwrap();
    assert!(insert(&store, 1, 1, 800_000));
    block_on(store.sync()).unwrap();
    let before = store.stats().written_bytes;
    assert!(block_on(store.update_head(&key_bytes(1), "new".into(), Hints::default())).unwrap());
    block_on(store.sync()).unwrap();
    assert!(store.stats().written_bytes - before < 20_000);
    let reader = block_on(store.get(&key_bytes(1))).unwrap().unwrap();
    assert_eq!(reader.head(), "new");
    assert_eq!(block_on(reader.read(0..800_000)).unwrap().unwrap(), body(1, 1, 800_000));
    assert!(!block_on(store.update_head(&key_bytes(2), "new".into(), Hints::default())).unwrap());
}

#[test]
fn a_foreign_file_is_refused_and_left_as_it_is() {
    let directory = directory();
    let foreign = vec![b'x'; 100_000];
    fs::write(path(&directory), &foreign).unwrap();
    let error = Store::open(options(&directory)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("not a larder store"), "{error}");
    assert_eq!(fs::read(path(&directory)).unwrap(), foreign);
}

#[test]
fn a_store_of_another_size_is_refused() {
    let directory = directory();
    drop(Store::open(options(&directory)).unwrap());
    let error = Store::open(StoreOptions { size_bytes: SIZE_BYTES * 2, ..options(&directory) }).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(fs::metadata(path(&directory)).unwrap().len(), SIZE_BYTES);
}

#[test]
fn a_store_in_use_is_refused() {
    let directory = directory();
    let _store = Store::open(options(&directory)).unwrap();
    assert_eq!(Store::open(options(&directory)).err().map(|error| error.kind()), Some(ErrorKind::InUse));
}

#[test]
fn impossible_options_are_refused_and_make_no_file() {
    let directory = directory();
    let good = options(&directory);
    for bad in [
        StoreOptions { size_bytes: 1000, ..good.clone() },
        StoreOptions { size_bytes: 1 << 50, ..good.clone() },
        StoreOptions { segment_size_bytes: Some((3 << 20) + 512), ..good.clone() },
        StoreOptions { mean_entry_bytes: 0, ..good.clone() },
    ] {
        assert_eq!(Store::open(bad).err().map(|error| error.kind()), Some(ErrorKind::Invalid));
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_creation_that_was_cut_short_does_not_stand_in_the_way() {
    let directory = directory();
    fs::write(directory.path().join("store.larder.unfinished"), vec![0; 4096]).unwrap();
    let store = Store::open(options(&directory)).unwrap();
    assert!(insert(&store, 1, 1, 10));
}

/// Guards against a store that is handed over and cannot be opened, or is written by two processes.
#[test]
fn store_that_was_released_is_anothers_though_clones_are_left() {
    for policy in Policy::all() {
        let directory = directory();
        let keeps_files = policy.layout.keeps_files();
        let path = if keeps_files { directory.path().join("store") } else { path(&directory) };
        let options = StoreOptions { policy, path, ..options(&directory) };
        let store = Store::open(options.clone()).unwrap();
        assert!((0..8).filter(|&key| insert(&store, key, 1, 500)).count() > 4, "{policy}");
        let left = store.clone();
        store.release().unwrap();
        drop(store);
        let other = Store::open(options.clone()).unwrap();
        block_on(other.ready());
        let found = (0..8).filter(|&key| version_of(&other, key) == Some(1)).count();
        assert!(found > 4, "{policy}: {found} entries are found again");
        assert_eq!(block_on(left.get(&key_bytes(1))).err().map(|error| error.kind()), Some(ErrorKind::Closed));
        drop(left);
        // It takes a second to report that the store is in use.
        if policy == Policy::default_policy() {
            let refused = Store::open(options).err().map(|error| error.kind());
            assert_eq!(refused, Some(ErrorKind::InUse), "the last clone took nothing along");
        }
    }
}

/// Guards against an upgrade that finds out only at the failed start that it does not fit the store.
#[test]
fn store_in_use_can_be_glanced_at() {
    let directory = directory();
    assert_eq!(glance(&path(&directory)).unwrap(), None);
    let store = Store::open(options(&directory)).unwrap();
    let info = glance(&path(&directory)).unwrap().expect("there is one");
    assert_eq!((info.size_bytes, info.policy), (SIZE_BYTES, Some(Policy::default_policy())));
    drop(store);
    fs::write(path(&directory), [7; 8192]).unwrap();
    assert_eq!(glance(&path(&directory)).unwrap(), None);
}
