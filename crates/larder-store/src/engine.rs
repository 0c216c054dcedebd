//! The interface between the store and its engines: the operations that an engine implements for the public API.
//!
//! Owns: the [`Engine`] trait, and the types of its arguments and results. Nothing is decided here, and the engines are
//! not known; the one match over them is in `families`.

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
    /// Head and the first part of a long entry, if that saves something.
    Front,
    /// As little as tells whose entry it is.
    Key,
}

/// The present content of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EngineGauges {
    /// Entries that memory knows of.
    pub(crate) entries: u64,
    /// Whether memory knows of every entry.
    pub(crate) counts_all: bool,
    pub(crate) entries_max: u64,
    pub(crate) index_bytes: u64,
    /// Bytes that were committed and are not on the device yet.
    pub(crate) dirty_bytes: u64,
    /// 0 in rows without segments.
    pub(crate) segments_in_use: u64,
}

/// The location of an entry, with which the store can check repeatedly, without I/O, that the entry is still there; see
/// [`crate::Store::sight`].
///
/// The entry was found there under exactly its key (policies that know all their entries: under its 64-bit hash). It
/// counts as still there if it has not been moved, replaced, removed or reclaimed since. Damage shows only when the
/// entry is read. Cost: 16 bytes, and one lookup in memory per check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocatedEntry(pub(crate) Location);

/// An engine's own form of a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// A record of the log, in this use of its segment.
    At { position: Sector, sequence: u32 },
    /// Memory knows every entry by the whole of its hash.
    Known,
    /// Memory cannot tell: it has to be looked for each time.
    Passing,
}

/// A family of rows: one way to execute what index, layout, schedule and eviction decide.
pub(crate) trait Engine: Send + Sync + Sized + 'static {
    /// Data to check whether a found entry is still its key's entry.
    type Found: Copy;

    fn volume(&self) -> &Arc<Volume>;

    /// Finds what an earlier run left. Meanwhile the store is in use.
    async fn load(self: &Arc<Self>);

    /// Returns the entry of `key`, verified.
    async fn get(self: &Arc<Self>, key: &[u8], extent: ReadExtent) -> Result<Option<Reader>>;

    /// Returns the location of `key`'s entry, if there is one. The default is for policies whose memory has the whole
    /// hash of every entry.
    async fn sight(self: &Arc<Self>, key: &[u8]) -> Result<Option<Location>> {
        self.volume().check_open()?;
        Ok(self.may_contain(self.volume().hash(key).0).then_some(Location::Known))
    }

    /// Returns whether an entry is still at this location; `false` where memory cannot tell.
    fn is_in_sight(&self, key_hash: KeyHash, sight: Location) -> bool {
        sight == Location::Known && self.may_contain(key_hash)
    }

    /// Returns whether an entry of this length is worth displacing others. Counts as a request for it. Policies that
    /// admit everything return `true`.
    fn admits(&self, _key_hash: KeyHash, _len_bytes: u64) -> bool {
        true
    }

    /// Returns whether every entry is let in now, whatever its length.
    fn has_room(&self) -> bool {
        true
    }

    /// Returns `key`'s entry, with what tells later whether it still is the key's entry.
    async fn find_current(self: &Arc<Self>, key: &[u8]) -> Result<Option<(Self::Found, Reader)>>;

    /// Makes `record` its key's entry, waiting for room for a bounded time; its sequence is filled in here. With `found`, only while
    /// that still is the key's entry: `false` if it is not.
    async fn store_if(self: &Arc<Self>, record: RecordParts<'_>, found: Option<Self::Found>) -> Result<bool>;

    /// Returns what of a found entry is written again with another head; `None` if it turns out to be damaged.
    async fn renewal(&self, _: Self::Found, reader: &Reader, hints: Hints) -> Result<Option<HeadRenewal>> {
        HeadRenewal::whole(reader, hints).await
    }

    /// As [`Self::store_if`], counted by what became of it.
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

    /// Removes `key`'s entry; durable against a kill when this returns.
    async fn remove(self: &Arc<Self>, key: &[u8]) -> Result<()>;

    /// Gives `key`'s entry another head, unless it changes meanwhile. `false`: there is none.
    async fn update_head(self: &Arc<Self>, key: &[u8], head: Bytes, hints: Hints) -> Result<bool> {
        let Some((found, reader)) = self.find_current(key).await? else { return Ok(false) };
        let Some(renewal) = self.renewal(found, &reader, hints).await? else { return Ok(false) };
        // If the key has changed since it was read, that change counts, and not a new head for the old body.
        self.commit_if(renewal.record(key, &head), Some(found)).await
    }

    /// Attempts an append until there is room, for a bounded time. Where nobody else makes room, `flush` and a round of what is due
    /// do, once. `too_long` says what an entry is that never gets room.
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

    /// Returns whether memory knows of an entry; `true` where memory cannot tell.
    fn may_contain(&self, key_hash: KeyHash) -> bool;

    /// Counts a hit that was served from elsewhere.
    fn touch(&self, key_hash: KeyHash);

    /// Runs one round of the work that is due now.
    async fn maintain(self: &Arc<Self>);

    /// Returns the time until the next work is due; `None` if there is none.
    fn next_due(&self) -> Option<Duration>;

    /// Hands everything committed to the device.
    async fn flush(self: &Arc<Self>) -> Result<()>;

    /// Writes everything that the next start needs. Closing calls this before its last sync.
    async fn finish(self: &Arc<Self>) -> Result<()>;

    fn gauges(&self) -> EngineGauges;

    /// Checks what must hold between index, layout and counters.
    ///
    /// # Panics
    /// When something does not.
    fn check(&self);
}
