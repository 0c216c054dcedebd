//! The store: the public API over the engines of its volumes.
//!
//! Owns: the public [`Store`]. The engines, reached through `engine`, implement the policies. Invariant: whatever is
//! returned for a key was committed under exactly that key.

mod closing;
mod inspect;
mod maintenance;
mod open;
mod outage;
mod scan;
mod survey;
mod upgrade;
mod volumes;

use crate::{
    Error, ErrorKind, Hints, Policy, Reader, Result, StoreOptions, Writer,
    device::{Device, Directory, ThreadDriver, block_on},
    engine::{LocatedEntry, ReadExtent},
    families::AnyEngine,
    format::record,
    stats::Stats,
    volume::{
        Volume,
        holds::HeldKey,
        membership::reconcile,
        neighbours::NeighbourSink,
        superblocks::{self, Invalidation},
    },
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
/// // Until here, what an earlier run stored may still be a miss.
/// store.ready().await;
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
    volumes: EngineVolumes,
    closing: StoreClosing,
    maintenance: Arc<[MaintenanceThread]>,
}

/// One volume of a store.
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
    /// Opens or creates a store. Blocks for a few device reads; loading the index goes on behind
    /// (what is not loaded yet is a miss, see [`Store::ready`]).
    ///
    /// # Errors
    /// `Invalid`: an option, or the file is not a Larder store, or has another size.
    /// `Corrupt`: both superblocks are damaged. `Unavailable`: the file cannot be opened, or another
    /// process has it. Nothing is touched in any of these cases.
    pub fn open(options: StoreOptions) -> Result<Self> {
        Self::start(vec![open::open_file(&options)?])
    }

    /// Opens a store that spans several volumes, creating the ones that do not exist.
    ///
    /// Keys are distributed in proportion to volume size. A volume that is unavailable or corrupt is left out: lookups
    /// of its keys miss. It is emptied before it rejoins.
    ///
    /// # Errors
    /// As [`Store::open`], of the first volume that is refused as `Invalid` or `Full`. If no volume can be opened,
    /// returns the last error.
    pub fn open_volumes(options: Vec<StoreOptions>) -> Result<Self> {
        let mut volumes = Vec::new();
        let mut last_error = Error::new(ErrorKind::Invalid, "a store needs a volume");
        for options in options {
            match open::open_file(&options) {
                Ok(volume) => volumes.push(volume),
                Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Corrupt) => {
                    tracing::error!(%error, "a volume is unavailable: lookups of its keys miss");
                    last_error = error;
                }
                Err(error) => return Err(error),
            }
        }
        if volumes.is_empty() { Err(last_error) } else { Self::start(volumes) }
    }

    /// Opens the store on `device`, or creates one there if the device has only zeros where a
    /// superblock would be. The options' path and way of I/O do not count.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_on(device: Arc<dyn Device>, options: &StoreOptions) -> Result<Self> {
        Self::open_on_all(vec![device], options)
    }

    /// As [`Store::open_on`], with a volume on each of `devices`.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_on_all(devices: Vec<Arc<dyn Device>>, options: &StoreOptions) -> Result<Self> {
        let volumes = devices.into_iter().map(|device| open::open_device(device, options));
        Self::start(volumes.collect::<Result<_>>()?)
    }

    /// As [`Store::open_on`], for a row that keeps entries in files: those in `directory`, and what else there is on
    /// `device`. The options' size bounds both.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_on_files(
        device: Arc<dyn Device>,
        directory: Arc<dyn Directory>,
        options: &StoreOptions,
    ) -> Result<Self> {
        Self::start(vec![open::open_device_and_directory(device, directory, options)?])
    }

    fn start(volumes: Vec<Volume>) -> Result<Self> {
        reconcile(&volumes.iter().collect::<Vec<_>>())?;
        let engines = volumes.into_iter().map(|volume| AnyEngine::new(Arc::new(volume)));
        let volumes = EngineVolumes::new(engines.collect::<Result<_>>()?);
        let start = |engine: &AnyEngine| MaintenanceThread::start(&volumes, engine, engine.volume().options.background);
        let maintenance = volumes.all().map(start);
        let maintenance = maintenance.collect::<Result<_>>()?;
        Ok(Self { volumes, closing: StoreClosing::default(), maintenance })
    }

    /// Waits until everything that an earlier run stored is loaded. From then on, a miss means that there is no entry.
    /// A new store is ready at once. Waiting is optional: before that, entries are found as they are loaded, and new
    /// ones are kept at once.
    ///
    /// # Cost
    /// None once loaded. Loading reads checkpoints and the trailers of newer segments. Policies that keep nothing in
    /// memory read nothing.
    pub async fn ready(&self) {
        for engine in self.volumes.all() {
            engine.volume().loaded().await;
        }
    }

    /// Sets the receiver of neighbours: entries that are read along with a requested one (policies that read groups or
    /// clusters). A memory cache can keep them for the requests that are likely to follow.
    ///
    /// `begin` is called before the store finds out which of the entries read are still current. So a sink can refuse
    /// entries that were replaced or removed since it was created. Both are called on the reading thread and must not
    /// block. Only the first `begin` counts.
    pub fn set_neighbours(&self, begin: Arc<dyn Fn() -> NeighbourSink + Send + Sync>) {
        for engine in self.volumes.all() {
            let _ = engine.volume().begin_neighbours.set(Arc::clone(&begin));
        }
    }

    /// Returns whether its policy reads entries that were not requested along with others.
    pub fn brings_neighbours(&self) -> bool {
        self.volumes.all().any(|engine| engine.volume().policy.brings_neighbours())
    }

    /// Finds `key`. One device read for entries not dirty, none for (nearly all) misses.
    ///
    /// # Errors
    /// `Unavailable` when the device fails; `Closed`.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Reader>> {
        self.look_up(key, ReadExtent::Whole).await
    }

    /// As [`Store::get`], but reads only head and the first part of a long entry; the rest is read when
    /// asked for.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub async fn front(&self, key: &[u8]) -> Result<Option<Reader>> {
        self.look_up(key, ReadExtent::Front).await
    }

    async fn look_up(&self, key: &[u8], extent: ReadExtent) -> Result<Option<Reader>> {
        match self.volumes.sound_of(key) {
            Some(engine) => engine.get(key, extent).await,
            None => self.check_open().map(|()| None),
        }
    }

    /// Returns the location of `key`'s entry without reading its body.
    ///
    /// [`Store::may_contain`] compares a few bits of the hash in memory and can be wrong. This reads the front of the
    /// record and compares the whole key.
    ///
    /// # Cost
    /// Policies on the log: one read of 4 KiB. Disk tables: one bin or set. Policies that know all their entries: no
    /// read. Misses almost never read.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub async fn sight(&self, key: &[u8]) -> Result<Option<LocatedEntry>> {
        match self.volumes.sound_of(key) {
            Some(engine) => engine.sight(key).await,
            None => self.check_open().map(|()| None),
        }
    }

    /// Returns whether `key`'s entry is still at this location (no I/O). Also `false` where memory cannot tell.
    pub fn is_in_sight(&self, key: &[u8], sighting: LocatedEntry) -> bool {
        self.volumes.sound_of(key).is_some_and(|engine| engine.is_in_sight(engine.volume().hash(key).0, sighting.0))
    }

    /// Begins an entry.
    ///
    /// # Errors
    /// `Invalid` when key (16 KiB) or head (64 KiB) is too long; `Closed`; `Unavailable` while the key's volume is
    /// out of use because it fails.
    pub fn insert(&self, key: &[u8], head: Bytes, hints: Hints) -> Result<Writer> {
        self.check_open()?;
        check_lengths(key, &head)?;
        let engine = self.volumes.of(key);
        if engine.volume().health.is_out() {
            self.volumes.defer_replaced(key);
            return Err(volumes::is_out());
        }
        Ok(Writer::new(self.volumes.clone(), engine.clone(), key, head, hints))
    }

    /// Returns whether the row would give an entry of `len_bytes` (head and body) the room of others: by how often it
    /// was asked for lately, and by its length. Counts as a request for the entry, so ask once for each miss; for what
    /// is stored in several entries ask for the whole. While nothing has to go for it, and where the row lets
    /// everything in, it is always yes. A [`Writer::commit`] stores whatever the answer was.
    pub fn admits(&self, key: &[u8], len_bytes: u64) -> bool {
        let engine = self.volumes.of(key);
        engine.admits(engine.volume().hash(key).0, len_bytes)
    }

    /// Returns whether [`Store::admits`] lets in every entry of this key now, whatever its length.
    pub fn has_room(&self, key: &[u8]) -> bool {
        self.volumes.of(key).has_room()
    }

    /// Replaces the head of an entry; in rows on the log a body over 64 KiB is not written again. `false`: no such
    /// entry.
    ///
    /// # Errors
    /// As [`Store::insert`] and [`Writer::commit`].
    pub async fn update_head(&self, key: &[u8], head: Bytes, hints: Hints) -> Result<bool> {
        check_lengths(key, &head)?;
        match self.volumes.sound_of(key) {
            Some(engine) => engine.update_head(key, head, hints).await,
            None => Ok(false),
        }
    }

    /// Removes `key`; once this returns it stays removed, also after a crash of the process; after a power cut
    /// from the next sync on. Costs one small device write, shared with whatever else is dirty, and none in rows
    /// whose map has no journal.
    ///
    /// # Errors
    /// `Unavailable` when that write fails: the key is gone, and its removal is tried again until it can be written or
    /// the store is closed; only if the process is killed before may the key come back. Until then nothing is stored
    /// on its volume.
    pub async fn remove(&self, key: &[u8]) -> Result<()> {
        check_lengths(key, &[])?;
        self.unpin(key);
        let (strays, own) = join(self.volumes.remove_strays(key), self.volumes.remove(key)).await;
        own.and(strays)
    }

    /// Makes every entry begun so far that matches a miss; durable when this returns.
    ///
    /// # Errors
    /// `Unavailable` when a superblock cannot be written: as for [`Store::remove`].
    pub async fn invalidate(&self, which: Invalidation) -> Result<()> {
        self.check_open()?;
        if which == Invalidation::All {
            self.volumes.all().for_each(|engine| engine.volume().pins.clear());
        }
        let is_in_use = |engine: &&AnyEngine| !engine.volume().defers(|volume| volume.owe_rule(which));
        let owing = self.volumes.all().filter(is_in_use);
        let done = join_all(owing.map(|engine| superblocks::invalidate(engine.volume(), which))).await;
        done.into_iter().collect()
    }

    /// Returns what [`Store::set_label`] last set on each volume that is in use; 0 is nothing.
    pub fn labels(&self) -> impl Iterator<Item = u64> {
        self.volumes.sound().map(|engine| engine.volume().superblock().label)
    }

    /// Stores a number on each volume of the store. It is durable when this returns.
    ///
    /// A user of the store can write the same number to a file that belongs to it. A file with another number, or none,
    /// then belongs to other contents.
    ///
    /// # Errors
    /// `Unavailable` when a superblock cannot be written.
    pub async fn set_label(&self, label: u64) -> Result<()> {
        self.check_open()?;
        if self.volumes.sound().next().is_none() {
            return Err(volumes::is_out());
        }
        let labelled = self.volumes.sound().filter(|engine| engine.volume().superblock().label != label);
        let done = join_all(labelled.map(|engine| superblocks::set_label(engine.volume(), label))).await;
        done.into_iter().collect()
    }

    /// Returns whether memory knows of an entry of `key` (no I/O). The rate of false positives depends on the policy:
    /// 0.4% in `log`. Policies that keep nothing in memory always return `true`.
    pub fn may_contain(&self, key: &[u8]) -> bool {
        self.volumes.sound_of(key).is_some_and(|engine| {
            let volume = engine.volume();
            engine.may_contain(volume.hash(key).0) && !volume.arrears.ends(key)
        })
    }

    /// Counts a hit that was served from elsewhere (a memory tier), so that reclaim keeps the entry.
    pub fn touch(&self, key: &[u8]) {
        let engine = self.volumes.of(key);
        engine.touch(engine.volume().hash(key).0);
    }

    /// Keeps `key`'s entry, if there is one, from being reclaimed while the returned [`HeldKey`] lives: for parts of
    /// something that is being read from its start to its end. Only `log` can, for up to a quarter of the volume (at
    /// most 32,768 keys); an entry may still be replaced, removed, or be of no more use.
    pub fn hold(&self, key: &[u8]) -> HeldKey {
        let volume = self.volumes.of(key).volume();
        HeldKey::new(volume, volume.hash(key).0)
    }

    /// Returns whether its policies can pin entries; otherwise [`Store::pin`] fails.
    pub fn can_pin(&self) -> bool {
        self.volumes.all().all(|engine| engine.volume().policy.can_pin())
    }

    /// Exempts `key`'s entry, whose head and body take `len_bytes`, from eviction.
    ///
    /// The pin ends when the entry is unpinned, removed, expired or invalidated, or the store is closed. It also covers
    /// an entry that replaces this one, and one that is stored later. Pin again after each start, before anything is
    /// stored. Returns `false`, and pins nothing, if more than `Tuning::pin_share` of the volume (or a million keys)
    /// would be pinned, or if the policy cannot pin.
    pub fn pin(&self, key: &[u8], len_bytes: u64) -> bool {
        let engine = self.volumes.of(key);
        let (volume, key_bytes) = (engine.volume(), key.len() as u64);
        let key_hash = volume.hash(key).0;
        let is_pinned = volume.pins.insert(key_hash, key_bytes + len_bytes + record::AROUND_BYTES);
        if is_pinned {
            // Counted like hits, because a full index drops the entries with the fewest hits.
            (0..PIN_TOUCH_COUNT).for_each(|_| engine.touch(key_hash));
        }
        is_pinned
    }

    /// Lets `key`'s entry be evicted like any other. Returns whether it was pinned.
    pub fn unpin(&self, key: &[u8]) -> bool {
        let volume = self.volumes.of(key).volume();
        volume.pins.remove(volume.hash(key).0)
    }

    /// Returns whether `key`'s present or next entry is pinned (no I/O).
    pub fn is_pinned(&self, key: &[u8]) -> bool {
        let volume = self.volumes.of(key).volume();
        volume.pins.contains(volume.hash(key).0)
    }

    /// Counters and gauges of all volumes together.
    pub fn stats(&self) -> Stats {
        Stats::sum(self.volumes.all().map(Stats::of))
    }

    /// Returns the statistics of each volume, in the order in which they were given.
    pub fn volumes(&self) -> impl Iterator<Item = VolumeStats<'_>> {
        self.volumes.all().map(|engine| {
            let volume = engine.volume();
            VolumeStats { path: &volume.options.path, policy: volume.policy, stats: Stats::of(engine) }
        })
    }

    /// Writes what is committed and makes it durable.
    ///
    /// # Errors
    /// `Unavailable` when something could not be written.
    pub async fn sync(&self) -> Result<()> {
        self.check_open()?;
        let is_lost = |engine: &AnyEngine| engine.volume().health.is_out() && engine.gauges().dirty_bytes > 0;
        let waits_for_a_volume = self.volumes.all().any(is_lost);
        let synced = join_all(self.volumes.sound().map(AnyEngine::sync)).await;
        synced.into_iter().collect::<Result<()>>()?;
        if waits_for_a_volume { Err(volumes::is_out()) } else { Ok(()) }
    }

    /// Syncs and closes; later calls of anything else answer `Closed`. However many close a store, at once or one after
    /// the other, it is closed once, and each of them returns when that is done, with its outcome. Waits as long as the
    /// device does.
    ///
    /// # Errors
    /// As [`Store::sync`], or removals that could not be written may come undone; the store is closed all the same.
    pub async fn close(&self) -> Result<()> {
        self.closing.outcome(&self.volumes).await
    }

    /// Closes, as [`Store::close`] does, ends the store's threads and gives its volumes up, so that another process can
    /// open them though clones of this store are left; those find it closed. Blocks. A block device stays claimed until
    /// the last clone is gone.
    ///
    /// # Errors
    /// As [`Store::close`]. The volumes are given up all the same.
    pub fn release(&self) -> Result<()> {
        let closed = block_on(self.close());
        self.maintenance.iter().for_each(MaintenanceThread::stop);
        for volume in self.volumes.all().map(AnyEngine::volume) {
            volume.device.release();
            volume.directory.iter().for_each(|directory| directory.release());
        }
        closed
    }

    /// Flushes, syncs and reclaims what is due. Replaces the store's own threads in stores opened without them.
    pub async fn maintain(&self) {
        for engine in self.volumes.all() {
            self.volumes.maintain(engine).await;
        }
    }

    /// Checks what must hold in memory between index, layout and counters, for tests. Takes as long as looking at every
    /// entry.
    ///
    /// # Panics
    /// When something does not hold.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        self.volumes.all().for_each(AnyEngine::check);
    }

    /// Gives the calling thread rings of its own, one for each volume that can have one, see [`ThreadDriver`].
    pub fn attach_thread(&self) -> Vec<ThreadDriver> {
        self.volumes.all().filter_map(|engine| engine.volume().device.attach_thread()).collect()
    }

    /// Returns the engine of its first volume, for tests of engines.
    #[cfg(test)]
    pub(crate) fn first_engine(&self) -> &AnyEngine {
        self.volumes.all().next().expect("a store has a volume")
    }

    fn check_open(&self) -> Result<()> {
        self.volumes.all().try_for_each(|engine| engine.volume().check_open())
    }
}

/// Hits that an entry is given that is pinned: as many as any row counts.
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
