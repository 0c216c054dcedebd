//! The second tier: keeps entries that the store evicts, on another disk or in another place, and finds them again.
//!
//! Owns: the pack that is being filled, its way to the storage, and the reads. `cache::lookup` and `cache::chunks` look
//! here after the store (`reads`), and `cache::storing` reports every change of a key first (`changes`). Invariants: a
//! fault of the tier costs hits only. No client waits longer than the time-out, and no worker's thread waits for the
//! tier's disk. No entry is found that is older than what the store held or removed last (see `index`).
//!
//! An entry never goes out alone: entries are collected in packs of 16 MiB, because a request to an object store costs
//! as much for a byte as for a pack. Memory: four packs, and the index.

#[cfg(feature = "tier-s3")]
mod bucket;
mod budget;
mod changes;
mod config;
mod folder;
mod index;
mod journal;
mod journal_writer;
mod names;
mod outgoing;
mod reads;
mod recent_changes;
pub mod record;
mod signing;
mod storage;

use larder_device::IgnorePoison;
use std::{
    collections::HashMap,
    io,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use larder_store::Store;
use tokio::{
    runtime::Handle,
    sync::{Notify, mpsc},
    time::timeout,
};

use self::{
    budget::{DailyBudget, FailureRest},
    index::{RecordPlace, TierIndex},
    journal::{JournalLine, JournalTitle, TierJournal},
    journal_writer::JournalWriter,
    outgoing::{OpenPack, PACK_BYTES, PACKS_WAITING_MAX, SealedPack},
    signing::TierKey,
    storage::PackStorage,
};
pub(crate) use self::{
    changes::{TierChange, TierClearing},
    config::TierPlace,
    outgoing::TierLook,
    record::TierEntry,
};
pub use self::{
    config::{TierBucket, TierConfig},
    signing::short_digest,
};
use crate::http::entry::random;

/// The second tier. [`TierConfig`] has its settings.
pub struct Tier {
    config: TierConfig,
    store: Store,
    storage: PackStorage,
    key: TierKey,
    state: Mutex<TierState>,
    journal: JournalWriter,
    /// Set once the journal could not be written, or the tier was stopped.
    is_out_of_use: AtomicBool,
    rest: Mutex<FailureRest>,
    figures: TierFigures,
    read_count: AtomicU64,
    sealed: mpsc::Sender<SealedPack>,
    /// The tier's own thread, which does all its I/O except for the journal.
    tasks: Handle,
    end: Arc<Notify>,
    /// Notified when an entry has returned into the store.
    restored: Notify,
}

/// The index, and the entries that are on their way.
struct TierState {
    index: TierIndex,
    open: Option<OpenPack>,
    /// The heads of long bodies whose chunks go to the tier, with their sites. The heads follow their chunks, because
    /// only the head leads to them.
    heads: HashMap<Box<[u8]>, u64>,
    /// Bytes of the packs that wait to be stored.
    waiting_bytes: usize,
    writes: Option<DailyBudget>,
    puts: Option<DailyBudget>,
}

/// The content of the journal at the start.
struct FormerTier {
    index: TierIndex,
    title: JournalTitle,
    /// The name of a tier that was given up, because it belonged to an earlier store.
    outdated: Option<u64>,
}

/// The figures of the tier since the start.
#[derive(Debug, Default)]
pub struct TierFigures {
    /// Entries found.
    pub hits: AtomicU64,
    /// Reads that failed or took too long.
    pub failed: AtomicU64,
    /// Reads that were skipped because the tier was paused or busy.
    pub bypassed: AtomicU64,
    /// Entries that were damaged or not the requested ones.
    pub corrupt: AtomicU64,
    /// Entries that were stored in the tier.
    pub stored: AtomicU64,
    /// Entries that were not stored, because the budget was used up, or the tier was down or too slow.
    pub dropped: AtomicU64,
    /// Packs stored.
    pub packs: AtomicU64,
    /// Bytes of the packs that were stored.
    pub bytes: AtomicU64,
}

/// The state of the tier, for metrics.
#[derive(Clone, Copy, Debug)]
pub struct TierGauges {
    /// Entries that can be found.
    pub entries: u64,
    /// Packs in the storage.
    pub packs: u64,
    /// Bytes of the packs in the storage.
    pub bytes: u64,
    /// Entries in packs that are not stored yet. They cannot be found.
    pub waiting: u64,
    /// Whether the tier is in use, so that entries are looked up in it.
    pub is_up: bool,
}

impl Tier {
    /// Opens the tier of a store, with its journal at `path`. Starts the tier's threads. Reads nothing but the journal.
    ///
    /// # Errors
    /// A thread cannot be started, the journal cannot be written, the secret cannot be read, or the settings of a
    /// bucket are invalid.
    pub fn open(
        config: &TierConfig,
        place: TierPlace<'_>,
        secret: Option<&str>,
        path: &Path,
        store: &Store,
    ) -> io::Result<Arc<Self>> {
        let key = TierKey::load(secret, store);
        let FormerTier { index, title, outdated } = FormerTier::read(path, store.generation(), key.mark());
        let journal = TierJournal::create(path, title, &index.snapshot())?;
        let known = index.packs();
        let next_pack = index.next_pack();
        let (sealed, packs) = mpsc::channel(PACKS_WAITING_MAX);
        let (writer, orders) = JournalWriter::new();
        let end = Arc::new(Notify::new());
        let tier = Arc::new(Self {
            config: config.clone(),
            store: store.clone(),
            storage: PackStorage::new(place, title.tier)?,
            key,
            state: Mutex::new(TierState::new(index, config)),
            journal: writer,
            is_out_of_use: AtomicBool::new(false),
            rest: Mutex::default(),
            figures: TierFigures::default(),
            read_count: AtomicU64::new(0),
            sealed,
            tasks: start_thread(&end)?,
            end,
            restored: Notify::new(),
        });
        let weak = Arc::downgrade(&tier);
        journal_writer::start(weak.clone(), journal, title, orders)?;
        tier.tasks.spawn(outgoing::store_packs(weak.clone(), packs));
        tier.tasks.spawn(outgoing::tend(weak.clone(), config.pack_age));
        let outdated = outdated.map(|tier| PackStorage::new(place, tier)).transpose()?;
        tier.tasks.spawn(outgoing::tidy(tier.storage.clone(), known, next_pack, outdated));
        if !store.set_evictions(&Arc::new(outgoing::receiver(&weak))) {
            tracing::warn!("only the policies `log` and `log-clock` pass entries on to a second tier");
        }
        Ok(tier)
    }

    /// Returns whether an evicted entry with this number of hits and this length goes to the tier.
    pub fn wants(&self, hits: u8, len_bytes: u64) -> bool {
        let is_worth_it = self.config.admits_all || hits > 0 || len_bytes >= self.config.large_bytes;
        is_worth_it && !self.lock_rest().holds(Instant::now())
    }

    /// Begins a look: a read of entries of the store, of which [`TierLook::take`] adds some to the tier.
    pub fn begin_look(self: &Arc<Self>) -> TierLook {
        TierLook { tier: Arc::clone(self), moment: self.lock().index.begin_look() }
    }

    /// Stops the tier before another process takes over its journal, or the program ends. The last pack is stored, if
    /// that takes no longer than `patience`. Blocks, so do not call it on a thread that serves requests.
    pub fn stop(self: &Arc<Self>, patience: Duration) {
        let own = Arc::clone(self);
        let (done, is_done) = std::sync::mpsc::channel();
        self.tasks.spawn(async move {
            let pack = own.lock().seal();
            let storing = async {
                if let Some(pack) = pack {
                    own.store_pack(pack).await;
                }
            };
            drop(timeout(patience, storing).await);
            own.is_out_of_use.store(true, Relaxed);
            // An error means that the journal was given up before.
            let _ = own.journal.stop().await;
            // The stop may not wait any longer.
            let _ = done.send(());
        });
        let _ = is_done.recv_timeout(patience + CHANGE_PATIENCE);
        self.is_out_of_use.store(true, Relaxed);
    }

    /// Returns the figures since the start.
    pub fn figures(&self) -> &TierFigures {
        &self.figures
    }

    /// Returns the present state.
    pub fn gauges(&self) -> TierGauges {
        let is_up = !self.is_out_of_use.load(Relaxed) && !self.lock_rest().is_resting();
        let state = self.lock();
        let index = &state.index;
        let entries = index.entry_count() as u64;
        let packs = index.pack_count() as u64;
        TierGauges { entries, packs, bytes: index.bytes(), waiting: index.waiting_count() as u64, is_up }
    }

    /// Returns the place of a key's entry, if the tier has one and is in use.
    fn locate(&self, hash: u64) -> Option<RecordPlace> {
        self.lock().index.find(hash).filter(|_| !self.is_out_of_use.load(Relaxed))
    }

    fn note_success(&self) {
        if self.lock_rest().succeed() {
            tracing::info!("the second tier responds again");
        }
    }

    fn note_failure(&self, why: &str) {
        self.figures.failed.fetch_add(1, Relaxed);
        if self.lock_rest().fail(Instant::now()) {
            tracing::warn!(why, "the second tier fails, continuing without it");
        }
    }

    fn lock(&self) -> MutexGuard<'_, TierState> {
        self.state.lock().ignore_poison()
    }

    fn lock_rest(&self) -> MutexGuard<'_, FailureRest> {
        self.rest.lock().ignore_poison()
    }
}

