//! The shipping engine on a modeled machine: one request at a time, in virtual time.
//!
//! Owns: the store, its clock, and the time that has passed. Processor and disk time add up, because each request waits
//! for its response, as in Markatos et al. Callers choose the requests. Invariant: only the caller's thread runs, and
//! nothing waits, so the same requests take the same time on every machine. Cost: the engine's processor time for a
//! request; bodies are zeros and take no memory.

use crate::model::{DiskOperation, DiskWork, Model, ModelDevice, ModelDirectory, PieceReads};
use bytes::Bytes;
use larder_device::IgnorePoison;
use larder_device::{Device, MemoryDevice};
use larder_store::{Clock, Hints, NeighborSink, Policy, Reader, Result, Stats, Store, StoreOptions, Tuning, Writer};
use std::{
    fmt,
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

/// Unix time at which virtual time starts. It is far from 0, as on real clocks.
const EPOCH: Duration = Duration::from_secs(900_000_000);
/// Virtual time between two calls of the engine's maintenance, in nanoseconds.
const MAINTENANCE_NS: u64 = 50_000_000;

/// Settings with which a simulated store is created.
#[derive(Clone, Debug)]
pub struct SimStoreOptions {
    /// The policy.
    pub policy: &'static Policy,
    /// Size of the store in bytes.
    pub size_bytes: u64,
    /// Mean size of an entry in bytes, from which some policies compute the size of their index. `None`: the engine's
    /// default.
    pub mean_entry_bytes: Option<u64>,
    /// Size of a segment in bytes. `None`: the engine's default.
    pub segment_bytes: Option<u64>,
    /// The way in which the simulated program divides an entry into reads.
    pub reads: PieceReads,
    /// Whether policies with one file use a raw device. If not, they use a file in a file system with a page cache.
    pub is_raw: bool,
    /// The policy's constants.
    pub tuning: Tuning,
    /// Maximum time that entries wait in memory before they are written.
    pub flush_interval: Duration,
}

impl SimStoreOptions {
    /// Creates the options of a store of `policy` with `size_bytes`, on a raw device, with the engine's defaults.
    pub fn new(policy: &'static Policy, size_bytes: u64) -> Self {
        Self {
            policy,
            size_bytes,
            mean_entry_bytes: None,
            segment_bytes: None,
            reads: PieceReads::default(),
            is_raw: true,
            tuning: Tuning::default(),
            flush_interval: Duration::from_millis(500),
        }
    }
}

/// Number of events in a simulated store since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreEvents {
    /// Lookups that found an entry.
    pub found: u64,
    /// Lookups that found no entry.
    pub missed: u64,
    /// Entries that were stored.
    pub stored: u64,
    /// Entries that the policy did not admit.
    pub not_admitted: u64,
    /// Entries that the store refused because it had no space.
    pub refused: u64,
}

/// A store that runs on a modeled machine in virtual time.
///
/// ```
/// use larder_sim::{Model, SimStore, SimStoreOptions};
/// use larder_store::Policy;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let options = SimStoreOptions::new(Policy::default_policy(), 64 << 20);
/// let mut store = SimStore::new(&Model::open("nvme")?, &options)?;
/// store.store(1, 10_000, 0, 0);
/// assert_eq!(store.look_up(1), Some(true));
/// println!("{:?} have passed on the modeled machine", store.passed());
/// # Ok(())
/// # }
/// ```
pub struct SimStore {
    store: Store,
    clock: Clock,
    place: EntryPlace,
    cpu_ns: u64,
    /// Time in which no request was served, in nanoseconds.
    idle_ns: u64,
    told_ms: u64,
    maintained_ns: u64,
    begun_ns: u64,
    request_ns: u64,
    waiting: Vec<WaitingLookup>,
    zeros: Bytes,
    happened: StoreEvents,
    neighbors: Arc<Mutex<Vec<(u64, u64)>>>,
}

/// The place of entries: on a device or in a directory.
enum EntryPlace {
    Device(Arc<ModelDevice>),
    Directory(Arc<ModelDirectory>),
}

/// A lookup whose read waits until its batch of reads is complete.
struct WaitingLookup {
    lookup: Pin<Box<dyn Future<Output = Result<Option<Reader>>> + Send>>,
    woken: Arc<WokenFlag>,
}

#[derive(Default)]
struct WokenFlag(AtomicBool);

