//! The metrics of the store: all of its counters, and its gauges.

use larder_store::Stats;

use crate::figures::metrics::family::{MetricFamily, MetricKind, MetricValue, labeled, metric_table, series_of};

/// Returns the metrics of the store. The store itself has the list of its counters.
pub(super) fn metrics(stats: Option<&Stats>) -> Vec<MetricFamily> {
    let counters = Stats::COUNTERS.iter().map(|(name, help, read)| MetricFamily {
        name: format!("larder_store_{name}"),
        kind: MetricKind::Counter,
        labels: &[],
        help: help.trim_matches([' ', '.']),
        series: stats.map(|stats| labeled(&[], read(stats))).into_iter().collect(),
    });
    counters.chain(gauges(stats)).collect()
}

metric_table! {
    fn gauges("larder_store_", stats: Stats) {
        Gauge entries = "Entries in the index", stats.entries;
        Gauge entries_max = "Capacity of the index, in entries", stats.entries_max;
        Gauge index_bytes = "Memory of the full index, in bytes", stats.index_bytes;
        Gauge size_bytes = "Size of the volumes", stats.size_bytes;
        Gauge volumes = "Volumes of the store", stats.volumes;
        Gauge volumes_failed = "Volumes excluded because they fail", stats.volumes_out;
        Gauge removals_waiting = "Removals that could not be written yet", stats.removals_waiting;
        Gauge pinned_entries = "Pinned entries", stats.pinned_entries;
        Gauge pinned_bytes = "Bytes used by pinned entries", stats.pinned_bytes;
        Gauge pinned_bytes_max = "Highest number of bytes that pinned entries may use", stats.pinned_bytes_max;
        Gauge loaded = "1 once the index is loaded", u8::from(stats.loaded);
    }
}
