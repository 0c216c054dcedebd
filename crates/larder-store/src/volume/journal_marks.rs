//! How far a volume's journal is written, and how far it is durable.
//!
//! Owns: two numbers of pages. Does not: write or sync; who writes pages says so here, and who syncs asks before and says so after. Invariant:
//! pages before the durable mark were written before a sync began that succeeded. Cost: two atomics.

use std::sync::atomic::{AtomicU64, Ordering};

/// The marks.
#[derive(Default)]
pub(crate) struct JournalMarks {
    written: AtomicU64,
    durable: AtomicU64,
}

impl JournalMarks {
    /// Notes that all pages before `until` are with the device.
    pub(crate) fn note_written(&self, until: u64) {
        self.written.fetch_max(until, Ordering::AcqRel);
    }

    /// What a sync that begins now makes durable.
    pub(crate) fn written_until(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Notes that a sync of what [`Self::written_until`] told has succeeded.
    pub(crate) fn note_durable(&self, until: u64) {
        self.durable.fetch_max(until, Ordering::AcqRel);
    }

    /// Pages before this one are durable.
    pub(crate) fn durable_until(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }
}
