//! Checks that the HashCache policies behave as the paper says. Counts bits in memory, and device reads and writes of a
//! hit, a miss and an insertion.

use crate::support::{HEAD_VERSION, block_on, body, head, insert, key_bytes, options, version_of};
use larder_device::{Device, MemoryDevice};
use larder_store::{Hints, Policy, Stats, Store, StoreOptions};
use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

const SIZE_BYTES: u64 = 32 << 20;
const SHORT: usize = 3000;
const LONG: usize = 30_000;

/// A store of one row on a device in memory.
struct Bench {
    device: Arc<MemoryDevice>,
    options: StoreOptions,
    store: Store,
}

/// The cost of some operations.
#[derive(Debug, PartialEq)]
struct Cost {
    reads: u64,
    read_bytes: u64,
    writes: u64,
}

impl Bench {
    fn new(row: &str) -> Self {
        Self::with(StoreOptions { policy: Policy::named(row).unwrap(), identity_seed: Some(1), ..options() })
    }

    fn with(options: StoreOptions) -> Self {
        let device = Arc::new(MemoryDevice::new(SIZE_BYTES));
        let store = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &options).unwrap();
        Self { device, options, store }
    }

    /// Opens the store on the device's content, as after a kill.
    fn crash(&mut self) {
        let device = Arc::new(self.device.snapshot());
        self.store = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &self.options).unwrap();
        self.device = device;
    }

    fn cost<T>(&self, work: impl FnOnce(&Store) -> T) -> (T, Cost) {
        let before = self.store.stats();
        let outcome = work(&self.store);
        let after = self.store.stats();
        let of = |counter: fn(&Stats) -> u64| counter(&after) - counter(&before);
        let cost = Cost { reads: of(|s| s.reads), read_bytes: of(|s| s.read_bytes), writes: of(|s| s.writes) };
        (outcome, cost)
    }

    fn insert(&self, key: u64, len: usize) -> Cost {
        let (stored, cost) = self.cost(|store| insert(store, key, 1, len));
        assert!(stored);
        cost
    }

    fn fill(&self, keys: std::ops::Range<u64>, len: impl Fn(u64) -> usize) {
        for key in keys {
            self.insert(key, len(key));
        }
    }

    fn look_up(&self, key: u64) -> (bool, Cost) {
        let (version, cost) = self.cost(|store| version_of(store, key));
        (version.is_some(), cost)
    }

    /// Returns how many of these keys exist, and the reads that took.
    fn count(&self, keys: std::ops::Range<u64>) -> (u64, u64) {
        let (found, cost) = self.cost(|store| keys.filter(|&key| version_of(store, key).is_some()).count());
        (found as u64, cost.reads)
    }
}

fn reads(reads: u64, read_bytes: u64) -> Cost {
    Cost { reads, read_bytes, writes: 0 }
}

fn writes(writes: u64) -> Cost {
    Cost { reads: 0, read_bytes: 0, writes }
}

#[test]
fn basic_takes_no_memory_and_one_read_for_hit_and_miss_alike() {
    let bench = Bench::new("hashcache-basic");
    assert_eq!(bench.store.stats().index_bytes, 0);
    assert_eq!(bench.insert(1, SHORT), writes(1));
    assert_eq!(bench.look_up(1), (true, reads(1, 8192)));
    assert_eq!(bench.look_up(2), (false, reads(1, 8192)));
    assert_eq!(bench.insert(3, LONG), writes(2), "a bin and its rest");
    let (found, cost) = bench.look_up(3);
    assert_eq!((found, cost.reads), (true, 2));
    let stats = bench.store.stats();
    assert_eq!((stats.index_bytes, stats.entries), (0, 0), "nothing is kept in memory");
}

#[test]
fn basic_overwrites_what_collides() {
    let bench = Bench::new("hashcache-basic");
    let bins = bench.store.stats().entries_max;
    bench.fill(0..bins, |_| 100);
    let (found, _) = bench.count(0..bins);
    let share = found as f64 / bins as f64;
    assert!((0.60..0.66).contains(&share), "1 - 1/e of keys hashed to as many bins, not {share}");
}

#[test]
fn set_takes_no_memory_and_one_read_of_the_whole_set_for_hit_and_miss_alike() {
    let bench = Bench::new("hashcache-set");
    assert_eq!(bench.look_up(1), (false, reads(1, 65_536)));
    assert_eq!(bench.insert(1, SHORT), writes(1), "the miss before has read the set");
    assert_eq!(bench.look_up(1), (true, reads(1, 65_536)));
    assert_eq!(bench.insert(2, SHORT), Cost { reads: 1, read_bytes: 65_536, writes: 1 }, "nobody asked for it before");
    let stats = bench.store.stats();
    assert_eq!((stats.index_bytes, stats.entries), (0, 0), "nothing is kept in memory");
}

