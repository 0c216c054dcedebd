//! The store: the one orchestrator that executes what index, log and eviction decide.
//!
//! Owns: the public [`Store`] and the engine behind it. Invariant: whatever is returned for a key was
//! committed under exactly that key; log order is commit order, because index and log change together
//! under the log's lock. Lock order: log, then one index partition; no lock is held across I/O.

mod append;
mod counters;
mod keeper;
mod open;
mod read;
mod reclaim;
mod recovery;

use crate::{
    Clock, Error, ErrorKind, Hints, Reader, Result, StoreOptions, Writer,
    device::{Device, ThreadDriver},
    format::{VolumeId, record, superblock::Superblock},
    hash::{KeyHash, KeyHasher},
    index::Index,
    layout::{log::Log, segments::SegmentTable},
    units::{Geometry, SECTOR_BYTES},
};
use bytes::Bytes;
pub(crate) use counters::Counters;
pub use counters::Stats;
use keeper::Keeper;
pub(crate) use read::Extent;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// A disk cache of entries. Cheap to clone; all clones are one store.
///
/// ```no_run
/// # async fn example() -> larder_store::Result<()> {
/// use larder_store::{Hints, Store, StoreOptions};
/// let store = Store::open(StoreOptions::new("/var/cache/example.larder", 1 << 30))?;
/// let mut writer = store.insert(b"key", "head".into(), Hints::default())?;
/// writer.write("body".into())?;
/// writer.commit().await?;
/// if let Some(reader) = store.get(b"key").await? {
///     let body = reader.read(0..reader.len()).await?;
/// }
/// store.close().await
/// # }
/// ```
#[derive(Clone)]
pub struct Store {
    engine: Arc<Engine>,
    _keeper: Arc<Keeper>,
}

/// Which entries [`Store::invalidate`] makes disappear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// All.
    All,
    /// Those whose [`Hints::site`] was this.
    Site(u64),
}

impl Store {
    /// Opens or creates a store. Blocks for a few device reads; loading the index goes on behind
    /// (what is not loaded yet is a miss).
    ///
    /// # Errors
    /// `Invalid`: an option, or the file is not a Larder store, or has another size.
    /// `Corrupt`: both superblocks are damaged. `Unavailable`: the file cannot be opened, or another
    /// process has it. Nothing is touched in any of these cases.
    pub fn open(options: StoreOptions) -> Result<Self> {
        let (device, superblock) = open::open_file(&options)?;
        Self::start(device, superblock, &options)
    }

    /// Opens the store on `device`, or creates one there if the device has only zeros where a
    /// superblock would be. The options' path and way of I/O do not count.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_on(device: Arc<dyn Device>, options: &StoreOptions) -> Result<Self> {
        let superblock = open::open_device(&device, options)?;
        Self::start(device, superblock, options)
    }

    fn start(device: Arc<dyn Device>, superblock: Superblock, options: &StoreOptions) -> Result<Self> {
        let engine = Arc::new(Engine::new(device, superblock, options));
        let keeper = Keeper::start(&engine, options.background)?;
        Ok(Self { engine, _keeper: Arc::new(keeper) })
    }

    /// Finds `key`. One device read for entries not dirty, none for (nearly all) misses.
    ///
    /// # Errors
    /// `Unavailable` when the device fails; `Closed`.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Reader>> {
        Engine::get(&self.engine, key, Extent::Whole).await
    }

    /// As [`Store::get`], but reads only head and the first part of a long entry; the rest is read when
    /// asked for.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub async fn front(&self, key: &[u8]) -> Result<Option<Reader>> {
        Engine::get(&self.engine, key, Extent::Front).await
    }

    /// Begins an entry.
    ///
    /// # Errors
    /// `Invalid` when key (16 KiB) or head (64 KiB) is too long; `Closed`.
    pub fn insert(&self, key: &[u8], head: Bytes, hints: Hints) -> Result<Writer> {
        self.engine.check_open()?;
        check_lengths(key, &head)?;
        Ok(Writer::new(Arc::clone(&self.engine), key, head, hints))
    }

    /// Replaces the head of an entry; a body over 64 KiB is not written again. `false`: no such entry.
    ///
    /// # Errors
    /// As [`Store::insert`] and [`Writer::commit`].
    pub async fn update_head(&self, key: &[u8], head: Bytes, hints: Hints) -> Result<bool> {
        check_lengths(key, &head)?;
        Engine::update_head(&self.engine, key, head, hints).await
    }

    /// Removes `key`; once this returns it stays removed, also after a crash of the process.
    /// Costs one small device write, shared with whatever else is dirty.
    ///
    /// # Errors
    /// `Unavailable` when that write fails: the key is gone now but may come back after a crash.
    pub async fn remove(&self, key: &[u8]) -> Result<()> {
        check_lengths(key, &[])?;
        self.engine.remove(key).await
    }

    /// Makes every entry begun so far that matches a miss; durable when this returns.
    ///
    /// # Errors
    /// `Unavailable` when the superblock cannot be written: then nothing is invalidated.
    pub async fn invalidate(&self, which: Invalidation) -> Result<()> {
        self.engine.check_open()?;
        open::invalidate(&self.engine, which).await
    }

    /// Whether the index has `key` (false positives 0.4%, no I/O).
    pub fn may_contain(&self, key: &[u8]) -> bool {
        self.engine.index.peek(self.engine.hasher.hash(key).placing()).is_some()
    }

    /// Counts a hit that was served from elsewhere (a memory tier), so that reclaim keeps the entry.
    pub fn touch(&self, key: &[u8]) {
        self.engine.index.find(self.engine.hasher.hash(key).placing());
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// Writes what is committed and makes it durable.
    ///
    /// # Errors
    /// `Unavailable` when something could not be written.
    pub async fn sync(&self) -> Result<()> {
        self.engine.sync().await
    }

    /// Syncs and closes; later calls answer `Closed`.
    ///
    /// # Errors
    /// As [`Store::sync`]; the store is closed all the same.
    pub async fn close(&self) -> Result<()> {
        if self.engine.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.engine.finish().await
    }

    /// Flushes, syncs and reclaims what is due: what the store's own thread does, for stores opened
    /// without one.
    pub async fn maintain(&self) {
        self.engine.maintain().await;
    }

    /// Gives the calling thread a ring of its own, see [`ThreadDriver`].
    pub fn attach_thread(&self) -> Option<ThreadDriver> {
        self.engine.device.attach_thread()
    }
}

