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

use crate::{Hints, Reader, Result, format::record::RecordParts, hash::KeyHash, units::Sector, volume::Volume};
use bytes::Bytes;
use kit::room::{HeadRenewal, NoRoom};
use std::{future::Future, sync::Arc, task::Waker, time::Duration};

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

    /// Returns the entry of `key`, verified.
    async fn get(self: &Arc<Self>, key: &[u8], extent: ReadExtent) -> Result<Option<Reader>>;

    /// Returns the location of `key`'s entry, if there is one. The default is for policies whose index holds the full
    /// hash of every entry.
    async fn locate(self: &Arc<Self>, key: &[u8]) -> Result<Option<Location>> {
        self.volume().check_open()?;
        Ok(self.may_contain(self.volume().hash(key).0).then_some(Location::Known))
    }

    /// Returns whether an entry is still at this location. Returns `false` if the index cannot tell.
    fn is_at(&self, key_hash: KeyHash, location: Location) -> bool {
        location == Location::Known && self.may_contain(key_hash)
    }

    /// Returns whether an entry of this length is worth evicting others for. Counts as a request for it. Policies that
    /// admit everything return `true`.
    fn admits(&self, _key_hash: KeyHash, _len_bytes: u64) -> bool {
        true
    }

    /// Returns whether an entry of any length would be admitted now.
    fn has_room(&self) -> bool {
        true
    }

    /// Returns `key`'s entry, and the data with which to check later that it still is the key's entry.
    async fn find_current(self: &Arc<Self>, key: &[u8]) -> Result<Option<(Self::Found, Reader)>>;

    /// Makes `record` its key's entry and fills in its sequence. Waits for room for a bounded time. With `found`,
    /// stores it only if that still is the key's entry, and returns `false` if not.
    async fn store_if(self: &Arc<Self>, record: RecordParts<'_>, found: Option<Self::Found>) -> Result<bool>;

    /// Returns the parts of a found entry that are rewritten with a new head; `None` if the entry is damaged.
    async fn renewal(&self, _: Self::Found, reader: &Reader, hints: Hints) -> Result<Option<HeadRenewal>> {
        HeadRenewal::whole(reader, hints).await
    }

    /// Calls [`Self::store_if`] and counts the outcome.
    async fn commit_if(self: &Arc<Self>, record: RecordParts<'_>, found: Option<Self::Found>) -> Result<bool> {
        let bytes = record.content_bytes();
        let outcome = self.store_if(record, found).await;
        self.volume().count_commit(bytes, &outcome);
        outcome
    }

    /// Makes `record` its key's entry.
    async fn commit(self: &Arc<Self>, record: RecordParts<'_>) -> Result<()> {
        self.commit_if(record, None).await.map(drop)
    }

    /// Removes `key`'s entry. The removal survives a kill when this returns.
    async fn remove(self: &Arc<Self>, key: &[u8]) -> Result<()>;

    /// Replaces the head of `key`'s entry unless the entry is replaced meanwhile. Returns `false` if there is none.
    ///
    /// Making room for the new head may itself move the entry. It is then looked up again, if the engine allows that.
    async fn update_head(self: &Arc<Self>, key: &[u8], head: Bytes, hints: Hints) -> Result<bool> {
        let mut first_content = None;
        for _ in 0..Self::HEAD_ATTEMPTS_MAX {
            let Some((found, reader)) = self.find_current(key).await? else { return Ok(false) };
            let content = reader.content();
            // If the entry was replaced since it was first read, the replacement wins: the new head does not belong to
            // its body.
            if first_content.as_ref().is_some_and(|first| *first != content) {
                return Ok(false);
            }
            first_content = Some(content);
            if let Some(renewal) = self.renewal(found, &reader, hints).await?
                && self.commit_if(renewal.record(key, &head), Some(found)).await?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Attempts an append until there is room, for a bounded time. In a store without a maintenance thread, flushes and
    /// maintains once to make room. `too_long` describes an entry that can never get room.
    async fn append_with_room<T>(
        self: &Arc<Self>,
        too_long: &'static str,
        flush: impl Future<Output = Result<()>>,
        mut attempt: impl FnMut(Option<&Waker>) -> std::result::Result<T, NoRoom>,
    ) -> Result<T> {
        let volume = self.volume();
        if !volume.options.background {
            if let Ok(appended) = attempt(None) {
                return Ok(appended);
            }
            flush.await?;
            self.maintain().await;
        }
        volume.wait_for_room(volume.room_deadline(), too_long, |waker| attempt(Some(waker))).await
    }

    /// Returns whether the index contains an entry; `true` if the index cannot tell.
    fn may_contain(&self, key_hash: KeyHash) -> bool;

    /// Counts a hit that a memory cache served.
    fn touch(&self, key_hash: KeyHash);

    /// Runs one round of the work that is due now.
    async fn maintain(self: &Arc<Self>);

    /// Returns the time until the next work is due; `None` if there is none.
    fn next_due(&self) -> Option<Duration>;

    /// Submits everything committed to the device.
    async fn flush(self: &Arc<Self>) -> Result<()>;

    /// Writes everything that the next start needs. Called at close, before the last sync.
    async fn finish(self: &Arc<Self>) -> Result<()>;

    fn gauges(&self) -> EngineGauges;

    /// Checks the invariants between index, layout and counters.
    ///
    /// # Panics
    /// If an invariant is violated.
    fn check(&self);
}