#[test]
fn setmem_takes_eleven_bits_and_one_read_for_a_hit() {
    let bench = Bench::new("hashcache-setmem");
    let stats = bench.store.stats();
    let bits = stats.index_bytes as f64 * 8.0 / stats.entries_max as f64;
    assert!((11.0..11.05).contains(&bits), "{bits}");
    assert_eq!(bench.look_up(1), (false, reads(0, 0)));
    assert_eq!(bench.insert(1, SHORT), writes(1));
    assert_eq!(bench.insert(2, LONG), writes(2));
    assert_eq!(bench.look_up(1), (true, reads(1, 8192)));
    let (found, cost) = bench.look_up(2);
    assert_eq!((found, cost.reads), (true, 2));
    assert_eq!(bench.store.stats().entries, 2);
}

#[test]
fn setmem_reads_for_three_percent_of_misses_in_full_sets() {
    let bench = Bench::new("hashcache-setmem");
    let bins = bench.store.stats().entries_max;
    bench.fill(0..bins * 4, |_| 100);
    assert!(bench.store.stats().entries as f64 >= bins as f64 * 0.99, "{:?}", bench.store.stats());
    let (found, needless) = bench.count(1_000_000..1_040_000);
    let share = needless as f64 / 40_000.0;
    assert_eq!(found, 0);
    assert!((0.027..0.035).contains(&share), "{share}, expected 0.031");
}

#[test]
fn setmem_forgets_what_was_used_least_recently_and_set_what_was_written_first() {
    for (row, kept) in [("hashcache-setmem", 0.85..1.01), ("hashcache-set", 0.0..0.6)] {
        let bench = Bench::new(row);
        let bins = bench.store.stats().entries_max;
        let favorites = bins / 8;
        bench.fill(0..favorites, |_| 100);
        for round in 1..=12 {
            // A popular entry takes one of eight ways on average; between two of its uses, a few others are inserted.
            let first = round * 1_000_000;
            bench.fill(first..first + bins / 8, |_| 100);
            bench.count(0..favorites);
        }
        let share = bench.count(0..favorites).0 as f64 / favorites as f64;
        assert!(kept.contains(&share), "{row}: {share}");
    }
}

#[test]
fn setmem_lru_takes_less_than_eleven_bits_and_reads_sets_that_are_not_in_memory() {
    let bench = Bench::new("hashcache-setmem-lru");
    let stats = bench.store.stats();
    let bits = stats.index_bytes as f64 * 8.0 / stats.entries_max as f64;
    assert!((5.5..8.8).contains(&bits), "{bits}");
    assert_eq!(bench.look_up(1), (false, reads(1, 65_536)), "no set is in memory yet");
    assert_eq!(bench.insert(1, SHORT), writes(1));
    assert_eq!(bench.look_up(1), (true, reads(1, 8192)));
    assert_eq!(bench.insert(2, SHORT), Cost { reads: 1, read_bytes: 65_536, writes: 1 });
    bench.fill(100..900, |_| 100);
    let costs: Vec<_> = (100..900).filter_map(|key| Some(bench.look_up(key)).filter(|(found, _)| *found)).collect();
    let of = |cost: &Cost| costs.iter().filter(|(_, other)| other == cost).count();
    let resident = of(&reads(1, 8192));
    let fetched = of(&reads(1, 65_536));
    let second_of_a_tag = of(&reads(2, 2 * 8192));
    let all = resident + fetched + second_of_a_tag;
    assert_eq!((all, resident > 100, fetched > 100, second_of_a_tag < 10), (costs.len(), true, true, true));
    let (found, _) = bench.look_up(899);
    assert_eq!((found, bench.look_up(899)), (true, (true, reads(1, 8192))), "the set is in memory from then on");
}

#[test]
fn a_crash_leaves_the_disk_table_warm() {
    for row in ["hashcache-basic", "hashcache-set", "hashcache-setmem", "hashcache-setmem-lru"] {
        let mut bench = Bench::new(row);
        bench.fill(0..200, |key| if key % 4 == 0 { LONG } else { SHORT });
        let before = bench.count(0..200).0;
        bench.crash();
        assert_eq!(bench.count(0..200).0, before, "{row}");
        let (again, reads) = bench.count(0..200);
        assert_eq!((again, row != "hashcache-setmem" || reads <= 250), (before, true), "{row}: {reads} reads");
        assert_eq!(bench.store.stats().corrupt, 0, "{row}");
        assert!(before >= 170, "{row}: {before}");
    }
}

