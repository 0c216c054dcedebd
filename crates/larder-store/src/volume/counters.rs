//! The counters of a volume.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Passes all counters with their descriptions to the macro `$with`. One line in this list makes a counter, its field
/// in `Stats` and its metric.
macro_rules! for_each_counter {
    ($with:ident) => {
        $with! {
            /// Lookups in the store.
            lookups,
            /// Lookups that found an entry.
            hits,
            /// Lookups that read the record of another key in vain.
            false_matches,
            /// Entries committed.
            commits,
            /// Entries not stored for lack of room.
            rejected,
            /// Entries not stored because stored ones were worth more.
            not_admitted,
            /// Entries not stored because store.tuning.writes_per_day was used up.
            write_limit_refused,
            /// Entries evicted to make room.
            evicted,
            /// Entries lost because both of their buckets were full, or because another key took their place.
            displaced,
            /// Entries that reclaim wrote again.
            reinserted,
            /// Pinned entries that were dropped: useless, or no room to rewrite them.
            unpinned,
            /// Corrupt entries found, served as misses.
            corrupt,
            /// Failed I/O operations.
            io_errors,
            /// Times a volume was excluded because it failed.
            outages,
            /// Removals replaced by emptying their volume, because too many could not be written.
            removal_overflows,
            /// Assertions of the storage engine that failed; each excludes its volume until it is opened again.
            failed_assertions,
            /// Syncs that failed and may have lost changes; each excludes its volume until it is opened again.
            failed_syncs,
            /// Device reads.
            reads,
            /// Bytes read from the device.
            read_bytes,
            /// Entries read along with a requested one and passed on, such as to a memory cache.
            neighbors,
            /// Bytes of entries read along with a requested one.
            neighbor_bytes,
            /// Device writes.
            writes,
            /// Bytes written to the device.
            written_bytes,
            /// Bytes of entries admitted: key, head and body.
            admitted_bytes,
            /// Segments loaded, of those found at start.
            recovered_segments,
            /// Segments found on the volumes at start.
            recoverable_segments,
        }
    };
}
pub(crate) use for_each_counter;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The counters of one volume since it was opened.
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
            pub(crate) loaded: AtomicBool,
        }
    };
}

for_each_counter!(counters);

/// Adds `count` to a counter.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
