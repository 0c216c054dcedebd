//! Entries that are committed but not yet on the device.
//!
//! Owns: their bytes, and the parts still to be written. Invariant: an entry stays here until the last write of a piece
//! of it has completed. Until then it keeps its place, even if it was dropped.

use super::map::MapPlace;
use crate::{
    device::{AlignedBuffer, Completion},
    hash::KeyHash,
};
use bytes::Bytes;
use std::{collections::HashMap, sync::Arc, time::Duration};

/// A committed entry that the device does not have yet.
pub(super) struct DirtyEntry {
    pub(super) key_hash: KeyHash,
    /// The bytes of the record, padded to whole slots.
    pub(super) record: Arc<AlignedBuffer>,
    pub(super) sectors: u32,
    /// The entry's place on the volume; `None` while the entry waits in a locality buffer.
    pub(super) place: Option<MapPlace>,
    /// Number of pieces of this entry that are not written yet.
    pub(super) pieces_left: u32,
    /// Whether the write of a piece failed.
    pub(super) failed: bool,
    /// Whether the entry was removed, replaced or evicted since its commit.
    pub(super) dropped: bool,
    /// Time at which the entry was committed.
    pub(super) since: Duration,
    /// Number of the commit. Later commits have greater numbers.
    pub(super) ticket: u64,
    /// Completion to call when the entry is on the device; `None` if no task waits for that.
    pub(super) done: Option<Completion<()>>,
}

/// All committed entries that the device does not have yet. Each is found by the number of its write.
#[derive(Default)]
pub(super) struct DirtyEntries {
    entries: HashMap<u32, DirtyEntry>,
    len_bytes: u64,
    last_ticket: u64,
}

impl DirtyEntries {
    pub(super) fn insert(&mut self, sequence: u32, mut entry: DirtyEntry) {
        self.last_ticket += 1;
        entry.ticket = self.last_ticket;
        self.len_bytes += entry.record.len() as u64;
        assert!(!entry.record.is_empty(), "a record has bytes");
        let before = self.entries.insert(sequence, entry);
        assert!(before.is_none(), "a write's number is used once");
    }

    pub(super) fn remove(&mut self, sequence: u32) -> Option<DirtyEntry> {
        let entry = self.entries.remove(&sequence)?;
        assert!(entry.record.len() as u64 <= self.len_bytes, "what is dirty is counted");
        self.len_bytes -= entry.record.len() as u64;
        Some(entry)
    }

    pub(super) fn entry_mut(&mut self, sequence: u32) -> Option<&mut DirtyEntry> {
        self.entries.get_mut(&sequence)
    }

    pub(super) fn holds(&self, sequence: u32) -> bool {
        self.entries.contains_key(&sequence)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&u32, &DirtyEntry)> {
        self.entries.iter()
    }

    /// Returns the record that the write with the number `sequence` stores; `None` if it is on the device or was
    /// dropped.
    pub(super) fn record(&self, sequence: u32) -> Option<Bytes> {
        let entry = self.entries.get(&sequence)?;
        Some(Bytes::from_owner(DirtyShared(Arc::clone(&entry.record))))
    }

    /// Returns whether an entry with a commit number up to `ticket` is not on the device yet. Scans all entries, so
    /// only flushes call this.
    pub(super) fn holds_up_to(&self, ticket: u64) -> bool {
        self.entries.values().any(|entry| entry.ticket <= ticket)
    }

    pub(super) fn last_ticket(&self) -> u64 {
        self.last_ticket
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

struct DirtyShared(Arc<AlignedBuffer>);

impl AsRef<[u8]> for DirtyShared {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}