#[test]
fn a_removal_from_the_disk_table_is_one_write_and_outlives_a_crash() {
    for row in ["hashcache-basic", "hashcache-set", "hashcache-setmem", "hashcache-setmem-lru"] {
        let mut bench = Bench::new(row);
        bench.fill(0..20, |_| SHORT);
        bench.insert(7, SHORT);
        let before = bench.count(0..20).0;
        bench.crash();
        bench.look_up(7);
        let ((), cost) = bench.cost(|store| block_on(store.remove(&key_bytes(7))).unwrap());
        assert_eq!(cost, writes(1), "{row}");
        assert!(!bench.look_up(7).0, "{row}");
        bench.crash();
        assert_eq!(bench.count(0..20).0, before - 1, "{row}");
        let ((), cost) = bench.cost(|store| block_on(store.remove(&key_bytes(7))).unwrap());
        assert_eq!(cost.writes, 0, "{row}: it is gone already");
    }
}

#[test]
fn a_rest_that_the_ring_overwrote_is_a_miss_and_no_damage() {
    let bench = Bench::new("hashcache-setmem");
    bench.insert(1, 500_000);
    bench.fill(100..130, |_| 900_000);
    let stats = bench.store.stats();
    assert_eq!(bench.look_up(1), (false, reads(1, 8192)), "the place in the ring tells that it was overwritten");
    assert!(bench.look_up(129).0);
    assert_eq!(bench.store.stats().corrupt, stats.corrupt);
}

#[test]
fn a_longer_head_moves_the_body_and_keeps_every_byte() {
    for row in ["hashcache-basic", "hashcache-setmem"] {
        let bench = Bench::new(row);
        for len in [10, 8000, 200_000] {
            let key = key_bytes(len as u64);
            assert!(insert(&bench.store, len as u64, 5, len));
            let padded =
                format!("{} {}", String::from_utf8(head(len as u64, 5, len).to_vec()).unwrap(), "x".repeat(5000));
            assert!(block_on(bench.store.update_head(&key, padded.clone().into(), Hints::default())).unwrap());
            let reader = block_on(bench.store.get(&key)).unwrap().unwrap();
            assert_eq!(reader.head(), padded);
            assert_eq!(block_on(reader.read(0..len as u64)).unwrap().unwrap(), body(len as u64, 5, len));
        }
    }
}

#[test]
fn an_entry_longer_than_the_ring_is_refused_and_harms_nothing() {
    let options =
        StoreOptions { policy: Policy::named("hashcache-basic").unwrap(), identity_seed: Some(1), ..options() };
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 20));
    let store = Store::open_on(device, &options).unwrap();
    assert!(insert(&store, 1, 1, 100_000));
    assert!(!insert(&store, 2, 1, 900_000));
    assert_eq!(version_of(&store, 1), Some(1));
}

#[test]
fn tables_that_cannot_be_are_refused() {
    let change: [fn(&mut StoreOptions); 5] = [
        |options| options.tuning.hashcache_bin_bytes = 5000,
        |options| options.tuning.hashcache_ways = 3,
        |options| options.tuning.hashcache_ring_share = 0.0,
        |options| options.tuning.hashcache_tag_bits = 40,
        |options| options.tuning.hashcache_resident_share = 1.01,
    ];
    for change in change {
        let mut options = StoreOptions {
            policy: Policy::named("hashcache-setmem-lru").unwrap(),
            identity_seed: Some(1),
            ..options()
        };
        change(&mut options);
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(SIZE_BYTES));
        let refused = Store::open_on(device, &options).err().map(|error| error.kind());
        assert_eq!(refused, Some(larder_store::ErrorKind::Invalid), "{:?}", options.tuning);
    }
}

/// Checks that a client that disconnects during a commit does not lock others out of the set.
#[test]
fn a_commit_that_is_given_up_leaves_its_set_to_others() {
    for row in ["hashcache-basic", "hashcache-set", "hashcache-setmem"] {
        let options = StoreOptions { policy: Policy::named(row).unwrap(), identity_seed: Some(1), ..options() };
        let device = Arc::new(crate::support::GatedDevice::new());
        let store = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &options).unwrap();
        assert!(insert(&store, 1, 1, SHORT));
        device.hold_reads();
        {
            let mut writer = store.insert(&key_bytes(2), head(2, 1, 10), Hints::default()).unwrap();
            writer.write(body(2, 1, 10)).unwrap();
            let mut commit = pin!(writer.commit());
            let _ = commit.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        device.release_reads();
        assert!(insert(&store, 2, 2, SHORT), "{row}");
        assert_eq!(version_of(&store, 2), Some(2), "{row}");
    }
}

