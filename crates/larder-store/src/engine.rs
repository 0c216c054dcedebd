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
    /// Only enough to compare the key.
    Key,
}

/// The gauges of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EngineGauges {
    /// Entries in the index.
    pub(crate) entries: u64,
    /// Whether the index contains every entry.
    pub(crate) counts_all: bool,
    pub(crate) entries_max: u64,
    pub(crate) index_bytes: u64,
    /// Bytes that were committed and are not on the device yet.
    pub(crate) dirty_bytes: u64,
    /// 0 in policies without segments.
    pub(crate) segments_in_use: u64,
}

/// The location of an entry. With it, the store can check repeatedly and without I/O that the entry is still there; see
/// [`crate::Store::locate`].
///
/// The entry was found there under exactly its key (in policies that index all their entries, under its 64-bit hash).
/// It is still there unless it was moved, replaced, removed or reclaimed. Damage is found only when the entry is read.
/// Cost: 16 bytes, and one lookup in memory per check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocatedEntry(pub(crate) Location);

/// A location in the form that an engine uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// A record of the log, in the current use of its segment. A reused segment has another `sequence`.
    At { position: Sector, sequence: u32 },
    /// The index holds the full hash of every entry, so no position is needed.
    Known,
    /// The index cannot tell. Each check has to search for the entry.
    Passing,
}

/// The bytes that a flush writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushExtent {
    /// Everything committed by this time, and perhaps more.
    CommittedBy(Duration),
    /// Also everything that the next start needs. Used at close, before the last sync.
    Closing,
}

/// A family of policies: one implementation of index, layout, schedule and eviction.
pub(crate) trait Engine: Send + Sync + Sized + 'static {
    /// Data with which the engine checks that a found entry is still its key's entry.
    type Found: Copy;

    /// Attempts to store a new head while its entry moves. One for engines whose [`Self::Found`] may be older than the
    /// entry found: an entry that was replaced in between would pass for one that moved.
    const HEAD_ATTEMPTS_MAX: u32 = 1;

    fn volume(&self) -> &Arc<Volume>;

    /// Loads the entries of an earlier run, while the store is in use.
    async fn load(self: &Arc<Self>);

    /// Returns the entry of `key`, verified, and the data with which to check later that it still is the key's entry.
    /// With [`ReadExtent::Key`], it is not counted as a lookup, and engines that need not read it return no reader.
    async fn find(self: &Arc<Self>, key: &[u8], extent: ReadExtent) -> Result<Option<(Self::Found, Option<Reader>)>>;

    /// Returns whether the index contains an entry; `true` if the index cannot tell. With `at`, returns whether the
    /// entry is still at this location; `false` if the index cannot tell.
    fn may_contain(&self, key_hash: KeyHash, at: Option<Location>) -> bool;

    /// Counts a hit that a memory cache served.
    fn touch(&self, key_hash: KeyHash);

    /// Makes `record` its key's entry and fills in its sequence. Waits for room for a bounded time. With `found`,
    /// stores it only if that still is the key's entry, and returns `false` if not.
    async fn store(self: &Arc<Self>, record: RecordParts<'_>, found: Option<Self::Found>) -> Result<bool>;

    /// Removes `key`'s entry. The removal survives a kill when this returns.
    async fn remove(self: &Arc<Self>, key: &[u8]) -> Result<()>;

    /// Runs one round of the work that is due now.
    async fn maintain(self: &Arc<Self>);

    /// Returns the time until the next work is due; `None` if there is none.
    fn next_due(&self) -> Option<Duration>;

    /// Submits everything in `extent` to the device, and waits until it is written.
    async fn flush(self: &Arc<Self>, extent: FlushExtent) -> Result<()>;

    fn gauges(&self) -> EngineGauges;

    /// Checks the invariants between index, layout and counters.
    ///
    /// # Panics
    /// If an invariant is violated.
    fn check(&self);
}
