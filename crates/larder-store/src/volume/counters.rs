//! What a volume counts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Hands every counter, with what it counts, to the macro `$with`: the one list of them.
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
            /// Entries not stored for want of room.
            rejected,
            /// Entries that were offered and not stored, because they were not worth the room of others.
            not_admitted,
            /// Entries that were offered and not stored, because as much was written as may be.
            wear_refused,
            /// Entries dropped at reclaim.
            evicted,
            /// Entries lost because both their buckets were full, or another key had their address.
            displaced,
            /// Entries kept at reclaim by writing them again.
            reinserted,
            /// Pinned entries that went all the same: beyond any use, invalidated, damaged, or with no place to be
            /// written to.
            unpinned,
            /// Damaged entries met (each was a miss).
            corrupt,
            /// Failed transfers.
            io_errors,
            /// Times that a volume was excluded because it failed.
            outages,
            /// Device reads of entries.
            reads,
            /// Bytes of those.
            read_bytes,
            /// Device writes.
            writes,
            /// Bytes written to the device.
            written_bytes,
            /// Entry bytes (key, head, body) admitted.
            admitted_bytes,
            /// Segments loaded of those found at start.
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