/// Inserts keys of one page view interleaved with entries of other clients, and flushes all of them.
fn insert_page(bench: &Bench, page: u64, len: usize) {
    for key in 0..4 {
        let hints = Hints { group: page, ..Hints::default() };
        let mut writer = bench.store.insert(&key_bytes(page * 10 + key), head(page * 10 + key, 1, len), hints).unwrap();
        writer.write(body(page * 10 + key, 1, len)).unwrap();
        block_on(writer.commit()).unwrap();
        assert!(insert(&bench.store, page * 10 + 5 + key, 1, len));
    }
}

#[test]
fn rows_with_a_log_take_the_papers_bits_and_write_in_batches() {
    for (row, expected) in [("hashcache-log-n", 47.0), ("hashcache-log", 55.0)] {
        let mut bench = Bench::new(row);
        let stats = bench.store.stats();
        let bits = stats.index_bytes as f64 * 8.0 / stats.entries_max as f64;
        assert!((expected..expected * 1.01).contains(&bits), "{row}: {bits}");
        let ((), cost) = bench.cost(|store| (0..200).for_each(|key| assert!(insert(store, key, 1, SHORT))));
        assert_eq!((cost.reads, cost.writes < 20), (0, true), "{row}: {cost:?}");
        block_on(bench.store.sync()).unwrap();
        let (found, reads) = bench.count(0..200);
        assert_eq!((found, reads), (200, 200), "{row}: one read a hit");
        let (found, needless) = bench.count(1_000_000..1_010_000);
        assert_eq!((found, needless < 350), (0, true), "{row}: {needless} reads for 10000 misses");
        bench.crash();
        assert_eq!(bench.count(0..200).0, 200, "{row}: warm after a crash");
    }
}

/// Guards against entries lost to another key of their set with the same tag. Of the entries in sets that are an eighth
/// full, none is lost, also after a kill.
#[test]
fn rows_with_tags_keep_every_key_of_a_tag() {
    for row in ["hashcache-setmem", "hashcache-setmem-lru", "hashcache-log", "hashcache-log-lru"] {
        let policy = Policy::named(row).unwrap();
        let mut options = StoreOptions { policy, identity_seed: Some(1), ..options() };
        // Every fifteenth pair of a set has one tag.
        options.tuning.hashcache_tag_bits = 4;
        // All but one position of a set leave memory.
        options.tuning.hashcache_positions = 1;
        options.tuning.hashcache_positions_waiting = 16;
        let mut bench = Bench::with(options);
        let count = bench.store.stats().entries_max / 8;
        bench.fill(1..count + 1, |_| 100);
        bench.fill(1..count + 1, |_| 200);
        assert_eq!(bench.count(1..count + 1).0, count, "{row}");
        if row.starts_with("hashcache-log") {
            block_on(bench.store.sync()).unwrap();
        }
        bench.crash();
        assert_eq!(bench.count(1..count + 1).0, count, "{row}, after a kill");
    }
    const COUNT: u64 = 4000;
    for row in ["hashcache-log-n", "hashcache-log"] {
        let policy = Policy::named(row).unwrap();
        let options = StoreOptions { policy, mean_entry_bytes: 1024, identity_seed: Some(1), ..options() };
        let mut bench = Bench::with(options);
        let slots = bench.store.stats().entries_max;
        assert!(slots > 7 * COUNT, "{row}: {slots}");
        bench.fill(1..COUNT + 1, |_| 100);
        assert_eq!(bench.count(1..COUNT + 1).0, COUNT, "{row}");
        block_on(bench.store.sync()).unwrap();
        bench.crash();
        assert_eq!(bench.count(1..COUNT + 1).0, COUNT, "{row}, after a kill");
    }
}

/// Creates a store of `hashcache-log-lru` with room for 16,384 entries in 2,048 sets.
fn log_lru(tuning: impl FnOnce(&mut larder_store::Tuning)) -> Bench {
    let policy = Policy::named("hashcache-log-lru").unwrap();
    let mut options = StoreOptions { policy, identity_seed: Some(1), ..options() };
    options.tuning.hashcache_positions_waiting = 16;
    tuning(&mut options.tuning);
    Bench::with(options)
}

