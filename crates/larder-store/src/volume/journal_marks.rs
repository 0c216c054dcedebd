//! Progress of a volume's journal: the written and the durable part.
//!
//! Owns: two page numbers. The writer of pages and the syncing task report here. Invariant: pages before the durable
//! mark were written before the start of a sync that succeeded. Cost: two atomics.

use std::sync::atomic::{AtomicU64, Ordering};

/// The progress of a journal: the first page that is not written yet, and the first that is not durable yet.
#[derive(Default)]
pub(crate) struct JournalMarks {
    written: AtomicU64,
    durable: AtomicU64,
}

impl JournalMarks {
    /// Notes that all pages before `until` are written.
    pub(crate) fn note_written(&self, until: u64) {
        self.written.fetch_max(until, Ordering::AcqRel);
    }

    /// Returns the first page that is not written yet. A sync that begins now covers all pages before it.
    pub(crate) fn written_until(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Notes that a sync succeeded. `until` is what [`Self::written_until`] returned when the sync began.
    pub(crate) fn note_durable(&self, until: u64) {
        self.durable.fetch_max(until, Ordering::AcqRel);
    }

    /// Returns the first page that is not durable yet.
    pub(crate) fn durable_until(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }
}
