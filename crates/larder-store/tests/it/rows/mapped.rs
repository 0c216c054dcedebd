//! Checks that policies that keep a map make exactly the transfers per hit, miss and insertion that their papers state.
//! They restore everything after a clean stop, and the last flushed state after a crash.

use crate::support::{block_on, body, head, insert, key_bytes, options, version_of};
use larder_device::{Device, MemoryDevice, Transfer};
use larder_store::{
    ErrorKind, EvictionAxis, Hints, IndexAxis, LayoutAxis, Policy, ReadAxis, Store, StoreOptions, WriteAxis,
};
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, atomic::AtomicBool, atomic::Ordering},
    task::{Context, Poll, Waker},
    time::Duration,
};

const SIZE_BYTES: u64 = 8 << 20;
const SECTOR_BYTES: usize = 512;

/// A memory device that records its operations, and can lose writes that it acknowledges.
struct NotingDevice {
    inner: MemoryDevice,
    reads: Mutex<Vec<u64>>,
    writes: Mutex<Vec<(u64, usize)>>,
    loses_writes: AtomicBool,
}

impl NotingDevice {
    fn new() -> Arc<Self> {
        let reads = Mutex::default();
        let writes = Mutex::default();
        Arc::new(Self { inner: MemoryDevice::new(SIZE_BYTES), reads, writes, loses_writes: AtomicBool::new(false) })
    }

    /// Offsets of the reads since the last call.
    fn take_reads(&self) -> Vec<u64> {
        std::mem::take(&mut *self.reads.lock().unwrap())
    }

    /// Offsets and lengths of the writes since the last call.
    fn take_writes(&self) -> Vec<(u64, usize)> {
        std::mem::take(&mut *self.writes.lock().unwrap())
    }

    /// Returns the sites of the records on the device, in order of position (docs/internals/format.md, Record).
    fn sites_in_order_of_place(&self) -> Vec<u64> {
        let contents = self.inner.contents();
        let records = contents.chunks(SECTOR_BYTES).filter(|sector| sector.starts_with(b"LDRr"));
        records.map(|record| u64::from_le_bytes(record[32..40].try_into().unwrap())).collect()
    }
}

impl Device for NotingDevice {
    fn submit(&self, transfer: Transfer) {
        match transfer {
            Transfer::Write { offset_bytes, buffer, completion } => {
                self.writes.lock().unwrap().push((offset_bytes, buffer.len()));
                if self.loses_writes.load(Ordering::Relaxed) {
                    completion.complete(Ok(()));
                } else {
                    self.inner.submit(Transfer::Write { offset_bytes, buffer, completion });
                }
            }
            Transfer::Read { offset_bytes, .. } => {
                self.reads.lock().unwrap().push(offset_bytes);
                self.inner.submit(transfer);
            }
            Transfer::Sync { .. } => self.inner.submit(transfer),
        }
    }

    larder_device::delegate_device!(inner);
}

/// A store of a row on a noting device.
struct Bench {
    device: Arc<NotingDevice>,
    options: StoreOptions,
    store: Store,
}

impl Bench {
    fn new(row: &str) -> Self {
        let policy = Policy::named(row).unwrap();
        Self::with(StoreOptions { policy, size_bytes: SIZE_BYTES, ..options() })
    }

    fn with(options: StoreOptions) -> Self {
        let device = NotingDevice::new();
        let store = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &options).unwrap();
        device.take_reads();
        device.take_writes();
        Self { device, options, store }
    }

    /// Opens the device's content again. Without closing first, this is a crash.
    fn open_again(&mut self) {
        self.store = Store::open_on(Arc::clone(&self.device) as Arc<dyn Device>, &self.options).unwrap();
        self.device.take_reads();
        self.device.take_writes();
    }

    fn insert_for_site(&self, key: u64, site: u64, body_len: usize) {
        let hints = Hints { site, ..Hints::default() };
        let mut writer = self.store.insert(&key_bytes(key), head(key, 1, body_len), hints).unwrap();
        writer.write(body(key, 1, body_len)).unwrap();
        block_on(writer.commit()).unwrap();
    }

    fn wait(&self, time: Duration) {
        self.options.clock.advance(time);
        block_on(self.store.maintain());
    }
}

/// Returns the policies of this family with one file.
fn rows() -> impl Iterator<Item = &'static Policy> {
    let one_file = |policy: &&Policy| matches!(policy.layout, LayoutAxis::Slots | LayoutAxis::MultilevelBitmap);
    Policy::all().iter().filter(one_file)
}