impl Wake for WokenFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl SimStore {
    /// Creates an empty store on the machine `model`.
    ///
    /// # Errors
    /// If the store refuses its options.
    pub fn new(model: &Model, options: &SimStoreOptions) -> Result<Self> {
        let clock = Clock::manual(EPOCH);
        let mut store_options = StoreOptions::new("", options.size_bytes);
        store_options.policy = options.policy;
        store_options.tuning = options.tuning.clone();
        store_options.mean_entry_bytes = options.mean_entry_bytes.unwrap_or(store_options.mean_entry_bytes);
        store_options.segment_size_bytes = options.segment_bytes;
        store_options.flush_interval = options.flush_interval;
        store_options.sync_interval = options.flush_interval.max(store_options.sync_interval);
        store_options.clock = clock.clone();
        store_options.identity_seed = Some(1);
        store_options.background = false;
        let (store, place) = if options.policy.layout.keeps_files() {
            // Data other than entries costs no time: it is read at start and written at the end.
            let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(options.size_bytes));
            let directory = Arc::new(ModelDirectory::new(model).reading(options.reads));
            let store = Store::open_on_files(device, Arc::clone(&directory) as _, &store_options)?;
            (store, EntryPlace::Directory(directory))
        } else {
            let make = if options.is_raw { ModelDevice::raw } else { ModelDevice::file };
            let device = Arc::new(make(model, options.size_bytes).reading(options.reads));
            (Store::open_on(Arc::clone(&device) as _, &store_options)?, EntryPlace::Device(device))
        };
        let neighbors = Arc::<Mutex<Vec<(u64, u64)>>>::default();
        let kept = Arc::clone(&neighbors);
        store.set_neighbors(Arc::new(move || sink(&kept)));
        let request_ns = (model.system.request_us * 1e3) as u64;
        let zeros = Bytes::from(vec![0; Writer::BODY_MAX_BYTES as usize]);
        let cpu_ns = 0;
        let told_ms = 0;
        let maintained_ns = 0;
        let waiting = Vec::new();
        let happened = StoreEvents::default();
        let mut bed = Self {
            store,
            clock,
            place,
            cpu_ns,
            idle_ns: 0,
            told_ms,
            maintained_ns,
            begun_ns: 0,
            request_ns,
            waiting,
            zeros,
            happened,
            neighbors,
        };
        bed.begun_ns = bed.disk_ns();
        Ok(bed)
    }

    /// Advances virtual time to the moment at which `passed` has elapsed since the store was opened. Does nothing if
    /// that moment is in the past.
    pub fn wait_until(&mut self, passed: Duration) {
        let now_ns = self.now_ns();
        self.idle_ns += u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX).saturating_sub(now_ns);
        self.note_time();
    }

    /// Adds the processor time that `count` requests take outside of the store.
    pub fn handle_requests(&mut self, count: u64) {
        self.cpu_ns += count * self.request_ns;
        self.note_time();
    }

    /// Looks up an entry and reads it. Returns whether it was found, or `None` if the read waits until its batch of
    /// reads is complete.
    pub fn look_up(&mut self, key: u64) -> Option<bool> {
        let store = self.store.clone();
        let woken = Arc::new(WokenFlag::default());
        let mut lookup: WaitingLookup = WaitingLookup {
            lookup: Box::pin(async move { store.get(&key.to_le_bytes()).await }),
            woken: Arc::clone(&woken),
        };
        let answer = lookup.poll();
        // In a store without threads, a waiting read wakes its caller at once. Here, other requests come first.
        woken.0.store(false, Ordering::Relaxed);
        match answer {
            Some(is_found) => self.answered(is_found),
            None => self.waiting.push(lookup),
        }
        self.take_answers();
        self.note_time();
        answer
    }

    /// Stores an entry of `len_bytes`, if the policy admits it. Returns whether it was stored.
    pub fn store(&mut self, key: u64, len_bytes: u64, site: u64, group: u64) -> bool {
        let hints = Hints { site, group, ..Hints::default() };
        let stored = self.filled(key, len_bytes, hints).map(|writer| finished(writer.offer()));
        let stored = stored.ok().flatten();
        let is_stored = matches!(stored, Some(Ok(true)));
        self.note_stored(stored);
        is_stored
    }

    /// Stores an entry of `len_bytes` that is a part of a body. The policy must have admitted the whole body
    /// ([`Self::admits`]).
    pub fn store_part(&mut self, key: u64, len_bytes: u64, site: u64) {
        let hints = Hints { site, ..Hints::default() };
        let stored = self.filled(key, len_bytes, hints).map(|writer| finished(writer.commit()));
        self.note_stored(stored.ok().flatten().map(|stored| stored.map(|()| true)));
    }

    /// Returns whether the policy admits a body of `len_bytes`. Its parts are then stored by [`Self::store_part`].
    pub fn admits(&mut self, key: u64, len_bytes: u64) -> bool {
        let is_admitted = self.store.admits(&key.to_le_bytes(), len_bytes);
        self.happened.not_admitted += u64::from(!is_admitted);
        is_admitted
    }

    fn filled(&self, key: u64, len_bytes: u64, hints: Hints) -> Result<Writer> {
        let mut writer = self.store.insert(&key.to_le_bytes(), Bytes::new(), hints)?;
        writer.write(self.zeros.slice(..len_bytes.min(Writer::BODY_MAX_BYTES) as usize))?;
        Ok(writer)
    }

    /// Counts the outcome of storing an entry. `stored` says whether it was admitted; `None` means that the store
    /// refused to begin.
    fn note_stored(&mut self, stored: Option<Result<bool>>) {
        match stored {
            Some(Ok(true)) => self.happened.stored += 1,
            Some(Ok(false)) => self.happened.not_admitted += 1,
            Some(Err(_)) | None => self.happened.refused += 1,
        }
        self.take_answers();
        self.note_time();
    }

    /// Returns the entries that the store has read along with requested ones since the last call, each as its key and
    /// length.
    pub fn take_neighbors(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut *self.neighbors.lock().ignore_poison())
    }

    /// Counts a hit that a memory cache served, so that the store keeps the entry longer.
    pub fn touch(&mut self, key: u64) {
        self.store.touch(&key.to_le_bytes());
    }

    /// Removes an entry, if it exists.
    pub fn remove(&mut self, key: u64) {
        // A removal fails only if the device fails, and this device never does.
        let _ = finished(self.store.remove(&key.to_le_bytes()));
        self.take_answers();
        self.note_time();
    }

    /// Returns the virtual time that has passed since the store was opened.
    pub fn passed(&self) -> Duration {
        Duration::from_nanos(self.now_ns())
    }

    /// Returns the part of [`Self::passed`] that is processor time.
    pub fn cpu(&self) -> Duration {
        Duration::from_nanos(self.cpu_ns)
    }

    /// Returns the number of events since the store was opened.
    pub fn happened(&self) -> StoreEvents {
        self.happened
    }

    /// Returns what the disk has done since the store was opened.
    pub fn served(&self) -> DiskWork {
        match &self.place {
            EntryPlace::Device(device) => device.served(),
            EntryPlace::Directory(directory) => directory.served(),
        }
    }

    /// Begins to record the operations of the disk, for [`Self::take_operations`].
    pub fn record_operations(&self) {
        match &self.place {
            EntryPlace::Device(device) => device.record_operations(),
            EntryPlace::Directory(directory) => directory.record_operations(),
        }
    }

    /// Returns the operations of the disk that were recorded since the last call.
    pub fn take_operations(&self) -> Vec<DiskOperation> {
        match &self.place {
            EntryPlace::Device(device) => device.take_operations(),
            EntryPlace::Directory(directory) => directory.take_operations(),
        }
    }

    /// Returns the store's statistics.
    pub fn stats(&self) -> Stats {
        self.store.stats()
    }

    fn now_ns(&self) -> u64 {
        self.cpu_ns + self.idle_ns + self.disk_ns() - self.begun_ns
    }

    fn disk_ns(&self) -> u64 {
        match &self.place {
            EntryPlace::Device(device) => device.passed_ns(),
            EntryPlace::Directory(directory) => directory.passed_ns(),
        }
    }

    /// Sets the store's clock to the virtual time, and does the maintenance that is due.
    fn note_time(&mut self) {
        let now_ns = self.now_ns();
        let now_ms = now_ns / 1_000_000;
        self.clock.advance(Duration::from_millis(now_ms - self.told_ms));
        self.told_ms = now_ms;
        if let EntryPlace::Directory(directory) = &self.place {
            directory.note_time(now_ns);
        }
        if now_ns >= self.maintained_ns + MAINTENANCE_NS {
            self.maintained_ns = now_ns;
            let _ = finished(self.store.maintain());
            self.take_answers();
        }
    }

    fn take_answers(&mut self) {
        let mut at = 0;
        while at < self.waiting.len() {
            let waiting = &mut self.waiting[at];
            if !waiting.woken.0.swap(false, Ordering::Relaxed) {
                at += 1;
                continue;
            }
            match waiting.poll() {
                Some(is_found) => {
                    self.waiting.swap_remove(at);
                    self.answered(is_found);
                }
                None => at += 1,
            }
        }
    }

    fn answered(&mut self, is_found: bool) {
        *(if is_found { &mut self.happened.found } else { &mut self.happened.missed }) += 1;
    }
}

impl WaitingLookup {
    /// Continues the lookup. Returns whether the entry was found, or `None` if its read still waits.
    fn poll(&mut self) -> Option<bool> {
        let waker = Waker::from(Arc::clone(&self.woken));
        match self.lookup.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => Some(outcome.is_ok_and(|reader| reader.is_some())),
            Poll::Pending => None,
        }
    }
}

impl fmt::Debug for SimStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bed").field("passed", &self.passed()).field("happened", &self.happened).finish_non_exhaustive()
    }
}

/// Returns a sink that adds the key and length of each entry that was read along to `kept`.
fn sink(kept: &Arc<Mutex<Vec<(u64, u64)>>>) -> NeighborSink {
    let kept = Arc::clone(kept);
    Box::new(move |neighbor| {
        if let Ok(key) = neighbor.key.as_ref().try_into() {
            let neighbor = (u64::from_le_bytes(key), neighbor.reader.len());
            kept.lock().ignore_poison().push(neighbor);
        }
    })
}

/// Polls a future once. Returns its result, or `None` if it is not ready.
pub(crate) fn finished<T>(work: impl Future<Output = T>) -> Option<T> {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}
