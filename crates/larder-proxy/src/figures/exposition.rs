//! The metrics: one table for the counters of workers (`metrics`), and one for each kind of state.
//!
//! Owns: the tables of state that is read elsewhere, and the list of tables. `operators::admin::figures` writes the
//! metrics as text, and `overview` those without labels as JSON. Cost: nothing between scrapes.

mod fleet;
pub(crate) mod health;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod sites;
mod store;
#[cfg(test)]
mod tests;
mod tier;

use std::sync::{Arc, atomic::Ordering::Relaxed};

use crate::{
    figures::metrics::{
        ProxyStats, WorkerMetrics,
        family::{MetricFamily, MetricKind, MetricValue, labeled, metric_table, series_of},
    },
    operators::history::{ClockMoment, KeptHistory},
    run::shared::ProxyState,
};

/// Reads all metrics except those of sites and of the process.
pub(crate) fn families(state: &ProxyState) -> Vec<MetricFamily> {
    let stats = gather(state.history.workers(), Some(state));
    let mut families = stats.metrics();
    families.extend(totals(Some(&stats)));
    families.extend(current(Some(state)));
    families.extend(health::metrics(Some(state)));
    families.extend(memory::metrics(Some(&memory::parts(state))));
    families.extend(lifetime(Some(&state.history.book_at(ClockMoment::now()).kept)));
    if state.fleet.is_some() {
        families.extend(fleet::log(Some(state)));
    }
    if let Some(link) = &state.fleet {
        families.extend(fleet::nodes(Some(&link.peers.states())));
    }
    if let Some(siblings) = &state.siblings {
        families.extend(fleet::siblings(Some(siblings)));
    }
    if let Some(tier) = &state.cache.tier {
        families.extend(tier::metrics(Some(tier)));
    }
    if let Some(store) = &state.cache.store {
        families.extend(store::metrics(Some(&store.stats())));
    }
    families
}

/// Sums the workers' counters, and adds the state that workers share, if there is a running proxy.
pub(crate) fn gather(workers: &[Arc<WorkerMetrics>], state: Option<&ProxyState>) -> ProxyStats {
    let mut stats = ProxyStats::sum(workers);
    if let Some(state) = state {
        stats.memory_cache_entries = state.cache.hot.len();
        stats.memory_cache_bytes = state.cache.hot.bytes();
        stats.window_bytes = state.cache.bodies.held_bytes();
    }
    stats
}

metric_table! {
    fn totals("larder_", stats: ProxyStats) {
        Counter hits = "Exchanges whose body came from the cache", stats.hits();
        Gauge memory_cache_entries = "Entries in the memory cache", stats.memory_cache_entries;
        Gauge memory_cache_bytes = "Bytes used by entries in the memory cache", stats.memory_cache_bytes;
        Gauge window_bytes = "Memory, in bytes, of the bodies that are being sent to clients", stats.window_bytes;
    }
}

metric_table! {
    fn current("larder_", state: ProxyState) {
        Gauge build_info[version] = "Version of the program, always 1",
            vec![labeled(&[env!("CARGO_PKG_VERSION")], 1)];
        Gauge node_info[node] = "Name of the node, always 1",
            state.config.fleet.node.iter().map(|node| labeled(&[node], 1)).collect();
        Gauge window_bytes_max = "Limit beyond which fetches without readers pause, in bytes",
            state.cache.bodies.max_bytes();
        Gauge memory_limit_bytes = "Memory limit of the process now, in bytes; 0 without one",
            state.counts.memory_bytes.load(Relaxed);
        Gauge memory_cache_bytes_max = "Limit of the memory cache now, in bytes", state.cache.hot.capacity_bytes();
        Counter memory_yields =
            "Times that the memory limit fell because memory was short on the machine or in a control group",
            state.counts.memory_yields.load(Relaxed);
        Gauge waiting_requests = "Requests that wait for a response", state.counts.waiting.load(Relaxed);
        Gauge waiting_requests_max = "Highest number of requests that may wait for a response",
            state.config.limits.waiting_count_max;
        Gauge offline = "1 while Larder is offline, by command or because the uplink is down",
            u8::from(state.origins.uplink.is_offline());
        Gauge offline_missing = "URLs that were requested while offline and were not stored", state.missing.count();
        Gauge origin_waiting_requests =
            "Requests that wait for one of their origin's connections (limits.origin_connections)",
            state.origins.rooms.waiting_count();
        Counter pins_refused = "Entries that could not be pinned because the limit for pinned entries was reached",
            state.cache.pins.refused_count();
    }
}

metric_table! {
    // Totals since the first start with this store.
    fn lifetime("larder_lifetime_", kept: KeptHistory) {
        Counter requests = "Exchanges over all runs with this store", kept.ever.requests();
        Counter hits = "Exchanges over all runs whose body came from the cache", kept.ever.hits();
        Counter client_bytes = "Body bytes sent to clients over all runs", kept.ever.client_bytes();
        Counter origin_bytes = "Body bytes received from origins over all runs", kept.ever.origin_bytes();
        Counter saved_bytes = "Body bytes over all runs that came from the cache", kept.ever.hit_bytes();
        Gauge start_timestamp_seconds = "Start of the counts over all runs, in Unix time", kept.since_s;
    }
}