#[test]
fn the_rows_are_composed_as_their_papers_say() {
    let composed = |row| {
        let policy = Policy::named(row).unwrap();
        assert_eq!(policy.index, IndexAxis::Map);
        (policy.layout, policy.writes, policy.reads, policy.eviction)
    };
    use {EvictionAxis as E, LayoutAxis as L, ReadAxis as R, WriteAxis as W};
    assert_eq!(composed("stream"), (L::Slots, W::Through, R::Direct, E::Lru));
    assert_eq!(composed("stream-pack"), (L::Slots, W::Pages, R::Direct, E::Lru));
    assert_eq!(composed("lazy-reads"), (L::Slots, W::Pages, R::SortedBatches, E::Lru));
    assert_eq!(composed("lazy-reads-loc"), (L::Slots, W::SitePages, R::SortedBatches, E::Lru));
    assert_eq!(composed("large-file"), (L::Slots, W::Asynchronous, R::Asynchronous, E::Lru));
    assert_eq!(composed("esp"), (L::MultilevelBitmap, W::Through, R::Direct, E::PacedLru));
}

#[test]
fn a_hit_is_one_read_a_miss_none_a_removal_one_write_and_the_index_costs_at_most_288_bits_an_entry() {
    for policy in rows() {
        let bench = Bench::new(policy.name);
        for key in 0..50 {
            assert!(insert(&bench.store, key, 1, 3000 + key as usize * 100), "{policy}");
        }
        block_on(bench.store.sync()).unwrap();
        bench.device.take_writes();
        for key in 0..50 {
            assert_eq!(version_of(&bench.store, key), Some(1), "{policy}");
            assert_eq!(bench.device.take_reads().len(), 1, "{policy}");
        }
        assert_eq!(version_of(&bench.store, 1000), None);
        block_on(bench.store.remove(&key_bytes(7))).unwrap();
        assert_eq!(version_of(&bench.store, 7), None);
        assert_eq!((bench.device.take_reads().len(), bench.device.take_writes().len()), (0, 1), "{policy}");
        let stats = bench.store.stats();
        // In addition to the map's 272 bits: a bitmap of 1 bit per slot or 2 per block.
        let slots = SIZE_BYTES / SECTOR_BYTES as u64;
        assert!(stats.index_bytes * 8 <= stats.entries_max * 288 + slots * 2, "{policy}: {stats:?}");
    }
}

#[test]
fn rows_that_write_through_and_large_file_make_one_write_an_insert() {
    for row in ["stream", "large-file", "esp"] {
        let bench = Bench::new(row);
        for key in 0..40 {
            assert!(insert(&bench.store, key, 1, 5000));
            assert_eq!(bench.device.take_writes().len(), 1, "{row}");
        }
        assert_eq!(bench.store.stats().writes, 40 + 2, "{row}: and the snapshot's two heads when it was opened");
    }
}

#[test]
fn stream_writes_one_record_behind_the_other() {
    let bench = Bench::new("stream");
    for key in 0..40 {
        assert!(insert(&bench.store, key, 1, key as usize * 300));
    }
    let writes = bench.device.take_writes();
    assert!(writes.windows(2).all(|pair| pair[0].0 + pair[0].1 as u64 == pair[1].0), "{writes:?}");
}

#[test]
fn stream_pack_gathers_small_records_in_pages_and_serves_them_from_there() {
    let bench = Bench::new("stream-pack");
    let page_bytes = bench.options.tuning.page_bytes as usize;
    // A record with a body of 900 bytes fills two sectors.
    let count = 64;
    for key in 0..count {
        assert!(insert(&bench.store, key, 1, 900));
        assert_eq!(version_of(&bench.store, key), Some(1));
    }
    let full_pages = count as usize * 2 * SECTOR_BYTES / page_bytes;
    let writes = bench.device.take_writes();
    // The data area need not begin with a page.
    assert!(writes.len() >= full_pages - 1 && writes.len() <= full_pages, "{writes:?}");
    assert!(
        writes[1..].iter().all(|&(at, len)| (at as usize).is_multiple_of(page_bytes) && len == page_bytes),
        "{writes:?}"
    );
    let last = count - 1;
    bench.device.take_reads();
    assert_eq!(version_of(&bench.store, last), Some(1));
    assert!(bench.device.take_reads().is_empty(), "the last one is still in the page");
    bench.wait(bench.options.flush_interval);
    // And the journal's page.
    assert_eq!(bench.device.take_writes().len(), 2, "a page that is not full waits for the flush interval only");
    assert_eq!(version_of(&bench.store, last), Some(1));
    assert_eq!(bench.device.take_reads().len(), 1);
}

