//! Progress of a volume's journal: the written and the durable part.
//!
//! Owns: two page numbers. The writer of pages and the syncing task report here. Invariant: pages before the durable
//! mark were written before the start of a sync that succeeded. Cost: two atomics.

use std::sync::atomic::{AtomicU64, Ordering};

/// The first page not yet written, and the first page not yet durable.
#[derive(Default)]
pub(crate) struct JournalMarks {
    written: AtomicU64,
    durable: AtomicU64,
}

impl JournalMarks {
    /// Notes that the device has all pages before `until`.
    pub(crate) fn note_written(&self, until: u64) {
        self.written.fetch_max(until, Ordering::AcqRel);
    }

    /// Returns the mark up to which a sync that begins now makes the journal durable.
    pub(crate) fn written_until(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Notes that a sync succeeded that began when [`Self::written_until`] returned `until`.
    pub(crate) fn note_durable(&self, until: u64) {
        self.durable.fetch_max(until, Ordering::AcqRel);
    }

    /// Returns the number of the first page that is not durable.
    pub(crate) fn durable_until(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }
}
