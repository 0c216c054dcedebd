//! Checks that the checkpoint of `log` makes starts short, and never brings back a replaced or removed entry, wherever
//! the machine stops, whichever writes a power loss drops, whatever is damaged.

use crate::support::{HEAD_VERSION, block_on, head, insert, key_bytes, options, version_of};
use larder_device::{AlignedBuffer, Device, MemoryDevice, Transfer};
use larder_store::{Hints, SplitMix64, Store, StoreOptions};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

const SIZE_BYTES: u64 = (12 << 18) + (128 << 10);
const KEYS: u64 = 40;
/// The index area: two roots of 4 KiB, and two images of 12 KiB each for the only partition.
const AREA: std::ops::Range<usize> = 64 << 10..96 << 10;

/// Returns the options of a store that writes checkpoints as often as possible.
fn eager() -> StoreOptions {
    let mut options = StoreOptions { size_bytes: SIZE_BYTES, ..options() };
    options.tuning.checkpoint_share = 1.0;
    options
}

fn open_image_with(image: Vec<u8>, options: &StoreOptions) -> Store {
    Store::open_on(Arc::new(MemoryDevice::from_contents(image)), options).unwrap()
}

/// A write or sync that a device received, in order.
#[derive(Clone)]
enum Event {
    Write(usize, Arc<Vec<u8>>),
    Sync,
}

/// A memory device that remembers its writes and syncs.
pub(super) struct Journal {
    inner: MemoryDevice,
    events: Mutex<Vec<Event>>,
    reads: AtomicUsize,
}

impl Journal {
    pub(super) fn new() -> Arc<Self> {
        Self::of(SIZE_BYTES)
    }

    pub(super) fn of(size_bytes: u64) -> Arc<Self> {
        Arc::new(Self { inner: MemoryDevice::new(size_bytes), events: Mutex::default(), reads: AtomicUsize::new(0) })
    }

    /// Returns the device's present content, for a store that is opened after a kill.
    pub(super) fn killed(&self) -> Arc<dyn Device> {
        Arc::new(MemoryDevice::from_contents(self.inner.contents()))
    }

    fn len(&self) -> usize {
        self.events.lock().unwrap().len()
    }

    /// Reads so far.
    pub(super) fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }

    /// Writes so far, and their bytes.
    pub(super) fn writes(&self) -> (usize, usize) {
        let events = self.events.lock().unwrap();
        let lens = events.iter().filter_map(|event| match event {
            Event::Write(_, bytes) => Some(bytes.len()),
            Event::Sync => None,
        });
        lens.fold((0, 0), |(count, sum), len| (count + 1, sum + len))
    }
}

impl Device for Journal {
    fn submit(&self, transfer: Transfer) {
        match &transfer {
            Transfer::Write { offset_bytes, buffer, .. } => {
                let event = Event::Write(*offset_bytes as usize, Arc::new(AlignedBuffer::as_slice(buffer).to_vec()));
                self.events.lock().unwrap().push(event);
            }
            Transfer::Sync { .. } => self.events.lock().unwrap().push(Event::Sync),
            Transfer::Read { .. } => _ = self.reads.fetch_add(1, Ordering::Relaxed),
        }
        self.inner.submit(transfer);
    }

    larder_device::delegate_device!(inner);
}

/// An operation on a key, and the number of events that the device had seen by then.
struct Step {
    events: usize,
    key: u64,
    change: Change,
}

#[derive(Clone, Copy)]
enum Change {
    Begun(u64),
    Removed,
    /// All earlier operations on the key are durable.
    Durable,
}

struct Workload {
    journal: Arc<Journal>,
    steps: Vec<Step>,
}

