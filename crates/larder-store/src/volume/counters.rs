//! The counters of a volume.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Passes every counter with its description to the macro `$with`. This is the only list of counters.
macro_rules! for_each_counter {
    ($with:ident) => {
        $with! {
            /// Lookups.
            lookups,
            /// Lookups that found their entry.
            hits,
            /// Lookups that read the record of another key.
            false_matches,
            /// Committed entries.
            commits,
            /// Entries not stored because there was no room.
            rejected,
            /// Entries that were offered but not stored, because they were not worth evicting others for.
            not_admitted,
            /// Entries that were offered but not stored, because the limit on bytes written was reached.
            wear_refused,
            /// Entries dropped at reclaim.
            evicted,
            /// Entries lost because both of their buckets were full, or because another key took their place.
            displaced,
            /// Entries rewritten at reclaim.
            reinserted,
            /// Pinned entries that were evicted nevertheless: expired, invalidated, damaged, or without room to rewrite
            /// them.
            unpinned,
            /// Damaged entries found. Each was a miss.
            corrupt,
            /// Failed I/O operations.
            io_errors,
            /// Times that a volume was excluded because it failed.
            outages,
            /// Removals that became one of everything, because too many could not be written.
            removals_widened,
            /// Assertions of engines that failed. Each excludes its volume until it is opened again.
            failed_assertions,
            /// Syncs that failed and may have lost changes. Each excludes its volume until it is opened again.
            failed_syncs,
            /// Device reads of entries.
            reads,
            /// Bytes of these reads.
            read_bytes,
            /// Entries passed on because they were read along with a requested one.
            neighbours,
            /// Bytes of these entries.
            neighbour_bytes,
            /// Device writes.
            writes,
            /// Bytes written to the device.
            written_bytes,
            /// Entry bytes (key, head, body) admitted.
            admitted_bytes,
            /// Segments loaded, of those found at start.
            recovered_segments,
            /// Segments found at start.
            recoverable_segments,
        }
    };
}
pub(crate) use for_each_counter;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of one store since it was opened.
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
            pub(crate) loaded: AtomicBool,
        }
    };
}

for_each_counter!(counters);

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
