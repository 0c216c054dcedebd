//! Metrics: sums the counters of all workers, and formats them at each scrape.
//!
//! Owns: their names. Counting is in `metrics`, serving in `admin`. Cost: nothing between scrapes.

mod fleet;
pub(crate) mod health;
pub(crate) mod memory;
mod process;

pub(crate) use process::resident_bytes;
mod sites;
mod store;
mod tier;
mod times;

use std::{
    fmt,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use larder_store::Store;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use self::{memory::MemoryParts, process::ProcessFigures, sites::SiteLabels};
use crate::{
    client::intercept::bypass::BypassReason,
    errors::BodyError,
    history::{ClockMoment, ExchangeSums, KeptHistory},
    metrics::{FileCheck, STATUS_CLASS_COUNT, WorkerMetrics},
    outcome::{MissReason, Outcome, OutcomeKind},
    shared::{InForce, ProxyState},
};

/// The figures of a running proxy since its start, over all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProxyStats {
    /// Exchanges by [`Outcome`], in the order of [`Outcome::ALL`].
    pub outcomes: [u64; Outcome::ALL.len()],
    /// Body bytes sent to clients.
    pub client_bytes: u64,
    /// Body bytes sent to clients that came from the cache.
    pub hit_bytes: u64,
    /// Body bytes received from origins.
    pub origin_bytes: u64,
    /// Requests sent to origins.
    pub origin_requests: u64,
    /// Connections opened to origins.
    pub origin_connections: u64,
    /// Requests to origins that failed.
    pub origin_failures: u64,
    /// Requests that waited for a connection because their origin had reached its limit.
    pub origin_waits: u64,
    /// Fetches that other requests could share.
    pub flights: u64,
    /// Requests that shared another request's fetch.
    pub collapsed: u64,
    /// Client connections accepted.
    pub connections: u64,
    /// Client connections open now.
    pub connections_open: u64,
    /// Open client connections that have been idle for a second, and are kept as a socket only.
    pub connections_parked: u64,
    /// Requests that have waited for a response for a second, and take little memory.
    pub exchanges_parked: u64,
    /// Client connections refused because the limit was reached.
    pub connections_refused: u64,
    /// Errors of the store. Each was handled as a miss.
    pub store_errors: u64,
    /// Store operations that took too long and were no longer waited for.
    pub store_overdue: u64,
    /// Store operations skipped because the store was not responding.
    pub store_bypassed: u64,
    /// Responses that broke off before their end.
    pub aborted: u64,
    /// Responses that broke off because no source could supply the missing bytes, by reason.
    pub broken: [u64; BodyError::ALL.len()],
    /// Fetched files that never change, by the result of their check: verified, unverified, mismatched.
    pub files: [u64; FileCheck::ALL.len()],
    /// Tunnels to hosts listed for interception that were not intercepted, by reason.
    pub bypassed: [u64; BypassReason::ALL.len()],
    /// Fetches of the missing parts of stored bodies.
    pub rests_fetched: u64,
    /// Responses of other nodes of the fleet.
    pub sibling_answers: u64,
    /// Requests that went past the node of the fleet that owns the resource.
    pub siblings_passed_by: u64,
    /// Bytes of other nodes' responses that were admitted to the store.
    pub sibling_copy_bytes: u64,
    /// Responses not stored because the store could not keep up.
    pub storing_given_up: u64,
    /// Access log lines dropped because the log's disk was too slow.
    pub log_lines_dropped: u64,
    /// Entries in the memory cache.
    pub hot_entries: u64,
    /// Bytes in the memory cache.
    pub hot_bytes: u64,
    /// Bytes of bodies in transfer to clients.
    pub window_bytes: u64,
}