impl Workload {
    fn run(rounds: u64) -> Self {
        let journal = Journal::new();
        let options = eager();
        let store = Store::open_on(Arc::clone(&journal) as Arc<dyn Device>, &options).unwrap();
        let mut steps = Vec::new();
        let mut lengths = HashMap::new();
        for round in 1..=rounds {
            let key = (round * round + round / 3) % KEYS;
            let mut step = |key, change| steps.push(Step { events: journal.len(), key, change });
            match round % 16 {
                3 => {
                    block_on(store.remove(&key_bytes(key))).unwrap();
                    step(key, Change::Removed);
                }
                7 => {
                    block_on(store.sync()).unwrap();
                    (0..KEYS).for_each(|key| step(key, Change::Durable));
                }
                11 => {
                    if let Some(version) = version_of(&store, key) {
                        let version = version % HEAD_VERSION;
                        step(key, Change::Begun(version + HEAD_VERSION));
                        let head = head(key, version + HEAD_VERSION, lengths[&(key, version)]);
                        block_on(store.update_head(&key_bytes(key), head, Hints::default())).unwrap();
                    }
                }
                _ => {
                    let len = (round as usize * 6151) % 60_000;
                    lengths.insert((key, round), len);
                    step(key, Change::Begun(round));
                    insert(&store, key, round, len);
                    version_of(&store, key);
                }
            }
            if round % 3 == 0 {
                options.clock.advance(Duration::from_millis(300));
                block_on(store.maintain());
            }
        }
        Self { journal, steps }
    }

    /// Returns the versions of `key` that may be found if `durable` of `seen` events count for certain.
    fn allowed(&self, key: u64, durable: usize, seen: usize) -> Vec<u64> {
        let mut allowed = Vec::new();
        for step in self.steps.iter().filter(|step| step.key == key && step.events <= seen) {
            match step.change {
                Change::Begun(version) => allowed.push(version),
                Change::Durable if step.events <= durable && allowed.len() > 1 => {
                    _ = allowed.drain(..allowed.len() - 1)
                }
                Change::Removed if step.events <= durable => allowed.clear(),
                _ => {}
            }
        }
        allowed
    }

    fn check(&self, image: Vec<u8>, durable: usize, seen: usize, what: &str) -> usize {
        let store = open_image_with(image, &eager());
        let mut found = 0;
        for key in 0..KEYS {
            let Some(version) = version_of(&store, key) else { continue };
            let allowed = self.allowed(key, durable, seen);
            assert!(allowed.contains(&version), "{what}: key {key} has {version}, allowed {allowed:?}");
            found += 1;
        }
        found
    }
}

fn apply(image: &mut [u8], event: &Event) {
    if let Event::Write(at, bytes) = event {
        image[*at..*at + bytes.len()].copy_from_slice(bytes);
    }
}

/// Returns the number of events that wrote a checkpoint's root.
fn roots(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Write(_, bytes) if bytes.starts_with(b"LDRk"))).count()
}

#[test]
fn a_store_with_checkpoints_cut_after_any_write_shows_nothing_old() {
    let workload = Workload::run(900);
    let events = workload.journal.events.lock().unwrap().clone();
    let mut image = vec![0; SIZE_BYTES as usize];
    let mut found = 0;
    for (count, event) in events.iter().enumerate() {
        // A new volume's superblocks are written first.
        if count >= 4
            && let Event::Write(at, bytes) = event
        {
            let mut torn = image.clone();
            let half = (bytes.len() / 2).next_multiple_of(512);
            torn[*at..*at + half].copy_from_slice(&bytes[..half]);
            found += workload.check(torn, count, count + 1, &format!("torn at {count}"));
        }
        apply(&mut image, event);
        if count >= 4 && matches!(event, Event::Write(..)) {
            found += workload.check(image.clone(), count + 1, count + 1, &format!("cut after {count}"));
        }
    }
    println!("{} events, {} roots, {found} found", events.len(), roots(&events));
    assert!(roots(&events) >= 50 && found > 10 * events.len());
}

