//! The store.
use crate::{Hints, Reader, Result, StoreOptions, Writer, device::ThreadDriver};
use bytes::Bytes;

/// A disk cache of entries. Cheap to clone; all clones are one store.
#[derive(Clone)]
pub struct Store {}

/// Which entries [`Store::invalidate`] makes disappear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// All.
    All,
    /// Those whose [`Hints::site`] was this.
    Site(u64),
}

/// Counters and gauges since the store was opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Entries in the index now.
    pub entries: u64,
    /// Entries the index has room for.
    pub entries_max: u64,
    /// Bytes of memory the index takes when full.
    pub index_bytes: u64,
    /// Size of the volume in bytes.
    pub size_bytes: u64,
    /// Lookups.
    pub lookups: u64,
    /// Lookups that found an entry.
    pub hits: u64,
    /// Committed entries.
    pub commits: u64,
    /// Entries not stored for want of room.
    pub rejected: u64,
    /// Entries dropped at reclaim.
    pub evicted: u64,
    /// Entries kept at reclaim by writing them again.
    pub reinserted: u64,
    /// Damaged entries met (each was a miss).
    pub corrupt: u64,
    /// Failed transfers.
    pub io_errors: u64,
    /// Device reads and their bytes.
    pub reads: u64,
    /// Bytes read from the device.
    pub read_bytes: u64,
    /// Device writes.
    pub writes: u64,
    /// Bytes written to the device.
    pub written_bytes: u64,
    /// Entry bytes (key, head, body) admitted.
    pub admitted_bytes: u64,
    /// Segments whose entries are loaded of those that had any at start.
    pub recovered_segments: u64,
    /// Segments to load at start.
    pub recoverable_segments: u64,
    /// Whether loading is over.
    pub loaded: bool,
    /// The device's name.
    pub device: &'static str,
}

impl Store {
    /// Opens or creates a store. Blocks for a few device reads; loading the index goes on behind
    /// (what is not loaded yet is a miss).
    ///
    /// # Errors
    /// `Invalid`: an option, or the file is not a Larder store, or has another size.
    /// `Corrupt`: both superblocks are damaged. `Unavailable`: the file cannot be opened, or another process has it.
    pub fn open(options: StoreOptions) -> Result<Self> {
        let _ = options;
        todo!()
    }
    /// Finds `key`. One device read for entries not dirty, none for (nearly all) misses.
    ///
    /// # Errors
    /// `Unavailable` when the device fails; `Closed`.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Reader>> {
        let _ = key;
        todo!()
    }
    /// As [`Store::get`], but reads only head and the first part of a long entry; the rest is read when asked for.
    pub async fn get_head(&self, key: &[u8]) -> Result<Option<Reader>> {
        let _ = key;
        todo!()
    }
    /// Begins an entry.
    ///
    /// # Errors
    /// `Invalid` when key (16 KiB) or head is too long.
    pub fn insert(&self, key: &[u8], head: Bytes, hints: Hints) -> Result<Writer> {
        let _ = (key, head, hints);
        todo!()
    }
    /// Replaces the head of an entry; a body over 64 KiB is not written again. `false`: no such entry.
    pub async fn update_head(&self, key: &[u8], head: Bytes, hints: Hints) -> Result<bool> {
        let _ = (key, head, hints);
        todo!()
    }
    /// Removes `key`; once this returns it stays removed, also after a crash.
    pub async fn remove(&self, key: &[u8]) -> Result<()> {
        let _ = key;
        todo!()
    }
    /// Makes every entry committed so far that matches a miss; durable when this returns.
    pub async fn invalidate(&self, which: Invalidation) -> Result<()> {
        let _ = which;
        todo!()
    }
    /// Whether the index has `key` (false positives 0.4%, no I/O).
    pub fn may_contain(&self, key: &[u8]) -> bool {
        let _ = key;
        todo!()
    }
    /// Counts a hit that was served from elsewhere (a memory tier), so that reclaim keeps the entry.
    pub fn touch(&self, key: &[u8]) {
        let _ = key;
        todo!()
    }
    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        todo!()
    }
    /// Writes what is committed and makes it durable.
    pub async fn sync(&self) -> Result<()> {
        todo!()
    }
    /// Syncs and closes; later calls answer `Closed`.
    pub async fn close(&self) -> Result<()> {
        todo!()
    }
    /// Gives the calling thread a ring of its own, see [`ThreadDriver`].
    pub fn attach_thread(&self) -> Option<ThreadDriver> {
        todo!()
    }
}
