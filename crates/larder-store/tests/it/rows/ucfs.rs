//! Checks the promises of `ucfs`. A cluster is written once and read once for all its entries, entries of one site are
//! adjacent, the least recently used cluster is evicted as a whole, and written entries are found after a crash.

use crate::support::{block_on, body, cost, head, insert, key_bytes, options, version_of};
use larder_device::MemoryDevice;
use larder_store::{Hints, NeighborEntry, Policy, Store, StoreOptions};
use std::sync::{Arc, Mutex};

const CLUSTER: u64 = 128 << 10;
const LEN: usize = 5000;

fn ucfs_options() -> StoreOptions {
    let policy = Policy::named("ucfs").expect("it is in the table");
    StoreOptions { policy, mean_entry_bytes: 5400, ..options() }
}

fn store_on(device: &Arc<MemoryDevice>) -> Store {
    Store::open_on(Arc::clone(device) as _, &ucfs_options()).unwrap()
}

fn store(mib: u64) -> Store {
    store_on(&Arc::new(MemoryDevice::new(mib << 20)))
}

fn insert_at(store: &Store, site: u64, key: u64, len: usize) {
    let hints = Hints { site, ..Hints::default() };
    let mut writer = store.insert(&key_bytes(key), head(key, 1, len), hints).unwrap();
    writer.write(body(key, 1, len)).unwrap();
    block_on(writer.commit()).unwrap();
}

#[test]
fn a_cluster_is_one_write_for_all_its_entries() {
    let store = store(64);
    let filled = cost(&store, || (0..2300).for_each(|key| insert_at(&store, 7, key, LEN)));
    // A record takes 10 sectors; 8 of a cluster's 256 are its directory.
    let entries_per_cluster = (256 - 8) / 10;
    let clusters = filled.written_bytes / CLUSTER;
    assert!(clusters.abs_diff(2300 / entries_per_cluster) <= 1, "{clusters} clusters");
    // And of the journal a page for 168 entries.
    assert!((filled.writes - clusters).abs_diff(2300 / 168) <= 1, "{} writes", filled.writes);
    assert!(filled.written_bytes < clusters * CLUSTER + 20 * 4096);
    assert_eq!(filled.reads, 0);
}

#[test]
fn a_hit_is_one_read_of_a_cluster_and_a_miss_none() {
    let store = store(64);
    (0..200).for_each(|key| insert_at(&store, 7, key, LEN));
    block_on(store.sync()).unwrap();
    let hit = cost(&store, || assert_eq!(version_of(&store, 100), Some(1)));
    assert_eq!((hit.reads, hit.read_bytes), (1, CLUSTER));
    assert_eq!(cost(&store, || assert_eq!(version_of(&store, 1000), None)).reads, 0);
    insert_at(&store, 7, 300, 900_000);
    block_on(store.sync()).unwrap();
    assert_eq!(cost(&store, || assert_eq!(version_of(&store, 300), Some(1))).reads, 1, "a long one too");
}

#[test]
fn one_read_of_a_cluster_brings_all_its_living_entries_to_the_neighbors() {
    let store = store(64);
    // Entries of two sites alternate; each site has its own clusters.
    (0..92).for_each(|key| insert_at(&store, key % 2, key, LEN));
    block_on(store.sync()).unwrap();
    block_on(store.remove(&key_bytes(8))).unwrap();
    let (reads, neighbors) = neighbors_of(&store, 4);
    assert_eq!(reads, 1);
    // The keys 0, 2, .. 46 of site 0 fill the first cluster. Key 4 was requested and key 8 removed.
    let mut keys: Vec<u64> = (0..48).step_by(2).filter(|key| ![4, 8].contains(key)).collect();
    for neighbor in &neighbors {
        let at = keys.iter().position(|&key| key_bytes(key) == neighbor.key).expect("of that cluster, and alive");
        let key = keys.remove(at);
        let read = block_on(neighbor.reader.read(0..LEN as u64)).unwrap().unwrap();
        assert!(read == body(key, 1, LEN) && neighbor.reader.head() == head(key, 1, LEN));
    }
    assert!(keys.is_empty(), "{keys:?} did not come");
    assert_eq!(cost(&store, || assert_eq!(version_of(&store, 8), None)).reads, 0);
}

/// Returns the reads for `key`, and the neighbors that they returned.
fn neighbors_of(store: &Store, key: u64) -> (u64, Vec<NeighborEntry>) {
    let seen: Arc<Mutex<Vec<NeighborEntry>>> = Arc::default();
    let kept = Arc::clone(&seen);
    store.set_neighbors(Arc::new(move || {
        let kept = Arc::clone(&kept);
        Box::new(move |neighbor| kept.lock().unwrap().push(neighbor))
    }));
    let reads = cost(store, || assert_eq!(version_of(store, key), Some(1))).reads;
    let neighbors = std::mem::take(&mut *seen.lock().unwrap());
    (reads, neighbors)
}

#[test]
fn a_neighbor_whose_body_is_damaged_is_a_miss_when_it_is_read() {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let store = store_on(&device);
    (0..20).for_each(|key| insert_at(&store, 7, key, LEN));
    block_on(store.close()).unwrap();
    let mut image = device.contents();
    let body_of_6 = body(6, 1, LEN);
    let at = image.windows(LEN).position(|bytes| bytes == body_of_6).expect("it was written");
    image[at + LEN - 1] ^= 1;
    let store = store_on(&Arc::new(MemoryDevice::from_contents(image)));
    let (_, neighbors) = neighbors_of(&store, 4);
    assert_eq!(neighbors.len(), 19);
    for neighbor in &neighbors {
        let is_sound = block_on(neighbor.reader.read(0..LEN as u64)).unwrap().is_some();
        assert_eq!(is_sound, neighbor.key != key_bytes(6));
    }
    assert_eq!(store.stats().corrupt, 1);
}

