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

/// A second tier, which stores entries that the store evicts. [`TierConfig`] has its settings.
pub struct Tier {
    config: TierConfig,
    store: Store,
    storage: PackStorage,
    key: TierKey,
    state: Mutex<TierState>,
    journal: JournalWriter,
    /// Whether the tier is no longer used, because its journal could not be written or it was stopped.
    is_out_of_use: AtomicBool,
    rest: Mutex<FailureRest>,
    figures: TierFigures,
    read_count: AtomicU64,
    sealed: mpsc::Sender<SealedPack>,
    /// Starts tasks on the tier's own thread, which does all I/O except for the journal.
    tasks: Handle,
    end: Arc<Notify>,
    /// Notified whenever an entry has been put back into the store.
    restored: Notify,
}

/// The index, and the entries on their way into the tier.
struct TierState {
    index: TierIndex,
    open: Option<OpenPack>,
    /// Keys of the heads of long bodies whose chunks go to the tier, each with its site. The heads must go there, too,
    /// because only they lead to the chunks.
    heads: HashMap<Box<[u8]>, u64>,
    /// Total length in bytes of the packs that wait to be stored.
    waiting_bytes: usize,
    writes: Option<DailyBudget>,
    puts: Option<DailyBudget>,
}

/// The state of the tier after an earlier run, as read from its journal at the start.
struct FormerTier {
    index: TierIndex,
    title: JournalTitle,
    /// The name of the earlier tier if it is given up, because it belonged to an earlier state of the store.
    outdated: Option<u64>,
}

/// Counters of the tier since the start.
#[derive(Debug, Default)]
pub struct TierFigures {
    /// Number of entries found in the tier.
    pub hits: AtomicU64,
    /// Number of reads and writes that failed or took too long.
    pub failed: AtomicU64,
    /// Number of reads that were skipped because the tier was paused or busy.
    pub bypassed: AtomicU64,
    /// Number of entries that were lost or damaged, or had another key than the requested one.
    pub corrupt: AtomicU64,
    /// Number of entries that were stored in the tier.
    pub stored: AtomicU64,
    /// Number of entries that were not stored, because a budget was used up, or the tier was paused or too slow.
    pub dropped: AtomicU64,
    /// Number of packs that were stored.
    pub packs: AtomicU64,
    /// Total length in bytes of the packs that were stored.
    pub bytes: AtomicU64,
}

/// The present state of the tier, for metrics.
#[derive(Clone, Copy, Debug)]
pub struct TierGauges {
    /// Number of entries that can be found.
    pub entries: u64,
    /// Number of stored packs.
    pub packs: u64,
    /// Total length in bytes of the stored packs.
    pub bytes: u64,
    /// Number of entries in packs that are not stored yet. They cannot be found.
    pub waiting: u64,
    /// Whether the tier is in use and not paused, so that entries are looked up in it.
    pub is_up: bool,
}

impl Tier {
    /// Opens the second tier of `store`, with the journal at `path`, and starts its threads. Reads only the journal, no
    /// packs.
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

    /// Returns whether an evicted entry with this number of hits and this length should go to the tier.
    pub fn wants(&self, hits: u8, len_bytes: u64) -> bool {
        let is_worth_it = self.config.admits_all || hits > 0 || len_bytes >= self.config.large_bytes;
        is_worth_it && !self.lock_rest().holds(Instant::now())
    }

    /// Begins a look: a read of entries from the store. [`TierLook::take`] adds entries that were read to the tier.
    pub fn begin_look(self: &Arc<Self>) -> TierLook {
        TierLook { tier: Arc::clone(self), moment: self.lock().index.begin_look() }
    }

    /// Stops the tier, before another process takes over its journal or the program ends. Stores the last pack, if that
    /// takes no longer than `patience`. Blocks, so do not call it on a thread that serves requests.
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

    /// Returns the counters since the start.
    pub fn figures(&self) -> &TierFigures {
        &self.figures
    }

    /// Returns the present state, for metrics.
    pub fn gauges(&self) -> TierGauges {
        let is_up = !self.is_out_of_use.load(Relaxed) && !self.lock_rest().is_resting();
        let state = self.lock();
        let index = &state.index;
        let entries = index.entry_count() as u64;
        let packs = index.pack_count() as u64;
        TierGauges { entries, packs, bytes: index.bytes(), waiting: index.waiting_count() as u64, is_up }
    }

    /// Returns where the record of a key's entry is. `None` if the tier has no such entry, or is no longer used.
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
    /// Reads the journal. If it is damaged, or belongs to an earlier state of the store, the tier starts empty.
    ///
    /// If the records were signed with another key, or not signed, their entries are not found. Their packs stay until
    /// the tier is full.
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

/// Returns the hash by which the index knows a key. The record of the entry has the whole key.
fn hash_of(key: &[u8]) -> u64 {
    short_digest(key)
}

/// Maximum number of threads that wait for the disk of the tier's folder.
const BLOCKING_THREADS: usize = 16;
/// Maximum time that a change of a key waits for the journal, or for an entry that is being put back.
const CHANGE_PATIENCE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::{
        index::{PackName, PackPlace},
        *,
    };

    /// Guards against serving entries from packs of an earlier version, and against packs that stay in the tier for
    /// ever.
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
