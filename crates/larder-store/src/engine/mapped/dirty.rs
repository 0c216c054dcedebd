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

/// An entry that is not yet on the device.
pub(super) struct DirtyEntry {
    pub(super) key_hash: KeyHash,
    /// The record, padded to whole slots.
    pub(super) record: Arc<AlignedBuffer>,
    pub(super) sectors: u32,
    /// The place; `None` while it waits in a locality buffer.
    pub(super) place: Option<MapPlace>,
    /// Writes of this entry's pieces that have not completed.
    pub(super) pieces_left: u32,
    /// Whether the write of one of its pieces failed.
    pub(super) failed: bool,
    /// Set if it was removed, replaced or evicted in the meantime.
    pub(super) dropped: bool,
    /// Time of the commit.
    pub(super) since: Duration,
    /// The entry's number in the order of commits.
    pub(super) ticket: u64,
    /// Completed when the entry is written.
    pub(super) done: Option<Completion<()>>,
}

/// All dirty entries, by the number of their write.
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

    /// Returns the record that write `sequence` stores, if it is still here.
    pub(super) fn record(&self, sequence: u32) -> Option<Bytes> {
        let entry = self.entries.get(&sequence)?;
        Some(Bytes::from_owner(DirtyShared(Arc::clone(&entry.record))))
    }

    /// Returns whether an entry up to this ticket is still here. Scans all entries; only flushing calls it.
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