#[test]
fn the_least_recently_used_cluster_goes_whole_and_what_is_asked_for_stays() {
    let store = store(16);
    let popular: Vec<u64> = (0..22).collect();
    for key in 0..8000 {
        insert_at(&store, 7, key, LEN);
        if key % 50 == 0 && key > 100 {
            let _ = version_of(&store, popular[(key / 50 % 22) as usize]);
        }
    }
    let found = |key: &u64| version_of(&store, *key).is_some();
    assert!(popular.iter().all(found), "their cluster was used all the time");
    assert_eq!((100..4000).filter(found).count(), 0);
    let newest = (7000..8000).filter(found).count();
    assert_eq!(newest, 1000);
    assert!(store.stats().evicted > 4000);
}

#[test]
fn a_clean_close_keeps_everything_and_a_crash_the_clusters_that_were_written() {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let store = store_on(&device);
    (0..900).for_each(|key| insert_at(&store, key % 5, key, 300 + (key as usize * 977) % 90_000));
    block_on(store.sync()).unwrap();
    let found = |store: &Store| (0..900).filter(|&key| version_of(store, key).is_some()).count();
    let before = found(&store);
    assert!(before > 200);
    // The entries of the open cluster are lost, and the removed one does not come back.
    block_on(store.remove(&key_bytes(899))).unwrap();
    (1000..1005).for_each(|key| insert_at(&store, 1, key, 300));
    let killed = store_on(&Arc::new(device.snapshot()));
    assert_eq!((found(&killed), killed.stats().corrupt), (before - 1, 0));
    assert_eq!((version_of(&killed, 899), version_of(&killed, 1000)), (None, None));
    block_on(store.close()).unwrap();
    let kept = Arc::new(device.snapshot());
    let again = store_on(&kept);
    assert_eq!(found(&again), before - 1);
    assert_eq!(again.stats().corrupt, 0);
    assert_eq!(found(&store_on(&Arc::new(kept.snapshot()))), before - 1, "nothing has changed since");
}

/// Protects entries that were stored minutes before a kill, in clusters that fill slowly.
#[test]
fn what_waits_in_an_open_cluster_outlives_a_kill_five_seconds_later() {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let options = ucfs_options();
    let store = Store::open_on(Arc::clone(&device) as _, &options).unwrap();
    let wait = |store: &Store| {
        for _ in 0..50 {
            options.clock.advance(std::time::Duration::from_millis(100));
            block_on(store.maintain());
        }
    };
    (0..200).for_each(|key| insert_at(&store, key % 16, key, 300));
    wait(&store);
    let kept = |store: &Store| (0..200).filter(|&key| version_of(store, key).is_some()).count();
    assert_eq!(kept(&store_on(&Arc::new(device.snapshot()))), 200);
    // The same clusters are filled further, and removed entries do not come back.
    block_on(store.remove(&key_bytes(7))).unwrap();
    assert!(insert(&store, 9, 2, 300));
    assert_eq!(version_of(&store_on(&Arc::new(device.snapshot())), 7), None);
    (200..400).for_each(|key| insert_at(&store, key % 16, key, 300));
    wait(&store);
    let written = store.stats().written_bytes;
    wait(&store);
    assert_eq!(store.stats().written_bytes, written, "nothing is written twice");
    let killed = store_on(&Arc::new(device.snapshot()));
    assert_eq!((kept(&killed), version_of(&killed, 9), killed.stats().corrupt), (199, Some(2), 0));
    assert_eq!((200..400).filter(|&key| version_of(&killed, key).is_some()).count(), 200);
    block_on(store.close()).unwrap();
    assert_eq!(kept(&store_on(&Arc::new(device.snapshot()))), 199);
}

/// Guards against the return of entries that were removed or replaced while snapshots were written.
#[test]
fn after_many_snapshots_a_crash_brings_back_the_newest_and_nothing_that_was_removed() {
    let mut device = Arc::new(MemoryDevice::new(16 << 20));
    let mut store = store_on(&device);
    let mut versions = [0; 60];
    for change in 0..6_000_u64 {
        let key = change * 7 % 60;
        if change % 11 == 3 {
            block_on(store.remove(&key_bytes(key))).unwrap();
            versions[key as usize] = 0;
        } else {
            assert!(insert(&store, key, change + 1, 300 + (change % 5) as usize * 700));
            versions[key as usize] = change + 1;
        }
        if change % 50 == 0 {
            block_on(store.maintain());
        }
        if change % 1_500 == 1_499 {
            block_on(store.sync()).unwrap();
            device = Arc::new(device.snapshot());
            store = store_on(&device);
            let found: Vec<_> = (0..60).map(|key| version_of(&store, key).unwrap_or(0)).collect();
            assert_eq!(found, versions, "after change {change}");
            assert_eq!(store.stats().corrupt, 0);
        }
    }
}

#[test]
fn an_entry_takes_200_bits_and_a_cluster_24_bytes() {
    let store = store(64);
    (0..20_000).for_each(|key| insert_at(&store, 7, key, LEN));
    let stats = store.stats();
    let clusters = (64 << 20) / CLUSTER;
    // Per entry: 20 bytes, and 5 of heads at 80% fill. Per cluster: 24 bytes, and 4 in the list of free clusters.
    assert!(stats.index_bytes <= stats.entries_max * 25 + clusters * 30, "{stats:?}");
    assert!(stats.entries * 100 >= stats.entries_max * 90, "the table is as large as what it is for: {stats:?}");
}