/// Polls once.
fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// The policies whose reads are sorted, and some that do so with `sorted_reads`.
const SORTED_ROWS: [&str; 7] =
    ["lazy-reads", "lazy-reads-loc", "log", "stream", "hashcache-log", "hashcache-setmem", "esp"];

fn sorted_options(row: &str) -> StoreOptions {
    let policy = Policy::named(row).unwrap();
    let mut options = StoreOptions { policy, size_bytes: SIZE_BYTES, identity_seed: Some(1), ..options() };
    options.tuning.sorted_reads = !row.starts_with("lazy-reads");
    options
}

#[test]
fn lazy_reads_go_in_sorted_batches_of_ten_or_when_their_time_is_over() {
    for row in SORTED_ROWS {
        let bench = Bench::with(sorted_options(row));
        for key in 0..30 {
            assert!(insert(&bench.store, key, 1, 5000));
        }
        block_on(bench.store.sync()).unwrap();
        let keys: Vec<_> = [17_u64, 3, 28, 11, 0, 22, 9, 14, 5, 26].map(key_bytes).into();
        let mut gets: Vec<_> = keys.iter().map(|key| Box::pin(bench.store.get(key))).collect();
        for get in &mut gets[..9] {
            assert!(poll(get).is_pending());
        }
        assert!(bench.device.take_reads().is_empty(), "{row}: nine wait for a tenth");
        assert!(poll(&mut gets[9]).is_ready());
        let reads = bench.device.take_reads();
        assert!(reads.len() == 10 && reads.is_sorted(), "{row}: {reads:?}");
        assert!(gets[..9].iter_mut().all(|get| poll(get).is_ready()));

        let mut few: Vec<_> = keys[..3].iter().map(|key| Box::pin(bench.store.get(key))).collect();
        assert!(few.iter_mut().all(|get| poll(get).is_pending()));
        bench.wait(bench.options.tuning.read_batch_time_out - Duration::from_millis(1));
        assert!(bench.device.take_reads().is_empty(), "{row}: their time is not over");
        bench.wait(Duration::from_millis(1));
        let reads = bench.device.take_reads();
        assert!(reads.len() == 3 && reads.is_sorted(), "{row}: {reads:?}");
        assert!(few.iter_mut().all(|get| poll(get).is_ready()));
    }
}

#[test]
fn a_lone_lazy_read_ends_without_anybody_else() {
    for row in SORTED_ROWS {
        let bench = Bench::with(sorted_options(row));
        assert!(insert(&bench.store, 1, 1, 5000));
        block_on(bench.store.sync()).unwrap();
        assert_eq!(version_of(&bench.store, 1), Some(1), "{row}");
        let clock = larder_store::Clock::default();
        let bench = Bench::with(StoreOptions { background: true, clock, ..sorted_options(row) });
        assert!(insert(&bench.store, 1, 1, 5000));
        block_on(bench.store.sync()).unwrap();
        assert_eq!(version_of(&bench.store, 1), Some(1), "{row}: the store's own thread sends it");
    }
}

#[test]
fn locality_buffers_bring_the_entries_of_a_site_together() {
    let interleaved: Vec<u64> = (0..32).map(|key| 1 + key % 4).collect();
    for (row, together) in [("lazy-reads", false), ("lazy-reads-loc", true)] {
        let bench = Bench::new(row);
        for (key, &site) in (0..).zip(&interleaved) {
            bench.insert_for_site(key, site, 3000);
        }
        assert!(!together || bench.device.take_writes().is_empty(), "they wait in their buffers");
        assert!((0..32).all(|key| version_of(&bench.store, key) == Some(1)), "and are served from there");
        block_on(bench.store.sync()).unwrap();
        let mut expected = interleaved.clone();
        if together {
            expected.sort_unstable();
        }
        assert_eq!(bench.device.sites_in_order_of_place(), expected, "{row}");
        assert!((0..32).all(|key| version_of(&bench.store, key) == Some(1)));
    }
}