impl FormerTier {
    /// Reads the journal. A journal that is damaged, or belongs to an earlier state of the store, is not used.
    ///
    /// If the packs were written under another key, or without one, their entries are misses. The packs stay until the
    /// tier is full.
    fn read(path: &Path, generation: u64, key_mark: u64) -> Self {
        let mut index = TierIndex::new();
        let read = TierJournal::read(path);
        let former = read.as_ref().map(|(title, _)| title.tier);
        match read {
            Some((title, lines)) if title.generation == generation => {
                let is_signed = title.key_mark == key_mark;
                let is_usable = |line: &&JournalLine| is_signed || !matches!(line, JournalLine::Entry { .. });
                lines.iter().filter(is_usable).for_each(|line| index.apply(line));
                Self { index, title: JournalTitle { key_mark, ..title }, outdated: None }
            }
            _ => Self { index, title: JournalTitle { tier: random(), generation, key_mark }, outdated: former },
        }
    }
}

impl TierState {
    fn new(index: TierIndex, config: &TierConfig) -> Self {
        let now = Instant::now();
        Self {
            index,
            open: None,
            heads: HashMap::new(),
            waiting_bytes: 0,
            writes: DailyBudget::new(config.write_bytes_per_day, PACK_BYTES as u64, now),
            puts: DailyBudget::new(config.puts_per_day, 1, now),
        }
    }
}