#[test]
fn a_store_with_checkpoints_shows_nothing_old_whichever_writes_a_power_cut_loses() {
    let workload = Workload::run(900);
    let events = workload.journal.events.lock().unwrap().clone();
    let syncs: Vec<usize> =
        events.iter().enumerate().filter(|(_, event)| matches!(event, Event::Sync)).map(|(at, _)| at).collect();
    let mut durable_image = vec![0; SIZE_BYTES as usize];
    let mut applied = 0;
    let mut found = 0;
    let mut cuts = 0;
    for (number, &sync) in syncs.iter().enumerate().skip(2) {
        events[applied..sync].iter().for_each(|event| apply(&mut durable_image, event));
        applied = sync;
        let end = syncs.get(number + 1).copied().unwrap_or(events.len());
        for seed in 0..2 {
            let mut random = SplitMix64::new((number as u64) << 8 | seed);
            let mut image = durable_image.clone();
            for event in &events[sync..end] {
                if random.below(2) == 0 {
                    apply(&mut image, event);
                }
            }
            found += workload.check(image, sync, end, &format!("power cut after sync {number}, seed {seed}"));
            cuts += 1;
        }
    }
    println!("{cuts} power cuts, {found} found");
    assert!(cuts > 400 && found > 5 * cuts);
}

/// Returns a store's versions of the first keys. In such a small index a few keys have the same address, and one of
/// them is lost.
fn versions(store: &Store, keys: u64) -> Vec<Option<u64>> {
    let versions: Vec<_> = (0..keys).map(|key| version_of(store, key)).collect();
    assert!(versions.iter().flatten().count() as u64 >= keys - 20);
    versions
}

/// Returns the device's content after a store with this number of keys was closed, and the versions that the store had
/// before.
fn closed(keys: u64) -> (Vec<u8>, Vec<Option<u64>>) {
    let device = Arc::new(MemoryDevice::new(SIZE_BYTES));
    let store = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &eager()).unwrap();
    (0..keys).for_each(|key| assert!(insert(&store, key, key, 700)));
    let versions = versions(&store, keys);
    block_on(store.close()).unwrap();
    (device.contents(), versions)
}

#[test]
fn after_a_clean_stop_everything_is_found_without_a_look_at_the_segments() {
    let (image, before) = closed(900);
    let store = open_image_with(image, &eager());
    assert!(versions(&store, 900) == before);
    let stats = store.stats();
    assert_eq!((stats.recoverable_segments, stats.corrupt), (0, 0));
}

#[test]
fn after_a_kill_only_segments_newer_than_the_checkpoint_are_replayed() {
    let device = Arc::new(MemoryDevice::new(SIZE_BYTES));
    let options = eager();
    let store = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &options).unwrap();
    for key in 0..1_400 {
        assert!(insert(&store, key, key, 700));
        if key % 10 == 0 {
            options.clock.advance(Duration::from_millis(100));
            block_on(store.maintain());
        }
    }
    block_on(store.sync()).unwrap();
    let reopened = open_image_with(device.contents(), &eager());
    assert!(versions(&reopened, 1_400) == versions(&store, 1_400));
    let replayed = reopened.stats().recoverable_segments;
    // The two segments being filled, and those begun since the older of them.
    assert!((1..=6).contains(&replayed), "{replayed} segments");
}

#[test]
fn whatever_of_a_checkpoint_is_damaged_costs_time_and_no_entry() {
    let (clean, before) = closed(900);
    for block in AREA.step_by(4096) {
        let mut image = clean.clone();
        image[block + 100..block + 200].iter_mut().for_each(|byte| *byte ^= 0x5a);
        assert!(versions(&open_image_with(image, &eager()), 900) == before, "block at {block}");
    }
}

#[test]
fn an_index_of_another_size_starts_from_the_segments_and_goes_on() {
    for mean_entry_bytes in [512, 4096] {
        let (image, mut before) = closed(500);
        let device = Arc::new(MemoryDevice::from_contents(image));
        let other = StoreOptions { mean_entry_bytes, ..eager() };
        let store = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &other).unwrap();
        assert!(insert(&store, 3, 77, 10));
        let between = versions(&store, 500);
        block_on(store.close()).unwrap();
        before[3] = Some(77);
        // Each index loses other keys with the same address; keys kept by both are compared.
        let both = |now: &[Option<u64>], then: &[Option<u64>]| {
            now.iter().zip(then).all(|(now, then)| now == then || now.is_none() || then.is_none())
        };
        assert!(both(&between, &before));
        assert!(both(&versions(&open_image_with(device.contents(), &eager()), 500), &before));
    }
}