impl ProxyStats {
    /// Returns the number of exchanges with this outcome.
    pub fn outcome(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize]
    }

    /// Returns the number of all exchanges.
    pub fn requests(&self) -> u64 {
        self.outcomes.iter().sum()
    }

    /// Sums the workers' counters, and adds the shared state, if it still exists.
    pub(crate) fn gather(workers: &[Arc<WorkerMetrics>], shared: Option<&ProxyState>) -> Self {
        let mut sum = Self::default();
        if let Some(shared) = shared {
            (sum.hot_entries, sum.hot_bytes) = (shared.cache.hot.len(), shared.cache.hot.bytes());
            sum.window_bytes = shared.cache.bodies.held_bytes();
        }
        for worker in workers {
            for (total, count) in sum.outcomes.iter_mut().zip(&worker.outcomes) {
                *total += count.value();
            }
            sum.client_bytes += worker.client_bytes.value();
            sum.hit_bytes += worker.hit_bytes.value();
            sum.origin_bytes += worker.origin_bytes.value();
            sum.origin_requests += worker.origin_requests.value();
            sum.origin_connections += worker.origin_connections.value();
            sum.origin_failures += worker.origin_failures.value();
            sum.origin_waits += worker.origin_waits.value();
            sum.flights += worker.flights.value();
            sum.collapsed += worker.collapsed.value();
            sum.connections += worker.connections.value();
            sum.connections_open += worker.connections_open.value();
            sum.connections_parked += worker.connections_parked.value();
            sum.exchanges_parked += worker.exchanges_parked.value();
            sum.connections_refused += worker.connections_refused.value();
            sum.store_errors += worker.store_errors.value();
            sum.store_overdue += worker.store_overdue.value();
            sum.store_bypassed += worker.store_bypassed.value();
            sum.aborted += worker.aborted.value();
            for (total, count) in sum.broken.iter_mut().zip(&worker.broken) {
                *total += count.value();
            }
            for (total, count) in sum.files.iter_mut().zip(&worker.files) {
                *total += count.value();
            }
            for (total, count) in sum.bypassed.iter_mut().zip(&worker.bypassed) {
                *total += count.value();
            }
            sum.rests_fetched += worker.rests_fetched.value();
            sum.sibling_answers += worker.sibling_answers.value();
            sum.siblings_passed_by += worker.siblings_passed_by.value();
            sum.sibling_copy_bytes += worker.sibling_copy_bytes.value();
            sum.storing_given_up += worker.storing_given_up.value();
            sum.log_lines_dropped += worker.log_lines_dropped.value();
        }
        sum
    }
}

/// The source of the metrics at each scrape.
pub(crate) struct MetricsSource {
    workers: Vec<Arc<WorkerMetrics>>,
    store: Option<Store>,
    in_force: Arc<InForce>,
    site_labels: SiteLabels,
}

impl MetricsSource {
    pub(crate) fn new(workers: Vec<Arc<WorkerMetrics>>, store: Option<Store>, in_force: Arc<InForce>) -> Self {
        Self { workers, store, in_force, site_labels: SiteLabels::default() }
    }

    /// Creates a registry that reads the metrics at each scrape.
    pub(crate) fn registry(self) -> Registry {
        let mut registry = Registry::default();
        registry.sub_registry_with_prefix("larder").register_collector(Box::new(self));
        registry.register_collector(Box::new(ProcessFigures::new()));
        registry
    }
}

impl fmt::Debug for MetricsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposition").field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}

