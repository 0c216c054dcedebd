//! The measurement of one policy: a trace on a small store, and many entries in a large one.
//!
//! Time is not measured, because it would include the machine's noise. Neighbors go to a small cache in memory, as in
//! the proxy.

use crate::trace::{Object, page, popular_page};
use futures_executor::block_on;
use futures_util::future::join_all;
use larder_device::IgnorePoison;
use larder_store::{ErrorKind, Policy, SplitMix64, Store, StoreOptions};
use std::{
    collections::{HashSet, VecDeque},
    error::Error,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

const TRACE_STORE_BYTES: u64 = 512 << 20;
const TRACE_VIEWS: u64 = 30_000;
const TRACE_PAGES: u64 = 30_000;
const TRACE_MEDIAN_BYTES: f64 = 3000.0;
const HIT_VIEWS: u64 = 5000;
const GROWTH_STORE_BYTES_PER_ENTRY: u64 = 12 << 10;
const GROWTH_MEDIAN_BYTES: f64 = 800.0;
const GROWTH_BATCH: u64 = 16;
/// Batches between syncs. Entries that wait to be written would leave holes in the heap, whose number depends on how
/// busy the machine is.
const GROWTH_SYNC_BATCHES: u64 = 16;
const NEIGHBORS_MAX: usize = 4096;

/// The measurements of one policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) name: String,
    pub(crate) hit_ratio: f64,
    pub(crate) reads_per_hit: f64,
    pub(crate) reads_per_miss: f64,
    pub(crate) writes_per_insert: f64,
    pub(crate) bytes_per_byte: f64,
    pub(crate) table_bits: f64,
    pub(crate) growth_bits: f64,
    pub(crate) kept_share: f64,
    resident_bytes: f64,
}

impl Measured {
    /// Computes the memory per entry from two stores, of which `larger` has `more` entries more.
    pub(crate) fn take_growth(&mut self, smaller: &Self, larger: &Self, more: u64) {
        self.growth_bits = (larger.resident_bytes - smaller.resident_bytes) * 8.0 / more as f64;
        self.table_bits = larger.table_bits;
        self.kept_share = larger.kept_share;
    }

    fn figures(&mut self) -> [&mut f64; 9] {
        [
            &mut self.hit_ratio,
            &mut self.reads_per_hit,
            &mut self.reads_per_miss,
            &mut self.writes_per_insert,
            &mut self.bytes_per_byte,
            &mut self.table_bits,
            &mut self.growth_bits,
            &mut self.kept_share,
            &mut self.resident_bytes,
        ]
    }

    /// Formats one line for the calling process.
    pub(crate) fn to_line(&self) -> String {
        let mut copy = self.clone();
        let figures: Vec<_> = copy.figures().iter().map(|figure| figure.to_string()).collect();
        format!("{} {}", self.name, figures.join(" "))
    }

    /// Reads [`Self::to_line`].
    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let mut measured = Self { name: words.next()?.to_owned(), ..Self::default() };
        for figure in measured.figures() {
            *figure = words.next()?.parse().ok()?;
        }
        Some(measured)
    }
}

/// Runs the trace, opens the store again, then requests entries that are present and entries that are absent.
pub(crate) fn trace(policy: &'static Policy, directory: &Path) -> Result<Measured, Box<dyn Error>> {
    let mut measured = Measured { name: policy.name.to_owned(), ..Measured::default() };
    let scratch = Scratch::new(directory, policy);
    let path = &scratch.0;
    let options = StoreOptions { policy, mean_entry_bytes: 6 << 10, ..StoreOptions::new(path, TRACE_STORE_BYTES) };
    let near = Near::default();
    let store = open(&options, &near)?;
    let mut random = SplitMix64::new(11);
    for view in 1..=TRACE_VIEWS {
        view_page(&store, &near, popular_page(&mut random, TRACE_PAGES), view);
    }
    block_on(store.sync())?;
    let stats = store.stats();
    let lookups = stats.lookups + near.served();
    measured.hit_ratio = (stats.hits + near.served()) as f64 / lookups as f64;
    measured.writes_per_insert = stats.writes as f64 / stats.commits as f64;
    measured.bytes_per_byte = stats.written_bytes as f64 / stats.admitted_bytes as f64;
    block_on(store.close())?;
    drop(store);

    let near = Near::default();
    let store = open(&options, &near)?;
    wait_until_loaded(&store)?;
    let mut reads = 0;
    let mut hits = 0;
    let mut random = SplitMix64::new(12);
    for _ in 0..HIT_VIEWS {
        let objects: Vec<_> = page(popular_page(&mut random, TRACE_PAGES)).collect();
        let before = store.stats();
        let found = near.take(&objects);
        let asked: Vec<_> = objects.iter().filter(|object| !found.contains(&object.key())).copied().collect();
        let readers = join_all(asked.iter().map(async |object| store.get(&object.key()).await));
        if block_on(readers).into_iter().all(|outcome| matches!(outcome, Ok(Some(_)))) {
            reads += store.stats().reads - before.reads;
            hits += objects.len() as u64;
        }
    }
    measured.reads_per_hit = reads as f64 / hits as f64;
    let before = store.stats();
    let absent = HIT_VIEWS * 8;
    for number in 0..absent / 8 {
        let gets = (0..8).map(|object| Object::new(TRACE_PAGES + 1 + number, 100 + object));
        block_on(join_all(gets.map(async |object| store.get(&object.key()).await.map(drop))));
    }
    measured.reads_per_miss = (store.stats().reads - before.reads) as f64 / absent as f64;
    block_on(store.close())?;
    Ok(measured)
}

