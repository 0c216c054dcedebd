//! The store: the public API over the engine of the volume's row.
//!
//! Owns: the public [`Store`]. Does not: know how a row works; `engine` is the seam to the families of
//! rows, each of which executes what index, layout, schedule and eviction decide. Invariant: whatever is
//! returned for a key was committed under exactly that key.

mod bell;
mod counters;
mod engine;
mod inspect;
mod keeper;
mod log;
mod open;
mod volume;

use crate::{
    Error, ErrorKind, Hints, Reader, Result, StoreOptions, Writer,
    device::{Device, ThreadDriver},
    format::record,
};
use bytes::Bytes;
pub use counters::Stats;
pub(crate) use engine::AnyEngine;
use engine::Extent;
pub use inspect::{Content, StoreInfo, format, inspect};
use keeper::Keeper;
pub(crate) use log::LogEngine;
use std::sync::Arc;
pub(crate) use volume::Volume;

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
    engine: AnyEngine,
    _keeper: Arc<Keeper>,
}

/// An entry that was read along with one that was asked for, see [`Store::set_neighbours`].
pub struct Neighbour {
    /// The entry's key.
    pub key: Bytes,
    /// The entry, read and verified as a whole.
    pub reader: Reader,
}

/// Takes the entries of one read, see [`Store::set_neighbours`].
pub type NeighbourSink = Box<dyn Fn(Neighbour) + Send + Sync>;

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
        Self::start(open::open_file(&options)?)
    }

    /// Opens the store on `device`, or creates one there if the device has only zeros where a
    /// superblock would be. The options' path and way of I/O do not count.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_on(device: Arc<dyn Device>, options: &StoreOptions) -> Result<Self> {
        Self::start(open::open_device(device, options)?)
    }

    fn start(volume: Volume) -> Result<Self> {
        let background = volume.options.background;
        let engine = AnyEngine::new(Arc::new(volume));
        let keeper = Keeper::start(&engine, background)?;
        Ok(Self { engine, _keeper: Arc::new(keeper) })
    }

    /// Where entries go that are read along with one that was asked for (rows that read groups or
    /// clusters): a memory tier that may be asked for them next. `begin` is called before it is found out which
    /// entries that were read are still current, so that a sink can refuse what was replaced or removed since it
    /// was made. Both are called on whatever thread reads, and must not block. Only the first `begin` counts.
    pub fn set_neighbours(&self, begin: Arc<dyn Fn() -> NeighbourSink + Send + Sync>) {
        let _ = self.engine.volume().begin_neighbours.set(begin);
    }

    /// Finds `key`. One device read for entries not dirty, none for (nearly all) misses.
    ///
    /// # Errors
    /// `Unavailable` when the device fails; `Closed`.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Reader>> {
        self.engine.get(key, Extent::Whole).await
    }

    /// As [`Store::get`], but reads only head and the first part of a long entry; the rest is read when
    /// asked for.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub async fn front(&self, key: &[u8]) -> Result<Option<Reader>> {
        self.engine.get(key, Extent::Front).await
    }

    /// Begins an entry.
    ///
    /// # Errors
    /// `Invalid` when key (16 KiB) or head (64 KiB) is too long; `Closed`.
    pub fn insert(&self, key: &[u8], head: Bytes, hints: Hints) -> Result<Writer> {
        self.engine.volume().check_open()?;
        check_lengths(key, &head)?;
        Ok(Writer::new(self.engine.clone(), key, head, hints))
    }

    /// Replaces the head of an entry; a body over 64 KiB is not written again. `false`: no such entry.
    ///
    /// # Errors
    /// As [`Store::insert`] and [`Writer::commit`].
    pub async fn update_head(&self, key: &[u8], head: Bytes, hints: Hints) -> Result<bool> {
        check_lengths(key, &head)?;
        self.engine.update_head(key, head, hints).await
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
        self.engine.volume().check_open()?;
        open::invalidate(self.engine.volume(), which).await
    }

    /// Whether memory knows of an entry of `key` (no I/O; false positives by the row, 0.4% in `log`). Rows
    /// that keep nothing in memory always say yes.
    pub fn may_contain(&self, key: &[u8]) -> bool {
        self.engine.may_contain(self.engine.volume().hash(key).0)
    }

    /// Counts a hit that was served from elsewhere (a memory tier), so that reclaim keeps the entry.
    pub fn touch(&self, key: &[u8]) {
        self.engine.touch(self.engine.volume().hash(key).0);
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        Stats::of(&self.engine)
    }

    /// Writes what is committed and makes it durable.
    ///
    /// # Errors
    /// `Unavailable` when something could not be written.
    pub async fn sync(&self) -> Result<()> {
        self.engine.volume().check_open()?;
        self.engine.sync().await
    }

    /// Syncs and closes; later calls answer `Closed`.
    ///
    /// # Errors
    /// As [`Store::sync`]; the store is closed all the same.
    pub async fn close(&self) -> Result<()> {
        if !self.engine.volume().close() {
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
        self.engine.volume().device.attach_thread()
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
