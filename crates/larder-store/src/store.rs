//! The store: the public API over the engines of its volumes.
//!
//! Owns: the public [`Store`]. The engines, reached through `engine`, implement the policies. Invariant: a lookup
//! returns only what was committed under exactly that key.

mod clearing;
mod closing;
mod flushing;
mod inspect;
mod maintenance;
mod open;
mod outage;
mod outgoing;
mod scan;
mod survey;
mod upgrade;
mod volumes;

use crate::{
    Error, ErrorKind, Hints, NeighborSink, Policy, Reader, Result, StoreOptions, Writer,
    device::{Device, Directory, ThreadDriver, block_on},
    engine::{LocatedEntry, ReadExtent},
    families::AnyEngine,
    format::record,
    reader::begin_records,
    stats::Stats,
    volume::{Volume, membership::reconcile, protected_keys::ReclaimGuard, superblocks},
};
use bytes::Bytes;
use closing::StoreClosing;
use futures_util::future::{join, join_all};
pub use inspect::{PathContent, StoreInfo, format, glance, inspect};
use maintenance::MaintenanceThread;
pub use scan::ScanSummary;
use std::{path::Path, sync::Arc};
pub use survey::{CheckFindings, StoreDamage, check, survey};
pub use upgrade::{UpgradePlan, plan_upgrade, upgrade};
pub(crate) use volumes::EngineVolumes;

/// A disk cache of entries. Cheap to clone; all clones are one store.
///
/// ```no_run
/// # async fn example() -> larder_store::Result<()> {
/// use larder_store::{Hints, Store, StoreOptions};
/// let store = Store::open(StoreOptions::new("/var/cache/example.larder", 1 << 30))?;
/// // Entries of an earlier run may be reported as misses until the store is ready.
/// store.ready().await;
/// let mut writer = store.insert(b"key", "head".into(), Hints::default())?;
/// writer.write("body".into())?;
/// writer.commit().await?;
/// if let Some(reader) = store.get(b"key").await? {
///     // `None` if the entry was overwritten since it was found.
///     let body: Option<bytes::Bytes> = reader.read(0..reader.len()).await?;
/// }
/// store.close().await
/// # }
/// ```
#[derive(Clone)]
pub struct Store {
    volumes: EngineVolumes,
    closing: StoreClosing,
    maintenance: Arc<[MaintenanceThread]>,
}

/// One volume of a store.
///
/// ```
/// # mod set_up { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/set_up/two_volumes.rs")); }
/// assert!(set_up::two_volumes().volumes().all(|volume| volume.stats.volumes_out == 0));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VolumeStats<'a> {
    /// The volume's path.
    pub path: &'a Path,
    /// The volume's policy.
    pub policy: &'static Policy,
    /// The volume's counters and gauges.
    pub stats: Stats,
}

impl Store {
    /// Opens or creates a store.
    ///
    /// Blocks for a few device reads. The index is loaded in the background. Meanwhile, entries that are not loaded yet
    /// are misses, or lookups wait for them ([`StoreOptions::waits_for_index`], [`Store::ready`]).
    ///
    /// # Errors
    /// `Invalid`: an option is invalid, or the file is not a Larder store or has another size. `Corrupt`: both
    /// superblocks are damaged. `Unavailable`: the file cannot be opened. `InUse`: a store has it open, in another
    /// process or in this one. The file is not changed in any of these cases.
    pub fn open(options: StoreOptions) -> Result<Self> {
        Self::start(vec![open::open_file(&options)?])
    }