impl MetricsSource {
    /// Encodes exchanges by outcome and class of status. Combinations that never occurred are left out.
    fn encode_responses(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Finished exchanges, by result and by class of status";
        let mut family = encoder.encode_descriptor("responses", help, None, MetricType::Counter)?;
        for (kind, class) in
            OutcomeKind::ALL.into_iter().flat_map(|kind| (0..STATUS_CLASS_COUNT).map(move |class| (kind, class)))
        {
            let index = kind as usize * STATUS_CLASS_COUNT + class;
            let count: u64 = self.workers.iter().map(|worker| worker.responses[index].value()).sum();
            let status = format!("{}xx", class + 1);
            let labels = [("result", kind.token()), ("status", status.as_str())];
            if count > 0 {
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

impl Collector for MetricsSource {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let shared = self.in_force.get();
        let stats = ProxyStats::gather(&self.workers, shared.as_deref());
        let zero = ConstCounter::new(0_u64);
        let mut requests = encoder.encode_descriptor("requests", "Exchanges by outcome", None, zero.metric_type())?;
        for outcome in Outcome::ALL {
            let labels = [("outcome", outcome.squid_code())];
            ConstCounter::new(stats.outcome(outcome)).encode(requests.encode_family(&labels)?)?;
        }
        self.encode_responses(&mut encoder)?;
        times::encode(&mut encoder, &self.workers)?;
        self.site_labels.encode(&mut encoder, &self.workers)?;
        let sums = ExchangeSums::of(&self.workers);
        let help = "Exchanges whose body came from an origin, by reason";
        let misses = MissReason::all().map(|reason| (reason.token(), sums.missed(reason)));
        encode_by_label(&mut encoder, ("misses", help), "reason", misses)?;
        let help = "Responses that were cut off because their remaining bytes were unavailable";
        let broken = BodyError::ALL.into_iter().map(|error| (error.token(), stats.broken[error as usize]));
        encode_by_label(&mut encoder, ("broken_responses", help), "why", broken)?;
        let help = "Fetched files that never change, by the result of the check against a known digest";
        let files = FileCheck::ALL.into_iter().map(|check| (check.token(), stats.files[check as usize]));
        encode_by_label(&mut encoder, ("files", help), "check", files)?;
        let help = "Tunnels to listed hosts that were passed through unread";
        let bypassed = BypassReason::ALL.into_iter().map(|reason| (reason.token(), stats.bypassed[reason as usize]));
        encode_by_label(&mut encoder, ("interception_bypassed", help), "reason", bypassed)?;
        for (name, help, value) in counters(&stats) {
            encode_counter(&mut encoder, name, help, value)?;
        }
        let windows: [Figure; 2] = [
            ("window_bytes", "Bytes in memory of bodies in transfer to clients", stats.window_bytes),
            (
                "window_bytes_max",
                "Limit beyond which fetches without readers pause, in bytes",
                shared.as_ref().map_or(0, |shared| shared.cache.bodies.max_bytes()),
            ),
        ];
        let help = "Version of the program, always 1";
        let one = ConstGauge::new(1_i64);
        let mut build = encoder.encode_descriptor("build_info", help, None, one.metric_type())?;
        one.encode(build.encode_family(&[("version", env!("CARGO_PKG_VERSION"))])?)?;
        if let Some(node) = shared.as_ref().and_then(|shared| shared.config.fleet.node.as_deref()) {
            let mut family =
                encoder.encode_descriptor("node_info", "Name of the node, always 1", None, one.metric_type())?;
            one.encode(family.encode_family(&[("node", node)])?)?;
        }
        for (name, help, value) in gauges(&stats).into_iter().chain(windows) {
            encode_gauge(&mut encoder, name, help, value)?;
        }
        if let Some(shared) = &shared {
            encode_lifetime(&mut encoder, &shared.history.book_at(ClockMoment::now()).kept)?;
            let popular_bytes = self.workers.iter().map(|worker| worker.popular.bytes() as u64).sum();
            encode_memory(&mut encoder, shared, &MemoryParts::of(shared, &stats, popular_bytes))?;
            encode_states(&mut encoder, shared)?;
            health::encode(&mut encoder, shared)?;
            fleet::encode(&mut encoder, shared)?;
            tier::encode(&mut encoder, shared)?;
        }
        if let Some(store) = &self.store {
            store::encode(&mut encoder, &store.stats())?;
        }
        Ok(())
    }
}

/// Encodes the counters of one family, which differ in the value of `label`.
fn encode_by_label<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    label: &str,
    counts: impl Iterator<Item = (&'a str, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (value, count) in counts {
        ConstCounter::new(count).encode(family.encode_family(&[(label, value)])?)?;
    }
    Ok(())
}

/// Encodes the totals since the first start with this store.
fn encode_lifetime(encoder: &mut DescriptorEncoder<'_>, kept: &KeptHistory) -> fmt::Result {
    let ever = &kept.ever;
    let figures: [Figure; 5] = [
        ("lifetime_requests", "Exchanges over all runs with this store", ever.requests()),
        ("lifetime_hits", "Exchanges over all runs whose body came from the cache", ever.hits()),
        ("lifetime_client_bytes", "Body bytes sent to clients over all runs", ever.client_bytes()),
        ("lifetime_origin_bytes", "Body bytes received from origins over all runs", ever.origin_bytes()),
        ("lifetime_saved_bytes", "Body bytes over all runs that came from the cache", ever.hit_bytes()),
    ];
    for (name, help, value) in figures {
        encode_counter(encoder, name, help, value)?;
    }
    let since = u64::try_from(kept.since_s).unwrap_or(0);
    encode_gauge(encoder, "lifetime_start_seconds", "Start of the counts over all runs, in Unix time", since)
}

fn encode_counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let counter = ConstCounter::new(value);
    counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)
}

type Figure = (&'static str, &'static str, u64);

