//! What the store counts, and the public [`Stats`] made of it.

use super::engine::AnyEngine;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of one store since it was opened.
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
            pub(crate) loaded: AtomicBool,
        }

        /// Counters and gauges since the store was opened.
        #[derive(Clone, Debug, Default)]
        #[non_exhaustive]
        pub struct Stats {
            /// Entries in the index now.
            pub entries: u64,
            /// Entries the index has room for.
            pub entries_max: u64,
            /// Bytes of memory the index takes when full.
            pub index_bytes: u64,
            /// Bytes of memory that hold what was committed and is not on the device yet.
            pub dirty_bytes: u64,
            /// Size of the volume in bytes.
            pub size_bytes: u64,
            /// Whether what an earlier run left is all loaded.
            pub loaded: bool,
            /// The device's name; of several volumes the first's.
            pub device: &'static str,
            /// Volumes of the store.
            pub volumes: u64,
            /// Volumes that were taken out because they failed.
            pub volumes_out: u64,
            /// Removals and invalidations that could not be written yet.
            pub removals_waiting: u64,
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Stats {
            /// Of several volumes together.
            pub(super) fn sum(volumes: impl Iterator<Item = Self>) -> Self {
                volumes.reduce(|sum, volume| Self {
                    entries: sum.entries + volume.entries,
                    entries_max: sum.entries_max + volume.entries_max,
                    index_bytes: sum.index_bytes + volume.index_bytes,
                    dirty_bytes: sum.dirty_bytes + volume.dirty_bytes,
                    size_bytes: sum.size_bytes + volume.size_bytes,
                    loaded: sum.loaded && volume.loaded,
                    device: sum.device,
                    volumes: sum.volumes + volume.volumes,
                    volumes_out: sum.volumes_out + volume.volumes_out,
                    removals_waiting: sum.removals_waiting + volume.removals_waiting,
                    $($name: sum.$name + volume.$name,)*
                })
                .unwrap_or_default()
            }

            pub(super) fn of(engine: &AnyEngine) -> Self {
                let (volume, gauges) = (engine.volume(), engine.gauges());
                Self {
                    entries: gauges.entries,
                    entries_max: gauges.entries_max,
                    index_bytes: gauges.index_bytes,
                    dirty_bytes: gauges.dirty_bytes,
                    size_bytes: volume.size_bytes(),
                    loaded: volume.counters.loaded.load(Ordering::Acquire),
                    device: volume.device.name(),
                    volumes: 1,
                    volumes_out: u64::from(volume.health.is_out()),
                    removals_waiting: volume.arrears.count(),
                    $($name: volume.counters.$name.load(Ordering::Relaxed),)*
                }
            }
        }
    };
}

counters! {
    /// Lookups.
    lookups,
    /// Lookups that found their entry.
    hits,
    /// Lookups that read the record of another key.
    strangers,
    /// Committed entries.
    commits,
    /// Entries not stored for want of room.
    rejected,
    /// Entries that were offered and not stored, because they were not worth the room of others.
    not_admitted,
    /// Entries dropped at reclaim.
    evicted,
    /// Entries lost because both their buckets were full, or another key had their address.
    displaced,
    /// Entries kept at reclaim by writing them again.
    reinserted,
    /// Damaged entries met (each was a miss).
    corrupt,
    /// Failed transfers.
    io_errors,
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

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
