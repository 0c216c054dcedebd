//! Encodes the metrics of the store.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::{Figure, encode_counter, encode_gauge};

/// Encodes the metrics.
pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, stats: &larder_store::Stats) -> fmt::Result {
    let counters: [Figure; 24] = [
        ("store_lookups", "Lookups in the store", stats.lookups),
        ("store_hits", "Lookups that found an entry", stats.hits),
        ("store_false_matches", "Lookups that read the record of another key", stats.false_matches),
        ("store_commits", "Entries committed", stats.commits),
        ("store_not_admitted", "Entries not stored because others were worth more", stats.not_admitted),
        (
            "store_wear_refused",
            "Entries not stored because as much was written as store.tuning.writes_per_day allows",
            stats.wear_refused,
        ),
        ("store_rejected", "Entries not stored for lack of room", stats.rejected),
        ("store_evicted", "Entries evicted for space", stats.evicted),
        ("store_displaced", "Entries lost because the index was full", stats.displaced),
        ("store_reinserted", "Entries that reclaim wrote again", stats.reinserted),
        ("store_unpinned", "Pinned entries that were dropped: useless, or no room to rewrite them", stats.unpinned),
        ("store_corrupt", "Corrupt entries found, served as misses", stats.corrupt),
        ("store_io_errors", "Failed I/O operations", stats.io_errors),
        ("store_outages", "Times a volume was excluded because it failed", stats.outages),
        (
            "store_removals_widened",
            "Removals that became one of everything, because too many could not be written",
            stats.removals_widened,
        ),
        (
            "store_failed_assertions",
            "Assertions of the storage engine that failed; each excludes its volume until it is opened again",
            stats.failed_assertions,
        ),
        (
            "store_failed_syncs",
            "Syncs that failed and may have lost changes; each excludes its volume until it is opened again",
            stats.failed_syncs,
        ),
        ("store_reads", "Device reads", stats.reads),
        ("store_read_bytes", "Bytes read from the device", stats.read_bytes),
        (
            "store_neighbours",
            "Entries read along with a requested one and passed to the memory cache",
            stats.neighbours,
        ),
        ("store_neighbour_bytes", "Bytes of entries read along with a requested one", stats.neighbour_bytes),
        ("store_writes", "Device writes", stats.writes),
        ("store_written_bytes", "Bytes written to the device", stats.written_bytes),
        ("store_admitted_bytes", "Bytes of entries admitted", stats.admitted_bytes),
    ];
    for (name, help, value) in counters {
        encode_counter(encoder, name, help, value)?;
    }
    let gauges: [Figure; 11] = [
        ("store_entries", "Entries in the index", stats.entries),
        ("store_entries_max", "Capacity of the index, in entries", stats.entries_max),
        ("store_index_bytes", "Memory of the full index, in bytes", stats.index_bytes),
        ("store_size_bytes", "Size of the volumes", stats.size_bytes),
        ("store_volumes", "Volumes of the store", stats.volumes),
        ("store_volumes_failed", "Volumes excluded because they fail", stats.volumes_out),
        ("store_removals_waiting", "Removals that could not be written yet", stats.removals_waiting),
        ("store_pinned_entries", "Pinned entries", stats.pinned_entries),
        ("store_pinned_bytes", "Bytes used by pinned entries", stats.pinned_bytes),
        ("store_pinned_bytes_max", "Most bytes that pinned entries may use", stats.pinned_bytes_max),
        ("store_loaded", "1 once the index is loaded", u64::from(stats.loaded)),
    ];
    for (name, help, value) in gauges {
        encode_gauge(encoder, name, help, value)?;
    }
    Ok(())
}