#[test]
fn an_entry_removed_in_its_locality_buffer_is_never_written() {
    let bench = Bench::new("lazy-reads-loc");
    for key in 0..4 {
        bench.insert_for_site(key, 1, 3000);
    }
    block_on(bench.store.remove(&key_bytes(2))).unwrap();
    block_on(bench.store.sync()).unwrap();
    assert_eq!(bench.device.sites_in_order_of_place().len(), 3);
    assert_eq!([1, 2, 3].map(|key| version_of(&bench.store, key)), [Some(1), None, Some(1)]);
}

#[test]
fn a_share_of_the_file_stays_free_and_the_least_recently_used_go() {
    let bench = Bench::new("stream");
    for key in 0..2000 {
        assert!(insert(&bench.store, key, 1, 9000));
        // Key 0 is requested repeatedly.
        assert_eq!(version_of(&bench.store, 0), Some(1), "after {key}");
    }
    let stats = bench.store.stats();
    // A record with a body of 9000 bytes fills 18 sectors.
    let used = stats.entries * 18 * SECTOR_BYTES as u64;
    let share = used as f64 / SIZE_BYTES as f64;
    assert!(share > 0.65 && share <= 0.70, "{share}");
    let kept = (0..2000).filter(|&key| version_of(&bench.store, key).is_some()).count() as u64;
    assert_eq!(kept, stats.entries);
    assert_eq!(version_of(&bench.store, 2000 - stats.entries + 2), Some(1), "the newest are there");
    assert_eq!(version_of(&bench.store, 1), None);
}

#[test]
fn esp_evicts_as_time_goes_by_while_entries_are_stored() {
    let bench = Bench::new("esp");
    let mut key = 0;
    while insert(&bench.store, key, 1, 9000) {
        key += 1;
    }
    let full = bench.store.stats();
    assert_eq!((full.entries, full.evicted), (key, 0), "nothing goes before the volume was written once");
    assert!(full.entries * (12 << 10) > SIZE_BYTES * 9 / 10, "three blocks of 4 KiB each: {full:?}");
    bench.wait(Duration::ZERO);
    // Above the high watermark 400 entries per second are evicted, but only while something is stored.
    bench.wait(Duration::from_millis(100));
    let idle = bench.store.stats().evicted;
    for _ in 0..2 {
        insert(&bench.store, key, 1, 9000);
        bench.wait(Duration::from_millis(100));
        key += 1;
    }
    let evicted = bench.store.stats().evicted;
    assert!(evicted > idle && evicted <= 120, "{idle}, then {evicted}");
    assert!(insert(&bench.store, key, 1, 9000), "there is room again");
}

