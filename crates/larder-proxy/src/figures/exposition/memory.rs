//! The memory of each part of the process.

use super::process;
use crate::{
    figures::metrics::family::{MetricFamily, MetricKind, MetricValue, labeled, metric_table, series_of},
    run::shared::ProxyState,
};

metric_table! {
    pub(super) fn metrics("larder_", parts: [(&str, u64); PART_COUNT]) {
        Gauge memory_bytes[part] =
            "Bytes of memory by purpose. Connections are an estimate, the index counts as if it were full, and `other` \
             is the remainder of the process",
            parts.iter().map(|(part, bytes)| labeled(&[part], *bytes)).collect();
        Gauge resident_bytes = "Resident memory of the process, in bytes",
            parts.iter().map(|(_, bytes)| bytes).sum::<u64>();
    }
}

/// Returns how many bytes of memory each part of the proxy uses, and the remainder of the process's memory. Only parts
/// that count their own memory are listed.
///
/// The remainder is the program, the threads' stacks, and memory that the allocator keeps.
pub(crate) fn parts(state: &ProxyState) -> [(&'static str, u64); PART_COUNT] {
    let store = state.cache.store.as_ref().map(|store| store.stats()).unwrap_or_default();
    let mut parts = [
        ("index", store.index_bytes),
        ("dirty", store.dirty_bytes),
        ("hot", state.cache.hot.bytes()),
        ("windows", state.cache.bodies.held_bytes()),
        ("connections", state.places.held_bytes()),
        (
            "popular",
            state.history.workers().iter().map(|worker| (worker.popular.bytes() + worker.queries.bytes()) as u64).sum(),
        ),
        ("other", 0),
    ];
    let known: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
    parts[PART_COUNT - 1].1 = process::resident_bytes().unwrap_or(0).saturating_sub(known);
    parts
}

const PART_COUNT: usize = 7;