#[test]
fn log_lru_takes_35_bits_and_a_second_read_for_what_was_not_used_lately() {
    for (positions, expected) in [(4, 35.0), (6, 45.0)] {
        let mut bench = log_lru(|tuning| tuning.hashcache_positions = positions);
        let stats = bench.store.stats();
        let bits = stats.index_bytes as f64 * 8.0 / stats.entries_max as f64;
        assert!((expected..expected * 1.03).contains(&bits), "{bits}");
        // Six to a set.
        let count = stats.entries_max * 3 / 4;
        let ((), cost) = bench.cost(|store| (0..count).for_each(|key| assert!(insert(store, key, 1, 100))));
        assert!(cost.writes < count, "places go to the file several at once: {cost:?}");
        block_on(bench.store.sync()).unwrap();
        let evicted = bench.store.stats().evicted;
        let found = bench.count(0..count).0;
        assert_eq!(found + evicted, count, "{evicted} evicted");
        let mut second_reads = 0;
        for key in (0..count).step_by(50) {
            if bench.look_up(key).0 {
                second_reads += bench.look_up(key).1.reads - 1;
            }
        }
        // Those read the record of another key of the same tag first.
        assert!(second_reads * 50 < count * 3 / 100, "what was just used has its place in memory: {second_reads}");
        let (found, needless) = bench.count(1_000_000..1_010_000);
        assert!(found == 0 && needless < 700, "{needless} reads for 10000 misses");
        bench.crash();
        let after = bench.count(0..count).0;
        assert!(after * 100 >= (count - evicted) * 97, "{after} of {count} after a crash");
        assert_eq!(bench.store.stats().corrupt, 0);
    }
}

#[test]
fn a_place_in_the_file_follows_every_change_of_its_entry() {
    let bench = log_lru(|tuning| tuning.hashcache_positions = 1);
    for version in 1..=3 {
        (0..3000).for_each(|key| assert!(insert(&bench.store, key, version, 100)));
        (0..3000).step_by(7).for_each(|key| block_on(bench.store.remove(&key_bytes(key))).unwrap());
        for key in 0..3000 {
            let found = version_of(&bench.store, key);
            assert!(found.is_none_or(|found| found == version && key % 7 != 0), "{key}: {found:?} is not {version}");
        }
    }
    let (found, _) = bench.count(0..3000);
    assert!(found > 2000, "{found}");
}

#[test]
fn log_n_reads_a_long_entry_once_up_to_64_kib() {
    let bench = Bench::new("hashcache-log-n");
    bench.insert(1, 60_000);
    bench.insert(2, 200_000);
    block_on(bench.store.sync()).unwrap();
    assert_eq!(bench.look_up(1).1.reads, 1);
    assert_eq!(bench.look_up(2).1.reads, 2);
}

#[test]
fn what_the_log_overwrote_is_a_miss_without_a_read() {
    let bench = Bench::with(StoreOptions {
        policy: Policy::named("hashcache-log-n").unwrap(),
        mean_entry_bytes: 512,
        identity_seed: Some(1),
        ..options()
    });
    let ((), cost) = bench.cost(|store| (0..1500).for_each(|key| assert!(insert(store, key, 1, LONG))));
    assert_eq!(cost.reads, 0, "no segment is read to be overwritten");
    block_on(bench.store.sync()).unwrap();
    let (found, cost) = bench.cost(|store| (0..200).filter(|&key| version_of(store, key).is_some()).count());
    assert_eq!((found, cost.reads <= 8), (0, true), "{cost:?}: the generation tells");
    let (found, reads) = bench.count(1300..1500);
    assert!(found >= 195 && reads <= found + 8, "{found} of 200 with {reads} reads");
    assert_eq!(bench.store.stats().corrupt, 0);
}

#[test]
fn a_group_comes_with_one_read_at_its_first_entry() {
    use larder_store::NeighborEntry;
    use std::sync::Mutex;
    // With segments of 2 MiB, all pages fit one unit.
    let policy = Policy::named("hashcache-log").unwrap();
    let bench =
        Bench::with(StoreOptions { policy, segment_size_bytes: Some(2 << 20), identity_seed: Some(1), ..options() });
    let received = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&received);
    bench.store.set_neighbors(Arc::new(move || {
        let sink = Arc::clone(&sink);
        Box::new(move |neighbor: NeighborEntry| sink.lock().unwrap().push((neighbor.key.to_vec(), neighbor.reader)))
    }));
    (1..=10).for_each(|page| insert_page(&bench, page, SHORT));
    block_on(bench.store.sync()).unwrap();
    // A changed entry is not passed on in its old form.
    assert!(insert(&bench.store, 33, 2, 10));
    block_on(bench.store.remove(&key_bytes(32))).unwrap();
    for page in 1..=10 {
        let (found, cost) = bench.look_up(page * 10);
        assert_eq!((found, cost.reads), (true, 1));
        let brought = std::mem::take(&mut *received.lock().unwrap());
        let keys: Vec<_> = brought.iter().map(|(key, _)| key.clone()).collect();
        let expected = if page == 3 { 1..2 } else { 1..4 };
        assert_eq!(keys, expected.map(|key| key_bytes(page * 10 + key)).collect::<Vec<_>>(), "page {page}");
        for (key, reader) in brought {
            let number = String::from_utf8(key).unwrap().rsplit('/').next().unwrap().parse().unwrap();
            assert_eq!(crate::support::checked_version(&reader, number), Some(1));
        }
    }
    assert_eq!(bench.look_up(15).1.reads, 1, "what was asked for alone lies alone");
    assert!(received.lock().unwrap().is_empty());
    assert_eq!(bench.store.stats().corrupt, 0);
}