impl Drop for Tier {
    fn drop(&mut self) {
        self.end.notify_one();
    }
}

/// Starts the thread for the tier's I/O. The thread ends when `end` is notified.
fn start_thread(end: &Arc<Notify>) -> io::Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("larder-tier")
        .build()?;
    let handle = runtime.handle().clone();
    let end = Arc::clone(end);
    thread::Builder::new().name("larder-tier".to_owned()).spawn(move || {
        runtime.block_on(end.notified());
        // Threads that wait for a dead disk are left behind.
        runtime.shutdown_background();
    })?;
    Ok(handle)
}

/// Returns the hash by which the index knows a key. The record has the whole key.
fn hash_of(key: &[u8]) -> u64 {
    short_digest(key)
}

/// Most threads that wait for the folder's disk.
const BLOCKING_THREADS: usize = 16;
/// Longest time that a change of a key waits for the journal, or for an entry that is put back.
const CHANGE_PATIENCE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::{
        index::{PackName, PackPlace},
        *,
    };

    /// At stake: packs of an earlier version that are served, or that stay in the tier for ever.
    #[test]
    fn packs_under_another_key_are_counted_and_nothing_in_them_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tier");
        let place = PackPlace { pack: 3, offset: 0, len: 5 };
        let lines = [
            JournalLine::Pack { name: PackName { number: 3, salt: 4 }, bytes: 100 },
            JournalLine::Entry { hash: 77, place },
        ];
        TierJournal::create(&path, JournalTitle { tier: 1, generation: 2, key_mark: 9 }, &lines).unwrap();
        for (key_mark, is_found) in [(9, true), (8, false)] {
            let former = FormerTier::read(&path, 2, key_mark);
            assert_eq!((former.title, former.outdated), (JournalTitle { tier: 1, generation: 2, key_mark }, None));
            assert_eq!((former.index.find(77).is_some(), former.index.pack_count()), (is_found, 1));
            let mut index = former.index;
            assert_eq!((index.bytes(), index.shrink_to(0).len(), index.bytes()), (100, 1, 0));
        }
    }
}
