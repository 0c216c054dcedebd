//! The interface between the store and its engines: the operations that an engine implements for the public API.
//!
//! Owns: the [`Engine`] trait, and the types of its arguments and results. Nothing is decided here, and no engine is
//! named; the match over the engines is in `families`.

pub(crate) mod clusters;
pub(crate) mod kit;
pub(crate) mod log;
pub(crate) mod mapped;
pub(crate) mod table;
pub(crate) mod tiny;

use crate::{Reader, Result, format::record::RecordParts, hash::KeyHash, units::Sector, volume::Volume};
use std::{sync::Arc, time::Duration};

/// The part of an entry that a lookup reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadExtent {
    Whole,
    /// The head and the first part of a long entry, if that saves I/O.
    Front,
    /// Only as much as is needed to compare the key.
    Key,
}

/// The present values that an engine reports for the statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EngineGauges {
    /// Entries in the index.
    pub(crate) entries: u64,
    /// Whether `entries` counts every entry of the volume.
    pub(crate) counts_all: bool,
    pub(crate) entries_max: u64,
    pub(crate) index_bytes: u64,
    /// Bytes of committed entries that the device does not have yet.
    pub(crate) dirty_bytes: u64,
    /// Segments that hold records; 0 in policies without segments.
    pub(crate) segments_in_use: u64,
}

/// The location of an entry. [`crate::Store::is_at`] uses it to check without I/O that the entry is still there.
///
/// [`crate::Store::locate`] compared the whole key (or its 64-bit hash, in policies that index all their entries). The
/// check fails once the entry was moved, replaced, removed or reclaimed. Damage is found only when the entry is read.
/// Cost: 16 bytes, and one lookup in memory per check.
///
/// ```
/// # futures_executor::block_on(async {
/// use larder_store::{Hints, LocatedEntry, Store, StoreOptions};
///
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("example.larder");
/// let store = Store::open(StoreOptions::new(path, 16 << 20))?;
/// store.insert(b"key", "the head".into(), Hints::default())?.commit().await?;
/// let location: LocatedEntry = store.locate(b"key").await?.expect("the entry was just committed");
/// assert!(store.is_at(b"key", location));
/// store.remove(b"key").await?;
/// assert!(!store.is_at(b"key", location));
/// # store.close().await
/// # }).expect("a store in a directory of its own");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocatedEntry(pub(crate) Location);

/// A location in the form that an engine uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// In the log, at `position`. The segment had the use number `sequence`; it gets another number when it is reused.
    At { position: Sector, sequence: u32 },
    /// In the index, which has the full hash of every entry. No position is needed for the check.
    Known,
    /// Unknown to the index, so that a check without I/O always fails. The caller must then search for the entry again.
    Passing,
}

/// The bytes that a flush writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushExtent {
    /// Everything committed by this time. Later commits may be written too.
    CommittedBy(Duration),
    /// Everything, including what lets the next start find the entries quickly. Used at close, before the last sync.
    Closing,
}

/// A family of policies: one implementation of index, layout, schedule and eviction.
pub(crate) trait Engine: Send + Sync + Sized + 'static {
    /// Data by which the engine checks later that a found entry is still the current one of its key.
    type Found: Copy;

    /// Number of attempts to store a new head while the engine moves the entry. It is 1 for engines that may read
    /// [`Self::Found`] before the entry itself. There, a replaced entry would look like a moved one, and a second
    /// attempt would overwrite the replacement.
    const HEAD_ATTEMPTS_MAX: u32 = 1;

    fn volume(&self) -> &Arc<Volume>;

    /// Loads the entries of an earlier run into the index. Meanwhile, the store is already in use.
    async fn load(self: &Arc<Self>);

    /// Returns the verified entry of `key`, and a [`Self::Found`] for later checks. With [`ReadExtent::Key`], the call
    /// does not count as a lookup, and engines that need not read the record return no reader.
    async fn find(self: &Arc<Self>, key: &[u8], extent: ReadExtent) -> Result<Option<(Self::Found, Option<Reader>)>>;

    /// Returns whether the index contains an entry; `true` if the index cannot tell. With `at`, returns whether the
    /// entry is still at this location; `false` if the index cannot tell.
    fn may_contain(&self, key_hash: KeyHash, at: Option<Location>) -> bool;

    /// Counts a hit that a memory cache served, so that the entry is not evicted early.
    fn touch(&self, key_hash: KeyHash);

    /// Stores `record` as its key's entry, and sets its sequence. Waits a bounded time for space. With `found`, stores
    /// the record only if `found` is still the key's entry. Returns whether the record was stored.
    async fn store(self: &Arc<Self>, record: RecordParts<'_>, found: Option<Self::Found>) -> Result<bool>;

    /// Removes `key`'s entry. When this returns, the removal survives a kill of the process.
    async fn remove(self: &Arc<Self>, key: &[u8]) -> Result<()>;

    /// Does the work that is due now, such as writing, reclaiming and checkpoints.
    async fn maintain(self: &Arc<Self>);

    /// Returns the time until more work is due; `None` if there is none.
    fn next_due(&self) -> Option<Duration>;

    /// Submits everything in `extent` to the device, and waits until all of it is written.
    async fn flush(self: &Arc<Self>, extent: FlushExtent) -> Result<()>;

    fn gauges(&self) -> EngineGauges;

    /// Checks the invariants between index, layout and counters.
    ///
    /// # Panics
    /// If an invariant is violated.
    fn check(&self);
}