/// Passes neighbors to a list of keys, as a memory cache would keep them.
fn note_neighbors(store: &Store) -> Arc<std::sync::Mutex<Vec<Vec<u8>>>> {
    let noted = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = Arc::clone(&noted);
    store.set_neighbors(Arc::new(move || {
        let sink = Arc::clone(&sink);
        Box::new(move |neighbor: larder_store::NeighborEntry| sink.lock().unwrap().push(neighbor.key.to_vec()))
    }));
    noted
}

/// Checks the purpose of grouped prefetch. Forty pages of eleven objects are stored at once, in the order in which many
/// browsers request them. Meanwhile one object of each page is requested again and gets another head.
#[test]
fn pages_that_came_at_once_cost_two_reads_each_at_most_also_after_a_stop_and_a_kill() {
    const PAGES: u64 = 40;
    const OBJECTS: u64 = 11;
    let cases = ["hashcache-log", "hashcache-log-lru"].into_iter().flat_map(|row| [(row, false), (row, true)]);
    for (row, closes) in cases {
        let policy = Policy::named(row).unwrap();
        let options = StoreOptions { policy, segment_size_bytes: Some(2 << 20), identity_seed: Some(1), ..options() };
        let mut bench = Bench::with(options);
        for object in 0..OBJECTS {
            for page in 1..=PAGES {
                let key = page * 100 + object;
                let hints = Hints { group: page, ..Hints::default() };
                let mut writer = bench.store.insert(&key_bytes(key), head(key, 1, 2000), hints).unwrap();
                writer.write(body(key, 1, 2000)).unwrap();
                block_on(writer.commit()).unwrap();
            }
        }
        for page in 1..=PAGES {
            let key = page * 100 + 5;
            assert!(block_on(bench.store.update_head(&key_bytes(key), head(key, 1, 2000), Hints::default())).unwrap());
        }
        block_on(bench.store.sync()).unwrap();
        for round in ["running", "started again"] {
            let noted = note_neighbors(&bench.store);
            let before = bench.store.stats().reads;
            for page in 1..=PAGES {
                noted.lock().unwrap().clear();
                for key in (0..OBJECTS).map(|object| page * 100 + object) {
                    if !noted.lock().unwrap().contains(&key_bytes(key).to_vec()) {
                        assert!(bench.look_up(key).0, "{row}, {round}: {key}");
                    }
                }
            }
            let reads = bench.store.stats().reads - before;
            assert!(reads <= PAGES * 2, "{row}, {round}, closed: {closes}: {reads} reads for {PAGES} pages");
            if closes {
                block_on(bench.store.close()).unwrap();
            }
            bench.crash();
        }
    }
}

/// Stores `pages` of eleven objects each, as many browsers request them, `at_once` at any time, each within ten seconds.
fn view_pages(bench: &Bench, pages: std::ops::Range<u64>, at_once: u64) {
    const VIEW_MS: u64 = 10_000;
    let of_page = |page: u64| (0..11).map(move |object| (page * VIEW_MS / at_once + object * 900, page * 100 + object));
    let mut arrivals: Vec<(u64, u64)> = pages.flat_map(of_page).collect();
    arrivals.sort_unstable();
    let mut now_ms = arrivals[0].0;
    for (arrives_ms, key) in arrivals {
        while now_ms < arrives_ms {
            bench.options.clock.advance(Duration::from_millis(100));
            now_ms += 100;
            block_on(bench.store.maintain());
        }
        let hints = Hints { group: key / 100 + 1, ..Hints::default() };
        let mut writer = bench.store.insert(&key_bytes(key), head(key, 1, 2000), hints).unwrap();
        writer.write(body(key, 1, 2000)).unwrap();
        block_on(writer.commit()).unwrap();
    }
}