/// Requests every object of a page at once, and stores the missing ones.
fn view_page(store: &Store, near: &Near, number: u64, view: u64) {
    let objects: Vec<_> = page(number).collect();
    let found = near.take(&objects);
    let asked: Vec<_> = objects.iter().filter(|object| !found.contains(&object.key())).copied().collect();
    let outcomes = block_on(join_all(asked.iter().map(async |object| store.get(&object.key()).await)));
    let missed = asked.iter().zip(outcomes).filter(|(_, outcome)| !matches!(outcome, Ok(Some(_))));
    block_on(join_all(missed.map(async |(object, _)| insert(store, *object, view, TRACE_MEDIAN_BYTES).await)));
}

/// Stores many small entries and looks how the process grows.
pub(crate) fn growth(policy: &'static Policy, directory: &Path, entries: u64) -> Result<Measured, Box<dyn Error>> {
    let mut measured = Measured { name: policy.name.to_owned(), ..Measured::default() };
    let scratch = Scratch::new(directory, policy);
    let path = &scratch.0;
    let size_bytes = entries * GROWTH_STORE_BYTES_PER_ENTRY;
    let mean_entry_bytes = GROWTH_STORE_BYTES_PER_ENTRY * 95 / 100;
    let options = StoreOptions { policy, mean_entry_bytes, ..StoreOptions::new(path, size_bytes) };
    let store = open(&options, &Near::default())?;
    for batch in 0..entries / GROWTH_BATCH {
        let objects = (0..GROWTH_BATCH).map(|number| Object::new(batch, number));
        block_on(join_all(objects.map(async |object| insert(&store, object, batch + 1, GROWTH_MEDIAN_BYTES).await)));
        if batch % GROWTH_SYNC_BATCHES == 0 {
            block_on(store.sync())?;
        }
    }
    block_on(store.sync())?;
    measured.resident_bytes = resident_bytes()? as f64;
    let stats = store.stats();
    // The index of some policies grows with the entries, that of others has its full length at once.
    let table_entries = if policy.index_assumes_mean() { stats.entries_max } else { stats.entries };
    measured.table_bits = stats.index_bytes as f64 * 8.0 / table_entries.max(1) as f64;
    let mut random = SplitMix64::new(13);
    let sample = 5000;
    let at_once = 50;
    let mut found = 0;
    for _ in 0..sample / at_once {
        let objects: Vec<_> = (0..at_once)
            .map(|_| Object::new(random.next_u64() % (entries / GROWTH_BATCH), random.next_u64() % GROWTH_BATCH))
            .collect();
        let outcomes = block_on(join_all(objects.iter().map(async |object| store.get(&object.key()).await)));
        found += outcomes.iter().filter(|outcome| matches!(outcome, Ok(Some(_)))).count();
    }
    measured.kept_share = found as f64 / sample as f64;
    block_on(store.close())?;
    Ok(measured)
}

async fn insert(store: &Store, object: Object, view: u64, median: f64) {
    let stored = async {
        let mut writer = store.insert(&object.key(), "HTTP/1.1 200 OK".into(), object.hints(view))?;
        writer.write(object.body(median))?;
        writer.commit().await
    };
    // A lack of room is an expected result. Any other error would make the figures worthless.
    if let Err(error) = stored.await {
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    }
}

fn open(options: &StoreOptions, near: &Near) -> larder_store::Result<Store> {
    let store = Store::open(options.clone())?;
    let near = near.clone();
    store.set_neighbors(Arc::new(move || {
        let near = near.clone();
        Box::new(move |neighbor| near.put(neighbor.key.to_vec()))
    }));
    Ok(store)
}

fn wait_until_loaded(store: &Store) -> Result<(), Box<dyn Error>> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !store.stats().loaded {
        if Instant::now() > deadline {
            return Err("the store did not load within a minute".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn resident_bytes() -> Result<u64, Box<dyn Error>> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).ok_or("statm has no second number")?.parse()?;
    Ok(pages * 4096)
}

/// Keys that were read along, the newest of them.
#[derive(Clone, Default)]
struct Near(Arc<Mutex<NearState>>);

#[derive(Default)]
struct NearState {
    keys: HashSet<Vec<u8>>,
    order: VecDeque<Vec<u8>>,
    served: u64,
}

impl Near {
    fn put(&self, key: Vec<u8>) {
        let mut state = self.0.lock().ignore_poison();
        if state.keys.insert(key.clone()) {
            state.order.push_back(key);
        }
        if state.order.len() > NEIGHBORS_MAX
            && let Some(oldest) = state.order.pop_front()
        {
            state.keys.remove(&oldest);
        }
    }

    /// Takes those of `objects` that are here.
    fn take(&self, objects: &[Object]) -> HashSet<Vec<u8>> {
        let mut state = self.0.lock().ignore_poison();
        let found: HashSet<_> =
            objects.iter().map(|object| object.key()).filter(|key| state.keys.contains(key)).collect();
        state.served += found.len() as u64;
        found
    }

    fn served(&self) -> u64 {
        self.0.lock().ignore_poison().served
    }
}

/// A store's file or directory, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(directory: &Path, policy: &Policy) -> Self {
        let scratch = Self(directory.join(format!("rows-{}", policy.name)));
        scratch.remove();
        scratch
    }

    fn remove(&self) {
        let outcome = if self.0.is_dir() { fs::remove_dir_all(&self.0) } else { fs::remove_file(&self.0) };
        drop(outcome);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.remove();
    }
}
