//! The purge record of a store: the journal, and the label by which it and the store recognize each other.
//!
//! Owns: when the record is believed, and emptying a store whose record is not. Invariant: the store has the label only
//! if there is a record with it.

use larder_device::block_on;
use larder_store::Store;

use super::journal::{JournalState, PurgeJournal, RecordLine};
use crate::keys::random;

/// The record of purges in a file next to a store.
pub(super) struct PurgeRecordFile {
    store: Store,
    journal: PurgeJournal,
    label: u64,
    /// Whether the store must be emptied before any purge is recorded, because that failed at the start.
    must_empty: bool,
}

impl PurgeRecordFile {
    /// Reads the record, or empties the store if the record cannot be trusted.
    ///
    /// `load` receives the lines of the record, and returns the lines with which it is rewritten.
    pub(super) fn open(
        store: &Store,
        journal: PurgeJournal,
        load: impl FnOnce(Vec<RecordLine>) -> Vec<RecordLine>,
    ) -> Self {
        let mut labels = store.labels();
        let believed = match journal.read() {
            JournalState::Lines { label, lines } if labels.all(|own| own == 0 || own == label) => Ok((label, lines)),
            JournalState::Lines { .. } => Err("it belongs to another store".to_owned()),
            JournalState::Nothing if labels.all(|own| own == 0) => Ok((random().max(1), Vec::new())),
            JournalState::Nothing => Err("the file does not exist".to_owned()),
            JournalState::Damaged(why) => Err(why),
        };
        drop(labels);
        let must_empty = match &believed {
            Ok(_) => false,
            Err(why) => !empty(store, &format!("{}: {why}", journal.path().display())),
        };
        // A store that had no purge needs no record, and can be moved without one.
        let is_needed = believed.as_ref().map_or(true, |(_, lines)| !lines.is_empty());
        let (label, lines) = believed.unwrap_or_else(|_| (random().max(1), Vec::new()));
        let lines = load(lines);
        let mut beside = Self { store: store.clone(), journal, label, must_empty };
        if is_needed && let Err(error) = beside.rewrite(&lines) {
            tracing::warn!(%error, "the record of purges cannot be written: the next purge retries");
        }
        beside
    }

    /// Returns the label, a random number by which the record and the store recognize each other.
    pub(super) fn label(&self) -> u64 {
        self.label
    }

    /// Appends lines to the record. Blocks until they are durable.
    pub(super) fn append(&mut self, lines: &[RecordLine]) -> Result<(), String> {
        self.journal.append(lines).map_err(|error| error.to_string())
    }

    /// Returns whether lines can be appended to the record. If not, it must be rewritten: for example, while a volume
    /// of the store does not have the record's label.
    pub(super) fn takes_more(&self) -> bool {
        !self.must_empty && self.journal.takes_more() && self.store.labels().all(|label| label == self.label)
    }

    /// Replaces the content of the record with these lines, and gives the store the record's label. Blocks until both
    /// are durable.
    pub(super) fn rewrite(&mut self, lines: &[RecordLine]) -> Result<(), String> {
        if self.must_empty {
            block_on(self.store.clear()).map_err(|error| error.to_string())?;
            self.must_empty = false;
        }
        self.journal.rewrite(self.label, lines).map_err(|error| error.to_string())?;
        // The label is set only now, because it states that there is a record.
        if self.store.labels().all(|label| label == self.label) {
            return Ok(());
        }
        block_on(self.store.set_label(self.label)).map_err(|error| error.to_string())
    }
}

/// Empties a store whose purges are unknown, because its entries may have been purged. Returns whether that is durable.
pub(super) fn empty(store: &Store, why: &str) -> bool {
    tracing::error!(%why, "the record of purges is unusable: the store is emptied");
    let emptied = block_on(store.clear());
    if let Err(error) = &emptied {
        tracing::error!(%error, "the store cannot be emptied: none of its entries is served");
    }
    emptied.is_ok()
}