/// Guards against groups that depend on the clock. A page whose objects come over ten seconds, while many others do, is
/// one read, or two if it was cut by a flush or by its age.
#[test]
fn pages_that_take_ten_seconds_cost_one_read_and_a_half_at_most_also_after_a_stop_and_a_kill() {
    const PAGES: u64 = 60;
    for row in ["hashcache-log", "hashcache-log-lru"] {
        let policy = Policy::named(row).unwrap();
        let options = StoreOptions { policy, segment_size_bytes: Some(2 << 20), identity_seed: Some(1), ..options() };
        let mut bench = Bench::with(options);
        view_pages(&bench, 0..PAGES, 20);
        block_on(bench.store.sync()).unwrap();
        for round in ["running", "killed", "stopped"] {
            let noted = note_neighbors(&bench.store);
            let before = bench.store.stats().reads;
            for page in 0..PAGES {
                noted.lock().unwrap().clear();
                for key in (0..11).map(|object| page * 100 + object) {
                    if !noted.lock().unwrap().contains(&key_bytes(key).to_vec()) {
                        assert!(bench.look_up(key).0, "{row}, {round}: {key}");
                    }
                }
            }
            let reads = bench.store.stats().reads - before;
            assert!(reads * 2 <= PAGES * 3, "{row}, {round}: {reads} reads for {PAGES} pages");
            if round == "killed" {
                block_on(bench.store.close()).unwrap();
            }
            bench.crash();
        }
    }
}

/// Guards against an acknowledged flush or removal whose records were carried over to a unit that is not written yet.
#[test]
fn records_that_are_carried_over_are_flushed_removed_and_replaced_like_others() {
    let policy = Policy::named("hashcache-log").unwrap();
    let options = StoreOptions { policy, segment_size_bytes: Some(2 << 20), identity_seed: Some(1), ..options() };
    let mut bench = Bench::with(options);
    // The window of twenty pages ends in the midst of many of them.
    view_pages(&bench, 0..20, 20);
    let carried = 19 * 100;
    assert!(insert(&bench.store, carried, 2, 3000));
    block_on(bench.store.remove(&key_bytes(carried + 1))).unwrap();
    bench.options.clock.advance(Duration::from_secs(3));
    block_on(bench.store.maintain());
    block_on(bench.store.sync()).unwrap();
    for round in ["running", "killed"] {
        assert_eq!(version_of(&bench.store, carried), Some(2), "{round}");
        assert_eq!(version_of(&bench.store, carried + 1), None, "{round}");
        assert!((2..11).all(|object| version_of(&bench.store, carried + object) == Some(1)), "{round}");
        assert!((0..19).all(|page| version_of(&bench.store, page * 100 + 10) == Some(1)), "{round}");
        assert_eq!(bench.store.stats().corrupt, 0, "{round}");
        bench.crash();
    }
}

/// Guards against recording a change of an entry at an outdated place, because writing the record moves the entry. The
/// record finds its unit full, the unit is sealed, and its groups are sorted. An entry that stayed in the index at its
/// new place came back with the next removal.
#[test]
fn a_change_that_seals_the_unit_of_its_entry_replaces_the_entry_where_that_moved() {
    const ENTRY: u64 = 10_001;
    for (change, window_s) in
        ["removal", "replacement", "head"].into_iter().flat_map(|change| [(change, 0), (change, 2)])
    {
        let of_page = |store: &Store, key: u64, group: u64| {
            let hints = Hints { group, ..Hints::default() };
            let mut writer = store.insert(&key_bytes(key), head(key, 1, 10), hints).unwrap();
            writer.write(body(key, 1, 10)).unwrap();
            block_on(writer.commit()).unwrap();
        };
        let prepared = || {
            let policy = Policy::named("hashcache-log").unwrap();
            let mut options = StoreOptions { policy, identity_seed: Some(1), ..options() };
            options.tuning.group_window = Duration::from_secs(window_s);
            let bench = Bench::with(options);
            [(ENTRY - 1, 1), (ENTRY, 2), (ENTRY + 1, 1)]
                .into_iter()
                .for_each(|(key, page)| of_page(&bench.store, key, page));
            bench
        };
        // One store shows how many records its unit takes. The change is the next record in another store.
        let bench = prepared();
        let room = (0..10_000).take_while(|&key| bench.insert(key, 10).writes == 0).count() as u64;
        let bench = prepared();
        bench.fill(0..room, |_| 10);
        let key = key_bytes(ENTRY);
        let expected = match change {
            "removal" => {
                block_on(bench.store.remove(&key)).unwrap();
                None
            }
            "replacement" => {
                assert!(insert(&bench.store, ENTRY, 2, 10));
                Some(2)
            }
            _ => {
                let new = head(ENTRY, HEAD_VERSION + 1, 10);
                assert!(block_on(bench.store.update_head(&key, new, Hints::default())).unwrap());
                Some(HEAD_VERSION + 1)
            }
        };
        assert_eq!(version_of(&bench.store, ENTRY), expected, "{change}, {window_s} s");
        let others = room + 2;
        assert_eq!(bench.store.stats().entries, others + u64::from(expected.is_some()), "{change}, {window_s} s");
    }
}