/// What all handles of one store share.
pub(crate) struct Engine {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) volume: VolumeId,
    pub(crate) geometry: Geometry,
    pub(crate) hasher: KeyHasher,
    pub(crate) index: Index,
    pub(crate) segments: Arc<SegmentTable>,
    pub(crate) counters: Counters,
    log: Mutex<Log>,
    superblock: RwLock<Superblock>,
    clock: Clock,
    flush_interval: Duration,
    sync_interval: Duration,
    /// Whether a thread of the store's own makes room.
    background: bool,
    closed: AtomicBool,
    bell: keeper::Bell,
}

impl Engine {
    fn new(device: Arc<dyn Device>, superblock: Superblock, options: &StoreOptions) -> Self {
        let geometry = superblock.geometry;
        let entries = geometry.size_bytes / options.mean_entry_size_bytes;
        let segments = Arc::new(SegmentTable::new(geometry.segment_count));
        let index = Index::new(entries, geometry.size_bytes / SECTOR_BYTES);
        index.begin_loading();
        Self {
            device,
            volume: superblock.id,
            geometry,
            hasher: KeyHasher::new(superblock.hash_key),
            index,
            log: Mutex::new(Log::new(geometry, superblock.id, Arc::clone(&segments), options.dirty_bytes_max)),
            segments,
            counters: Counters::default(),
            superblock: RwLock::new(superblock),
            clock: options.clock.clone(),
            flush_interval: options.flush_interval,
            sync_interval: options.sync_interval,
            background: options.background,
            closed: AtomicBool::new(false),
            bell: keeper::Bell::default(),
        }
    }

    pub(crate) fn lock_log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the store is closed"));
        }
        Ok(())
    }

    /// The epoch in which entries are written now.
    pub(crate) fn epoch(&self) -> u32 {
        self.superblock.read().unwrap_or_else(PoisonError::into_inner).epochs.current
    }

    /// Whether no invalidation covers an entry of `site` written in `epoch`.
    pub(crate) fn admits(&self, site: u64, epoch: u32) -> bool {
        self.superblock.read().unwrap_or_else(PoisonError::into_inner).epochs.admits(site, epoch)
    }

    fn placing_and_hash(&self, key: &[u8]) -> (u64, KeyHash) {
        let hash = self.hasher.hash(key);
        (hash.placing(), hash)
    }
}

fn check_lengths(key: &[u8], head: &[u8]) -> Result<()> {
    if key.len() > record::KEY_BYTES_MAX {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("key longer than {} bytes: {}", record::KEY_BYTES_MAX, key.len()),
        ));
    }
    if head.len() > record::HEAD_BYTES_MAX {
        let place = format!("head longer than {} bytes: {}", record::HEAD_BYTES_MAX, head.len());
        return Err(Error::new(ErrorKind::Invalid, place));
    }
    Ok(())
}