fn counters(stats: &ProxyStats) -> [Figure; 22] {
    let hits = Outcome::ALL.iter().filter(|outcome| outcome.is_hit()).map(|outcome| stats.outcome(*outcome)).sum();
    [
        ("hits", "Exchanges whose body came from the cache", hits),
        ("client_bytes", "Body bytes sent to clients", stats.client_bytes),
        ("saved_bytes", "Body bytes sent to clients that came from the cache", stats.hit_bytes),
        ("origin_bytes", "Body bytes received from origins", stats.origin_bytes),
        ("origin_requests", "Requests sent to origins", stats.origin_requests),
        ("origin_connections", "Connections opened to origins", stats.origin_connections),
        ("origin_failures", "Requests to origins that failed", stats.origin_failures),
        ("origin_waits", "Requests that had to wait for one of their origin's connections", stats.origin_waits),
        ("flights", "Fetches that other clients could join", stats.flights),
        ("collapsed_requests", "Requests that were served by another client's fetch", stats.collapsed),
        ("connections", "Client connections accepted", stats.connections),
        ("connections_refused", "Client connections refused at the limit", stats.connections_refused),
        ("store_errors", "Store errors; each request continued without the store", stats.store_errors),
        ("store_timeouts", "Store operations abandoned because they took too long", stats.store_overdue),
        ("store_bypassed", "Store operations skipped because the store was not responding", stats.store_bypassed),
        ("log_lines_dropped", "Access log lines dropped", stats.log_lines_dropped),
        ("aborted_responses", "Responses that were cut off before their end", stats.aborted),
        (
            "range_fills",
            "Fetches of missing parts of stored bodies, or of bodies that their origin cut off",
            stats.rests_fetched,
        ),
        ("sibling_responses", "Responses of other nodes of the fleet", stats.sibling_answers),
        (
            "sibling_bypasses",
            "Requests that went past the node of the fleet that owns the resource",
            stats.siblings_passed_by,
        ),
        ("sibling_copy_bytes", "Bytes of other nodes' responses that this node stored too", stats.sibling_copy_bytes),
        ("store_aborts", "Responses not stored because the store could not keep up", stats.storing_given_up),
    ]
}

fn gauges(stats: &ProxyStats) -> [Figure; 5] {
    [
        ("connections_open", "Client connections open now", stats.connections_open),
        ("connections_parked", "Idle client connections that take little memory", stats.connections_parked),
        ("exchanges_parked", "Requests that wait for a response and take little memory", stats.exchanges_parked),
        ("memory_cache_entries", "Entries in the memory cache", stats.hot_entries),
        ("memory_cache_bytes", "Bytes used by entries in the memory cache", stats.hot_bytes),
    ]
}

/// Encodes the memory of each part, the total of the process, and its limits.
fn encode_memory(encoder: &mut DescriptorEncoder<'_>, shared: &ProxyState, parts: &MemoryParts) -> fmt::Result {
    let limits: [Figure; 2] = [
        (
            "memory_limit_bytes",
            "Memory limit of the process now, in bytes; 0 without one",
            shared.counts.memory_bytes.load(Relaxed),
        ),
        ("memory_cache_bytes_max", "Limit of the memory cache now, in bytes", shared.cache.hot.capacity_bytes()),
    ];
    for (name, help, value) in limits {
        encode_gauge(encoder, name, help, value)?;
    }
    let help = "Times that the memory limit fell because memory was short on the machine or in a control group";
    encode_counter(encoder, "memory_yields", help, shared.counts.memory_yields.load(Relaxed))?;
    let help = "Bytes of memory by purpose. Connections are an estimate, the \
                index counts as if it were full, and `other` is the remainder of the process";
    let mut family = encoder.encode_descriptor("memory_bytes", help, None, MetricType::Gauge)?;
    for (part, value) in parts.named() {
        let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        gauge.encode(family.encode_family(&[("part", part)])?)?;
    }
    match parts.resident_bytes {
        Some(bytes) => encode_gauge(encoder, "resident_bytes", "Resident memory of the process, in bytes", bytes),
        None => Ok(()),
    }
}

/// Encodes queue lengths and current states.
fn encode_states(encoder: &mut DescriptorEncoder<'_>, shared: &ProxyState) -> fmt::Result {
    let gauges: [Figure; 5] = [
        ("waiting_requests", "Requests that wait for a response", shared.counts.waiting.load(Relaxed) as u64),
        (
            "waiting_requests_max",
            "Most requests that may wait for a response",
            shared.config.limits.waiting_count_max as u64,
        ),
        (
            "offline",
            "1 while Larder is offline, by command or because the uplink is down",
            u64::from(shared.origins.uplink.is_offline()),
        ),
        (
            "offline_missing",
            "URLs that were requested while offline and were not stored",
            shared.missing.count() as u64,
        ),
        (
            "origin_waiting_requests",
            "Requests that wait for one of their origin's connections (limits.origin_connections)",
            shared.origins.rooms.waiting_count() as u64,
        ),
    ];
    let refused_count = shared.cache.pins.refused_count();
    encode_counter(encoder, "pins_refused", "Pinned entries that were refused for lack of room", refused_count)?;
    gauges.into_iter().try_for_each(|(name, help, value)| encode_gauge(encoder, name, help, value))
}

fn encode_gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}