/// Rows whose entries have a bin and, if they are long, a remainder in the ring.
const TABLE_ROWS: [&str; 4] = ["hashcache-basic", "hashcache-set", "hashcache-setmem", "hashcache-setmem-lru"];

/// A store with one row and a clock that is set by hand.
fn bench_with_clock(row: &str) -> Bench {
    let clock = larder_store::Clock::manual(Duration::from_secs(1_700_000_000));
    let policy = Policy::named(row).unwrap();
    Bench::with(StoreOptions { policy, clock, identity_seed: Some(1), background: false, ..options() })
}

fn insert_of_group(store: &Store, key: u64, version: u64, len: usize, group: u64) {
    let hints = Hints { group, ..Hints::default() };
    let mut writer = store.insert(&key_bytes(key), head(key, version, len), hints).unwrap();
    writer.write(body(key, version, len)).unwrap();
    block_on(writer.commit()).unwrap();
}

/// Checks that the remainders of a page take one read, now and after a stop or a kill. Two pages arrive at once, in ten
/// seconds each.
#[test]
fn the_remainders_of_a_page_take_one_read() {
    for row in TABLE_ROWS {
        let mut bench = bench_with_clock(row);
        for object in 0..10 {
            for page in 1..=2 {
                let len = if object % 3 == 0 { 12_000 } else { SHORT };
                insert_of_group(&bench.store, page * 100 + object, 1, len, page);
            }
            bench.options.clock.advance(Duration::from_secs(1));
            block_on(bench.store.maintain());
        }
        assert!(bench.count(100..110).0 >= 9, "{row}: entries that wait are found");
        block_on(bench.store.sync()).unwrap();
        bench.crash();
        // Learns the sets, so that only bins and remainders are counted below.
        bench.count(100..110);
        bench.count(200..210);
        for (stop, reads_max) in [("kill", 12), ("again", 12)] {
            bench.crash();
            for page in [100, 200] {
                let (found, reads) = bench.count(page..page + 10);
                assert!(found >= 9 && reads <= reads_max, "{row}, {stop}: {found} found, {reads} reads");
            }
        }
        assert_eq!(bench.store.stats().corrupt, 0, "{row}");
    }
}

/// Checks that a kill costs only the entries that wait, and shows no entry of two versions.
#[test]
fn a_kill_costs_the_entries_that_wait_and_no_others() {
    for row in TABLE_ROWS {
        let mut bench = bench_with_clock(row);
        let writes_of = |key, len, group| bench.cost(|store| insert_of_group(store, key, 1, len, group)).1.writes;
        assert_eq!([writes_of(1, LONG, 0), writes_of(2, LONG, 7), writes_of(3, SHORT, 7)], [2, 0, 1], "{row}");
        assert_eq!(version_of(&bench.store, 2), Some(1), "{row}");
        bench.crash();
        assert_eq!([1, 2, 3].map(|key| version_of(&bench.store, key)), [Some(1), None, Some(1)], "{row}");
        assert_eq!(bench.store.stats().corrupt, 0, "{row}");
    }
}

/// Checks that a newer entry or a removal waits for no window, and that what waited does not come back.
#[test]
fn an_entry_that_waits_is_replaced_and_removed_at_once() {
    for row in TABLE_ROWS {
        let mut bench = bench_with_clock(row);
        insert_of_group(&bench.store, 1, 1, LONG, 7);
        insert_of_group(&bench.store, 1, 2, LONG, 7);
        insert_of_group(&bench.store, 2, 1, LONG, 7);
        assert_eq!([1, 2].map(|key| version_of(&bench.store, key)), [Some(2), Some(1)], "{row}");
        block_on(bench.store.remove(&key_bytes(2))).unwrap();
        assert_eq!([1, 2].map(|key| version_of(&bench.store, key)), [Some(2), None], "{row}");
        block_on(bench.store.close()).unwrap();
        bench.crash();
        assert_eq!([1, 2].map(|key| version_of(&bench.store, key)), [Some(2), None], "{row}");
    }
}