    /// Opens a store that spans several volumes, creating the ones that do not exist.
    ///
    /// Each key belongs to one volume; larger volumes get more keys. A volume that is unavailable, in use or corrupt is
    /// left out: lookups of its keys miss. It is emptied when it is opened again, so that replaced or removed entries
    /// cannot come back.
    ///
    /// # Errors
    /// Like [`Store::open`], for the first volume that is refused as `Invalid` or `Full`. `Invalid` also if two of the
    /// volumes are copies of the same volume. If no volume can be opened, returns the last error.
    pub fn open_volumes(options: Vec<StoreOptions>) -> Result<Self> {
        let mut volumes = Vec::new();
        let mut last_error = Error::new(ErrorKind::Invalid, "a store needs a volume");
        for options in options {
            match open::open_file(&options) {
                Ok(volume) => volumes.push(volume),
                Err(error)
                    if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::InUse | ErrorKind::Corrupt) =>
                {
                    tracing::error!(%error, "a volume is unavailable: lookups of its keys miss");
                    last_error = error;
                }
                Err(error) => return Err(error),
            }
        }
        if volumes.is_empty() { Err(last_error) } else { Self::start(volumes) }
    }

    /// Opens the store on `device`. Creates one if the device has only zeros in place of a superblock. Ignores the path
    /// and the I/O choice in `options`.
    ///
    /// # Errors
    /// Like [`Store::open`].
    pub fn open_on(device: Arc<dyn Device>, options: &StoreOptions) -> Result<Self> {
        Self::open_on_all(vec![device], options)
    }

    /// Opens a store that spans `devices`, with one volume on each. Otherwise like [`Store::open_on`].
    ///
    /// # Errors
    /// Like [`Store::open`].
    pub fn open_on_all(devices: Vec<Arc<dyn Device>>, options: &StoreOptions) -> Result<Self> {
        let volumes = devices.into_iter().zip(0..).map(|(device, number)| {
            // Each volume has an identity of its own.
            let identity_seed = options.identity_seed.map(|seed| seed.wrapping_add(number));
            open::open_device(device, &StoreOptions { identity_seed, ..options.clone() })
        });
        Self::start(volumes.collect::<Result<_>>()?)
    }

    /// Opens a store like [`Store::open_on`] for a policy that keeps entries in files. Entries are files in
    /// `directory`; the superblocks and the map's snapshot are on `device`. The size in `options` limits both together.
    ///
    /// # Errors
    /// Like [`Store::open`].
    pub fn open_on_files(
        device: Arc<dyn Device>,
        directory: Arc<dyn Directory>,
        options: &StoreOptions,
    ) -> Result<Self> {
        Self::start(vec![open::open_device_and_directory(device, directory, options)?])
    }

    fn start(volumes: Vec<Volume>) -> Result<Self> {
        volumes.iter().try_for_each(superblocks::empty_if_doubtful)?;
        reconcile(&volumes.iter().collect::<Vec<_>>())?;
        let engines = volumes.into_iter().map(|volume| AnyEngine::new(Arc::new(volume)));
        let volumes = EngineVolumes::new(engines.collect::<Result<_>>()?);
        let maintenance = (0..volumes.count()).map(|index| MaintenanceThread::start(&volumes, index));
        let maintenance = maintenance.collect::<Result<_>>()?;
        Ok(Self { volumes, closing: StoreClosing::default(), maintenance })
    }

    /// Waits until all entries of an earlier run are loaded. After that, a miss means that there is no entry.
    ///
    /// A new store is ready at once. Waiting is optional: entries are found as soon as they are loaded, and new entries
    /// can be stored at any time.
    ///
    /// # Cost
    /// Returns at once if everything is loaded. `log` loads the last checkpoint of its index and the lists of contents
    /// of newer segments. Policies without an index in memory load nothing.
    pub async fn ready(&self) {
        for engine in self.volumes.all() {
            engine.volume().loaded().await;
        }
    }

    /// Sets the receiver of neighbors: entries that the store reads along with a requested one, in policies that read
    /// groups or clusters. A memory cache can keep them, because clients are likely to request them next.
    ///
    /// The store calls `begin` before it checks which of these entries are still current. The sink can therefore refuse
    /// entries that were replaced or removed since its creation. Both are called on the reading thread and must not
    /// block. Only the first call of this function has an effect.
    pub fn set_neighbors(&self, begin: Arc<dyn Fn() -> NeighborSink + Send + Sync>) {
        let begin = begin_records(begin);
        for engine in self.volumes.all() {
            let _ = engine.volume().begin_neighbors.set(Arc::clone(&begin));
        }
    }

    /// Returns whether a policy of this store reads other entries along with the requested one.
    pub fn brings_neighbors(&self) -> bool {
        self.volumes.all().any(|engine| engine.volume().brings_neighbors())
    }

    /// Finds the entry of `key`. In `log`, this takes one device read, or none if the entry is still in a write buffer.
    /// A miss almost never reads. [`Policy::reads`] describes other policies.
    ///
    /// # Errors
    /// `Unavailable` if the device fails, `Closed` if the store is closed.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Reader>> {
        self.look_up(key, ReadExtent::Whole).await
    }

    /// Finds an entry like [`Store::get`], but reads only the front of a long entry: its head and the first part of its
    /// body. [`Reader::read`] reads the remainder from the device when it is needed.
    ///
    /// # Errors
    /// Like [`Store::get`].
    pub async fn front(&self, key: &[u8]) -> Result<Option<Reader>> {
        self.look_up(key, ReadExtent::Front).await
    }

    async fn look_up(&self, key: &[u8], extent: ReadExtent) -> Result<Option<Reader>> {
        let Some(engine) = self.volumes.sound_of(key) else { return self.check_open().map(|()| None) };
        if !engine.volume().options.waits_for_index || engine.has_loaded(key) {
            return engine.get(key, extent).await;
        }
        // Boxed, because only lookups after a start come here.
        Box::pin(async {
            if let Some(found) = engine.get(key, extent).await? {
                return Ok(Some(found));
            }
            engine.loaded_part(key).await;
            engine.get(key, extent).await
        })
        .await
    }

    /// Returns the location of `key`'s entry without reading its body.
    ///
    /// [`Store::may_contain`] compares a few bits of the hash in memory and can be wrong. This function reads the start
    /// of the entry's record and compares the whole key. Pass the result to [`Store::is_at`] to check later, without
    /// I/O, that the entry has not moved.
    ///
    /// # Cost
    /// Policies on the log: one read of 4 KiB. Disk tables: one bin or set. Policies that index all their entries: no
    /// read. Misses almost never read.
    ///
    /// # Errors
    /// Like [`Store::get`].
    pub async fn locate(&self, key: &[u8]) -> Result<Option<LocatedEntry>> {
        match self.volumes.sound_of(key) {
            Some(engine) => engine.locate(key).await,
            None => self.check_open().map(|()| None),
        }
    }

    /// Returns whether `key`'s entry is still at `location`, as [`Store::locate`] returned it. Does no I/O. Also
    /// returns `false` if the index in memory cannot tell.
    pub fn is_at(&self, key: &[u8], location: LocatedEntry) -> bool {
        self.volumes.sound_of(key).is_some_and(|engine| engine.is_at(engine.volume().hash(key).0, location.0))
    }

    /// Starts writing an entry. It is stored when [`Writer::commit`] is called.
    ///
    /// # Errors
    /// `Invalid` if the key (16 KiB) or the head (64 KiB) is too long, `Closed` if the store is closed, `Unavailable`
    /// while the key's volume is excluded because it fails.
    pub fn insert(&self, key: &[u8], head: Bytes, hints: Hints) -> Result<Writer> {
        self.check_open()?;
        check_lengths(key, &head)?;
        let engine = self.volumes.of(key);
        if engine.volume().health.is_out() {
            self.volumes.defer_replaced(key);
            return Err(volumes::is_out());
        }
        Ok(Writer::new(self.volumes.clone(), engine.volume().epoch(), key, head, hints))
    }

    /// Returns whether the policy would evict other entries to store one of `len_bytes` (head and body).
    ///
    /// The decision depends on how often the entry was requested recently, and on its length. Each call counts as a
    /// request for the entry, so call this once for each miss. For a body that is stored as several entries, pass the
    /// whole length. The result is always `true` while nothing has to be evicted, and in policies that admit
    /// everything. [`Writer::commit`] stores the entry in any case.
    pub fn admits(&self, key: &[u8], len_bytes: u64) -> bool {
        let engine = self.volumes.of(key);
        engine.admits(engine.volume().hash(key).0, len_bytes)
    }

    /// Returns whether [`Store::admits`] would now admit an entry of any length under this key, because nothing has to
    /// be evicted for it.
    pub fn has_room(&self, key: &[u8]) -> bool {
        self.volumes.of(key).has_room()
    }

    /// Replaces the head of an entry and keeps its body. Policies on the log do not write a body over 64 KiB again.
    ///
    /// Returns `false` if `key` has no entry. Also returns `false` if another entry was stored under `key` during the
    /// call, or if the store moved the entry meanwhile and further attempts failed too.
    ///
    /// # Errors
    /// Like [`Store::insert`] and [`Writer::commit`].
    pub async fn update_head(&self, key: &[u8], head: Bytes, hints: Hints) -> Result<bool> {
        check_lengths(key, &head)?;
        match self.volumes.sound_of(key) {
            Some(engine) => engine.update_head(key, head, hints).await,
            None => Ok(false),
        }
    }

    /// Removes `key`.
    ///
    /// When this returns, the removal survives a crash of the process. After the next [`Store::sync`] it also survives
    /// a power loss. Costs one small device write, shared with other pending data. Costs none in policies whose map has
    /// no journal.
    ///
    /// # Errors
    /// `Unavailable` if that write fails. Lookups of the key miss, and the write is retried until it succeeds or the
    /// store is closed. Nothing is stored on the key's volume until then. The entry can come back only if the process
    /// is killed before a retry succeeds.
    pub async fn remove(&self, key: &[u8]) -> Result<()> {
        check_lengths(key, &[])?;
        self.unpin(key);
        let (strays, own) = join(self.volumes.remove_strays(key), self.volumes.remove(key)).await;
        own.and(strays)
    }

    /// Returns, for each volume in use, the label that [`Store::set_label`] last stored there. 0 means no label.
    pub fn labels(&self) -> impl Iterator<Item = u64> {
        self.volumes.sound().map(|engine| engine.volume().superblock().label)
    }

    /// Stores the number `label` on each volume of the store. The number is durable when this returns.
    pub async fn set_label(&self, label: u64) -> Result<()> {
        self.check_open()?;
        if self.volumes.sound().next().is_none() {
            return Err(volumes::is_out());
        }
        let is_unlabeled = |engine: &AnyEngine| engine.volume().superblock().label != label;
        let unlabeled: Vec<AnyEngine> = self.volumes.sound().filter(is_unlabeled).collect();
        let done = join_all(unlabeled.iter().map(|engine| superblocks::set_label(engine.volume(), label))).await;
        done.into_iter().collect()
    }

    /// Returns whether the index in memory contains an entry of `key` (no I/O). The false positive rate depends on the
    /// policy: 0.4% in `log`. Policies without an index in memory always return `true`.
    pub fn may_contain(&self, key: &[u8]) -> bool {
        self.volumes.sound_of(key).is_some_and(|engine| {
            let volume = engine.volume();
            engine.may_contain(volume.hash(key).0) && !volume.pending_removals.ends(key)
        })
    }

    /// Counts a hit that a memory cache served, so that reclaim keeps the entry. [`MemoryHits`](crate::MemoryHits)
    /// decides for which hits to call this.
    pub fn touch(&self, key: &[u8]) {
        let engine = self.volumes.of(key);
        engine.touch(engine.volume().hash(key).0);
    }

    /// Protects `key`'s entry, if there is one, from being reclaimed until the returned [`ReclaimGuard`] is dropped.
    ///
    /// Use this for the parts of a body that is being read from start to end. Only `log` supports it, for up to a
    /// quarter of the volume and at most 32,768 keys. The entry can still be replaced, removed or invalidated.
    pub fn protect(&self, key: &[u8]) -> ReclaimGuard {
        let engine = self.volumes.of(key);
        ReclaimGuard::new(engine.volume(), engine.volume().hash(key).0)
    }

    /// Returns whether all policies of this store can pin entries.
    pub fn can_pin(&self) -> bool {
        self.volumes.all().all(|engine| engine.volume().policy.can_pin())
    }

    /// Exempts `key`'s entry from eviction. `len_bytes` is the length of its head and body, which counts against the
    /// limit on pinned bytes.
    ///
    /// The pin ends when the entry is unpinned, removed, expired or invalidated, or when the store is closed. The key
    /// is pinned rather than one entry: the pin also covers an entry that is stored or replaced later. Pins are not
    /// stored: pin again after each start, before storing anything.
    ///
    /// Returns `false` without pinning if more than `Tuning::pin_share` of the volume or more than a million keys would
    /// be pinned, or if the policy cannot pin.
    pub fn pin(&self, key: &[u8], len_bytes: u64) -> bool {
        let engine = self.volumes.of(key);
        let volume = engine.volume();
        let key_bytes = key.len() as u64;
        let key_hash = volume.hash(key).0;
        let is_pinned = volume.pins.insert(key_hash, key_bytes + len_bytes + record::AROUND_BYTES);
        if is_pinned {
            // A full index drops the entries with the fewest hits, so a pinned entry gets hits.
            (0..PIN_TOUCH_COUNT).for_each(|_| engine.touch(key_hash));
        }
        is_pinned
    }

    /// Unpins `key`'s entry, so that it can be evicted. Returns whether it was pinned.
    pub fn unpin(&self, key: &[u8]) -> bool {
        let engine = self.volumes.of(key);
        engine.volume().pins.remove(engine.volume().hash(key).0)
    }

    /// Returns whether `key` is pinned (no I/O).
    pub fn is_pinned(&self, key: &[u8]) -> bool {
        let engine = self.volumes.of(key);
        engine.volume().pins.contains(engine.volume().hash(key).0)
    }

    /// Returns the counters and gauges of all volumes together.
    pub fn stats(&self) -> Stats {
        Stats::sum(self.volumes.all().map(|engine| Stats::of(&engine)))
    }

    /// Returns the statistics of each volume, in the order in which the volumes were passed to open.
    pub fn volumes(&self) -> impl Iterator<Item = VolumeStats<'_>> {
        self.volumes.all().enumerate().map(|(index, engine)| VolumeStats {
            path: self.volumes.path(index),
            policy: engine.volume().policy,
            stats: Stats::of(&engine),
        })
    }

    /// Syncs and closes the store. Later calls of other functions return `Closed`.
    ///
    /// The store is closed once, no matter how often this is called. Every call waits until closing is done, without a
    /// time limit, and returns the same outcome. If the future is dropped, the next call continues the work. The
    /// volumes stay locked until the last clone and the last [`Reader`] are dropped, or until [`Store::release`].
    ///
    /// # Errors
    /// Like [`Store::sync`]. Also `Unavailable` if pending removals could not be written; these entries may come back.
    /// The store is closed in any case.
    pub async fn close(&self) -> Result<()> {
        self.closing.outcome(&self.volumes).await
    }

    /// Closes the store like [`Store::close`], stops its threads and releases its volumes.
    ///
    /// Another process can then open the volumes even if clones of this store still exist; calls on these clones return
    /// `Closed`. A block device stays claimed until the last clone is dropped. This function blocks.
    ///
    /// # Errors
    /// Like [`Store::close`]. The volumes are released in any case.
    pub fn release(&self) -> Result<()> {
        let closed = block_on(self.close());
        self.maintenance.iter().for_each(MaintenanceThread::stop);
        for engine in self.volumes.all() {
            let volume = engine.volume();
            volume.device.release();
            volume.directory.iter().for_each(|directory| directory.release());
        }
        closed
    }

    /// Does the flushes, syncs and reclaims that are due. In a store that was opened without threads of its own, the
    /// caller must call this regularly.
    pub async fn maintain(&self) {
        for index in 0..self.volumes.count() {
            self.volumes.maintain(index).await;
        }
    }

    /// Checks the invariants between index, layout and counters, for tests. Visits every entry.
    ///
    /// # Panics
    /// If an invariant is violated.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        self.volumes.all().for_each(|engine| engine.check());
    }

    /// Gives the calling thread I/O rings of its own, one for each volume that supports it. The thread must then drive
    /// them as described at [`ThreadDriver`]. Without rings of its own, a thread passes its reads to a thread of the
    /// store, which takes more time per read.
    pub fn attach_thread(&self) -> Vec<ThreadDriver> {
        self.volumes.all().filter_map(|engine| engine.volume().device.attach_thread()).collect()
    }

    /// Returns the engine of the store's first volume, for tests of engines.
    #[cfg(test)]
    pub(crate) fn first_engine(&self) -> AnyEngine {
        self.volumes.all().next().expect("a store has a volume")
    }

    fn check_open(&self) -> Result<()> {
        self.volumes.all().try_for_each(|engine| engine.volume().check_open())
    }
}

/// Number of hits that are counted for an entry when it is pinned: the maximum that the policies distinguish.
const PIN_TOUCH_COUNT: usize = 3;

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