/// Guards against long values that a store refuses without a reason that its operator can act on.
#[test]
fn esp_says_why_it_refuses_a_long_entry() {
    let bench = Bench::new("esp");
    let mut key = 0;
    while insert(&bench.store, key, 1, 9000) {
        key += 1;
    }
    let mut writer = bench.store.insert(&key_bytes(key), head(key, 1, 900_000), Hints::default()).unwrap();
    writer.write(body(key, 1, 900_000)).unwrap();
    let error = block_on(writer.commit()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    assert!(error.to_string().contains("no free run is as long as the entry: esp"), "{error}");
}

/// Guards against a policy that seems fast because it stores little. 3,500 entries per second arrive, ten times the
/// number for which the paper's rates make room.
#[test]
fn esp_stores_what_comes_faster_than_its_published_rates_evict() {
    let bench = Bench::new("esp");
    let mut refused = 0;
    for key in 0..20_000 {
        refused += u64::from(!insert(&bench.store, key, 1, 2000 + key as usize * 631 % 20_000));
        if key % 175 == 0 {
            bench.wait(Duration::from_millis(50));
        }
    }
    let stats = bench.store.stats();
    assert!(refused < 200, "{refused} of 20,000: {stats:?}");
    assert!(stats.entries * 12_000 > SIZE_BYTES / 2, "and keeps the volume in use: {stats:?}");
}

#[test]
fn a_clean_stop_keeps_everything_and_a_crash_what_was_flushed() {
    for policy in rows() {
        let mut bench = Bench::new(policy.name);
        let held = |bench: &Bench| (0..200).filter(|&key| version_of(&bench.store, key) == Some(1)).count();
        for key in 0..200 {
            assert!(insert(&bench.store, key, 1, key as usize * 97));
        }
        for _ in 0..3 {
            block_on(bench.store.close()).unwrap();
            bench.open_again();
            assert_eq!(held(&bench), 200, "{policy}");
        }
        assert!(insert(&bench.store, 200, 1, 100_000), "{policy}");
        assert_eq!(held(&bench), 200, "{policy}: what is new lies beside what was loaded");
        // Twice, because a start after a crash may be followed by another crash.
        for round in 0..2 {
            bench.open_again();
            assert_eq!(held(&bench), 200, "{policy} in round {round}: what the last close had");
        }
        assert!(insert(&bench.store, 200, 1, 100_000), "{policy}");
        bench.wait(bench.options.flush_interval);
        bench.wait(bench.options.flush_interval);
        bench.open_again();
        assert_eq!(
            (held(&bench), version_of(&bench.store, 200)),
            (200, Some(1)),
            "{policy}: and what was flushed since"
        );
        assert_eq!(bench.store.stats().corrupt, 0, "{policy}");
    }
}

/// Guards against an entry that comes back or is lost because it changed while a snapshot was written.
#[test]
fn after_many_snapshots_a_crash_brings_back_the_newest_and_nothing_that_was_removed() {
    for policy in rows().filter(|policy| policy.name != "esp") {
        let mut bench = Bench::new(policy.name);
        let mut versions = [0; 60];
        for change in 0..4_000_u64 {
            let key = change * 7 % 60;
            if change % 11 == 3 {
                block_on(bench.store.remove(&key_bytes(key))).unwrap();
                versions[key as usize] = 0;
            } else {
                assert!(insert(&bench.store, key, change + 1, 300 + (change % 5) as usize * 700), "{policy}");
                versions[key as usize] = change + 1;
            }
            if change % 50 == 0 {
                bench.wait(Duration::from_millis(100));
            }
            if change % 1_300 == 1_299 {
                block_on(bench.store.sync()).unwrap();
                bench.open_again();
                let found: Vec<_> = (0..60).map(|key| version_of(&bench.store, key).unwrap_or(0)).collect();
                assert_eq!(found, versions, "{policy} after change {change}");
            }
        }
        assert_eq!(bench.store.stats().corrupt, 0, "{policy}");
    }
}

/// Checks the cost of a kill for a volume that was created without a journal.
#[test]
fn without_a_journal_a_crash_costs_everything_and_a_clean_stop_nothing() {
    for policy in rows() {
        let mut options = StoreOptions { policy, size_bytes: SIZE_BYTES, ..options() };
        options.tuning.map_journal = false;
        let mut bench = Bench::with(options);
        assert!(insert(&bench.store, 1, 1, 5000));
        block_on(bench.store.close()).unwrap();
        // A volume keeps its format, whatever the options are later.
        bench.options.tuning.map_journal = true;
        bench.open_again();
        assert_eq!(version_of(&bench.store, 1), Some(1), "{policy}");
        block_on(bench.store.sync()).unwrap();
        bench.open_again();
        assert_eq!(version_of(&bench.store, 1), None, "{policy}: a snapshot is used once");
    }
}

/// The numbers of writes continue after those of the crashed run.
#[test]
fn a_record_of_the_run_that_crashed_is_not_believed_where_a_write_was_lost() {
    for policy in rows() {
        let mut bench = Bench::new(policy.name);
        assert!(insert(&bench.store, 1, 1, 5000));
        block_on(bench.store.sync()).unwrap();
        bench.open_again();
        bench.device.loses_writes.store(true, Ordering::Relaxed);
        // The same key and, in policies that take the first free room, the same position.
        assert!(insert(&bench.store, 1, 2, 5000));
        block_on(bench.store.sync()).unwrap();
        assert_eq!(version_of(&bench.store, 1), None, "{policy}");
        assert_eq!(bench.store.stats().corrupt, 1, "{policy}");
    }
}

#[test]
fn a_store_whose_snapshot_cannot_be_marked_used_is_read_and_takes_nothing() {
    for policy in rows() {
        let mut bench = Bench::new(policy.name);
        assert!(insert(&bench.store, 1, 1, 5000));
        block_on(bench.store.close()).unwrap();
        bench.device.loses_writes.store(true, Ordering::Relaxed);
        bench.open_again();
        assert_eq!(version_of(&bench.store, 1), Some(1), "{policy}");
        assert!(!insert(&bench.store, 1, 2, 5000), "{policy}: or a crash would bring back version 1");
    }
}
