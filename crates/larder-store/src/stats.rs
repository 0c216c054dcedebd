//! The public [`Stats`]: counters of volumes, and gauges of their engines.

use crate::{families::AnyEngine, volume::counters::for_each_counter};
use std::sync::atomic::Ordering;

macro_rules! stats {
    ($($(#[doc = $doc:literal])+ $name:ident),* $(,)?) => {
        /// The statistics of a store: counters since it was opened, and present values.
        ///
        /// ```
        /// # futures_executor::block_on(async {
        /// use larder_store::{Hints, Stats, Store, StoreOptions};
        ///
        /// # let directory = tempfile::tempdir().expect("a directory");
        /// # let path = directory.path().join("example.larder");
        /// let store = Store::open(StoreOptions::new(path, 16 << 20))?;
        /// store.insert(b"key", "the head".into(), Hints::default())?.commit().await?;
        /// store.get(b"key").await?;
        /// store.get(b"another key").await?;
        /// let stats = store.stats();
        /// assert_eq!((stats.entries, stats.lookups, stats.hits), (1, 2, 1));
        /// for (name, about, value) in Stats::COUNTERS {
        ///     println!("{name} {} ({about})", value(&stats));
        /// }
        /// # store.close().await
        /// # }).expect("a store in a directory of its own");
        /// ```
        #[derive(Clone, Debug, Default)]
        #[non_exhaustive]
        pub struct Stats {
            /// Entries in the index at present.
            pub entries: u64,
            /// Whether `entries` counts all entries. `false` in policies whose index covers only the sets that were
            /// read since the start.
            pub counts_all_entries: bool,
            /// Segments that hold records; 0 in policies without segments, see
            /// [`crate::StoreInfo::segment_size_bytes`].
            pub segments_in_use: u64,
            /// Segments of the volume; 0 in policies without segments.
            pub segment_count: u64,
            /// Maximum number of entries that the index can hold.
            pub entries_max: u64,
            /// Memory in bytes that the index takes when it is full.
            pub index_bytes: u64,
            /// Bytes of committed data in memory that the device does not have yet.
            pub dirty_bytes: u64,
            /// Size of the volume in bytes.
            pub size_bytes: u64,
            /// Whether all entries of an earlier run are in the index.
            pub loaded: bool,
            /// Name of the I/O interface, such as `io_uring`. If the volumes differ, that of the first one.
            pub device: &'static str,
            /// Number of volumes.
            pub volumes: u64,
            /// Volumes that are excluded because their disk or engine failed.
            pub volumes_out: u64,
            /// Removals and invalidations that could not be written yet.
            pub removals_waiting: u64,
            /// Number of pinned entries.
            pub pinned_entries: u64,
            /// Bytes of the volumes that pinned entries take.
            pub pinned_bytes: u64,
            /// Maximum bytes of the volumes that pinned entries may take.
            pub pinned_bytes_max: u64,
            $($(#[doc = $doc])+ pub $name: u64,)*
        }

        impl Stats {
            /// All counters: the name, the description, and the function that reads the value.
            pub const COUNTERS: &[(&str, &str, fn(&Self) -> u64)] =
                &[$((stringify!($name), concat!($($doc),+), |stats| stats.$name)),*];

            /// Returns the sum of the statistics of several volumes.
            pub(crate) fn sum(volumes: impl Iterator<Item = Self>) -> Self {
                volumes.reduce(|sum, volume| Self {
                    entries: sum.entries + volume.entries,
                    counts_all_entries: sum.counts_all_entries && volume.counts_all_entries,
                    segments_in_use: sum.segments_in_use + volume.segments_in_use,
                    segment_count: sum.segment_count + volume.segment_count,
                    entries_max: sum.entries_max + volume.entries_max,
                    index_bytes: sum.index_bytes + volume.index_bytes,
                    dirty_bytes: sum.dirty_bytes + volume.dirty_bytes,
                    size_bytes: sum.size_bytes + volume.size_bytes,
                    loaded: sum.loaded && volume.loaded,
                    device: sum.device,
                    volumes: sum.volumes + volume.volumes,
                    volumes_out: sum.volumes_out + volume.volumes_out,
                    removals_waiting: sum.removals_waiting + volume.removals_waiting,
                    pinned_entries: sum.pinned_entries + volume.pinned_entries,
                    pinned_bytes: sum.pinned_bytes + volume.pinned_bytes,
                    pinned_bytes_max: sum.pinned_bytes_max + volume.pinned_bytes_max,
                    $($name: sum.$name + volume.$name,)*
                })
                .unwrap_or_default()
            }

            pub(crate) fn of(engine: &AnyEngine) -> Self {
                let volume = engine.volume();
                let gauges = engine.gauges();
                Self {
                    entries: gauges.entries,
                    counts_all_entries: gauges.counts_all,
                    segments_in_use: gauges.segments_in_use,
                    segment_count: volume.shape.geometry().map_or(0, |geometry| geometry.segment_count.into()),
                    entries_max: gauges.entries_max,
                    index_bytes: gauges.index_bytes,
                    dirty_bytes: gauges.dirty_bytes,
                    size_bytes: volume.size_bytes(),
                    loaded: volume.counters.loaded.load(Ordering::Acquire),
                    device: volume.device.name(),
                    volumes: 1,
                    volumes_out: u64::from(volume.health.is_out()),
                    removals_waiting: volume.pending_removals.count(),
                    pinned_entries: volume.pins.count(),
                    pinned_bytes: volume.pins.bytes(),
                    pinned_bytes_max: volume.pins.bytes_max(),
                    $($name: volume.counters.$name.load(Ordering::Relaxed),)*
                }
            }
        }
    };
}

for_each_counter!(stats);
