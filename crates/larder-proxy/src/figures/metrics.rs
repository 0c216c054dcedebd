//! Counters, one set per worker.
//!
//! Owns: the table of what workers count. Its rows make the counters, their sums and their metrics. `exposition` reads
//! them. Invariant: only the worker's own thread writes its counters, so an increment is a load and a store without a
//! locked instruction. Readers may see a value one event old.

pub(crate) mod family;

use std::{
    array,
    ops::Deref,
    slice,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use http::StatusCode;

use self::family::{MetricFamily, MetricKind, all_combinations};
use crate::{
    figures::{
        outcome::{MissReason, Outcome, OutcomeKind},
        site_figures::SiteFigures,
        times::{Histogram, TimeCounts},
    },
    ground::{
        cache::{BodyError, StoreEvent},
        overload::Shortage,
    },
    operators::{
        popular::{PopularityCounter, PopularitySubject},
        query_log::QueryLog,
    },
    targets::intercept::bypass::BypassReason,
};

/// A number that only one thread writes, and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `count` to the counter. Only the thread that owns the counter may call this.
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    /// Sets the counter to `value`. Only the thread that owns the counter may call this.
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Subtracts `count` from the counter. Only the thread that owns the counter may call this.
    pub(crate) fn take(&self, count: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(count), Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counts an item, such as an open connection, until the guard is dropped.
pub(crate) struct CountGuard {
    metrics: Arc<WorkerMetrics>,
    counter: fn(&WorkerMetrics) -> &Counter,
}

impl CountGuard {
    /// Counts one item until the guard is dropped. Only the worker's own thread may call this.
    pub(crate) fn begin(metrics: &Arc<WorkerMetrics>, counter: fn(&WorkerMetrics) -> &Counter) -> Self {
        counter(metrics).add(1);
        Self { metrics: Arc::clone(metrics), counter }
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        (self.counter)(&self.metrics).take(1);
    }
}

/// A fixed number of counters, one for each value of a label.
#[derive(Debug)]
pub(crate) struct CounterRow<const COUNT: usize, Cell = Counter>([Cell; COUNT]);

impl<const COUNT: usize, Cell: Default> Default for CounterRow<COUNT, Cell> {
    fn default() -> Self {
        Self(array::from_fn(|_| Cell::default()))
    }
}

impl<const COUNT: usize, Cell> Deref for CounterRow<COUNT, Cell> {
    type Target = [Cell; COUNT];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Expands to the type of a worker's counter: one number, or one for each combination of its labels' values.
macro_rules! cell {
    (Histogram) => { Histogram };
    ($kind:ident) => { Counter };
    ($kind:ident $($values:ident)+) => { CounterRow<{ 1 $(* $values::ALL.len())+ }, cell!($kind)> };
}

/// Expands to the type of a counter's sum over all workers.
macro_rules! sum {
    (Histogram) => { TimeCounts };
    ($kind:ident) => { u64 };
    ($kind:ident $($values:ident)+) => { [sum!($kind); 1 $(* $values::ALL.len())+] };
}

macro_rules! add_up {
    ($workers:ident.$name:ident) => {
        $workers.iter().map(|worker| worker.$name.value()).sum()
    };
    ($workers:ident.$name:ident $($values:ident)+) => {
        array::from_fn(|at| $workers.iter().map(|worker| worker.$name[at].value()).sum())
    };
}

macro_rules! values_of {
    ($stats:ident.$name:ident) => {
        slice::from_ref(&$stats.$name)
    };
    ($stats:ident.$name:ident $($values:ident)+) => {
        &$stats.$name
    };
}

/// Defines the counters of a worker, their sums and their metrics, from one table.
///
/// A row has the metric's help, name and kind. For each label it has the name, the enum of its values, and the function
/// that names a value.
macro_rules! counters {
    ($($(#[doc = $help:literal])+ $name:ident: $kind:ident
        $(by $($label:ident = $values:ident::$token:ident)&+)?;)+) => {
        /// The counters of one worker.
        #[derive(Debug, Default)]
        pub(crate) struct WorkerMetrics {
            $($(#[doc = $help])+ pub(crate) $name: cell!($kind $($($values)+)?),)+
            /// Open tunnels, each of which also counts as a connection.
            pub(crate) tunnels_open: Counter,
            /// Open connections that the next process definitely or possibly cannot continue.
            pub(crate) connections_unmovable: Counter,
            /// 1 after the worker has stopped accepting connections and notified the open ones, otherwise 0.
            pub(crate) has_left: Counter,
            /// Requests that may change something at their origin and whose invalidation is not complete yet.
            pub(crate) changes_open: Counter,
            pub(crate) popular: PopularityCounter,
            pub(crate) queries: QueryLog,
            pub(crate) sites: SiteFigures,
        }

        /// The counters and gauges of a running proxy since its start, over all workers.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct ProxyStats {
            $($(#[doc = $help])+ pub $name: sum!($kind $($($values)+)?),)+
            /// Number of entries in the memory cache.
            pub memory_cache_entries: u64,
            /// Size of the entries in the memory cache, in bytes.
            pub memory_cache_bytes: u64,
            /// Bytes of bodies that are in transfer to clients.
            pub window_bytes: u64,
        }

        impl ProxyStats {
            /// Sums the workers' counters. The fields that no worker counts (memory cache, bodies in transfer) stay 0.
            pub(crate) fn sum(workers: &[Arc<WorkerMetrics>]) -> Self {
                Self {
                    $($name: add_up!(workers.$name $($($values)+)?),)+
                    memory_cache_entries: 0,
                    memory_cache_bytes: 0,
                    window_bytes: 0,
                }
            }

            /// Returns all metrics of the table.
            pub(crate) fn metrics(&self) -> Vec<MetricFamily> {
                vec![$(MetricFamily {
                    name: concat!("larder_", stringify!($name)).to_owned(),
                    kind: MetricKind::$kind,
                    labels: &[$($(stringify!($label)),+)?],
                    help: concat!($($help),+).trim_matches([' ', '.']),
                    series: all_combinations(
                        &[$($(&$values::ALL.map($values::$token)),+)?],
                        values_of!(self.$name $($($values)+)?),
                    ),
                }),+]
            }
        }
    };
}

counters! {
    /// Exchanges by outcome.
    requests: Counter by outcome = Outcome::squid_code;
    /// Finished exchanges, by result and by class of status.
    responses: Counter by result = OutcomeKind::token & status = StatusClass::token;
    /// Exchanges whose body came from an origin, by reason.
    misses: Counter by reason = MissReason::token;
    /// Body bytes sent to clients.
    client_bytes: Counter;
    /// Body bytes sent to clients that came from the cache.
    saved_bytes: Counter;
    /// Body bytes received from origins.
    origin_bytes: Counter;
    /// Requests sent to origins.
    origin_requests: Counter;
    /// Connections opened to origins.
    origin_connections: Counter;
    /// Requests to origins that failed.
    origin_failures: Counter;
    /// Requests that had to wait for one of their origin's connections.
    origin_waits: Counter;
    /// Fetches that other clients could join.
    flights: Counter;
    /// Requests that were served by another client's fetch.
    collapsed_requests: Counter;
    /// Client connections accepted.
    connections: Counter;
    /// Client connections open now.
    connections_open: Gauge;
    /// Idle client connections that take little memory.
    connections_parked: Gauge;
    /// Requests that wait for a response and take little memory.
    exchanges_parked: Gauge;
    /// Client connections and requests refused for lack of room, by reason.
    refused: Counter by reason = Shortage::token;
    /// Tunnels to hosts listed for interception that were passed through unread.
    interception_bypassed: Counter by reason = BypassReason::token;
    /// Store errors; each request continued without the store.
    store_errors: Counter;
    /// Store operations abandoned because they took too long.
    store_timeouts: Counter;
    /// Store operations skipped because the store was not responding.
    store_bypassed: Counter;
    /// Responses not stored because the store could not keep up.
    store_aborts: Counter;
    /// Responses that were cut off before their end.
    aborted_responses: Counter;
    /// Responses that were cut off because their remaining bytes were unavailable.
    broken_responses: Counter by reason = BodyError::token;
    /// Fetches of missing parts of stored bodies, or of bodies that their origin cut off.
    range_fills: Counter;
    /// Responses that this node got from other nodes of the fleet.
    sibling_responses: Counter;
    /// Requests that bypassed the node of the fleet that owns the resource, because it failed or did not respond.
    sibling_bypasses: Counter;
    /// Bytes of responses that this node stored although another node also stores them.
    sibling_copy_bytes: Counter;
    /// Fetched files that never change, by the result of the check against a known digest.
    files: Counter by result = FileCheck::token;
    /// Access log lines dropped.
    log_lines_dropped: Counter;
    /// Time from a request's head to the head of its response.
    first_byte_seconds: Histogram by result = OutcomeKind::token;
    /// Time from a request's head to the end of its response.
    response_seconds: Histogram by result = OutcomeKind::token;
    /// Time from a request to an origin to the head of its response, including connecting and waiting for a connection.
    origin_first_byte_seconds: Histogram;
    /// Duration of store reads that waited for the disk.
    store_read_seconds: Histogram;
}

impl WorkerMetrics {
    /// Counts an event that the cache reports about the store.
    pub(crate) fn note_store(&self, event: StoreEvent) {
        match event {
            StoreEvent::Failed => self.store_errors.add(1),
            StoreEvent::TooSlow => self.store_timeouts.add(1),
            StoreEvent::Bypassed => self.store_bypassed.add(1),
            StoreEvent::Read(duration) => self.store_read_seconds.note(duration),
        }
    }
}

impl ProxyStats {
    /// Returns the number of exchanges with this outcome.
    pub fn outcome(&self, outcome: Outcome) -> u64 {
        self.requests[outcome as usize]
    }

    /// Returns the number of all exchanges.
    pub fn requests(&self) -> u64 {
        self.requests.iter().sum()
    }

    /// Returns the number of exchanges whose body came from the cache.
    pub fn hits(&self) -> u64 {
        Outcome::ALL.into_iter().filter(|outcome| outcome.is_hit()).map(|outcome| self.outcome(outcome)).sum()
    }
}

/// Whether a fetched file has the digest that is known for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileCheck {
    /// The file has the digest that its URL or a stored listing names.
    Verified,
    /// No digest is known, so the file was stored unchecked.
    Unverified,
    /// The body does not have the digest that its URL, a stored listing or its origin names. It is not stored.
    Mismatched,
}

impl FileCheck {
    pub(crate) const ALL: [Self; 3] = [Self::Verified, Self::Unverified, Self::Mismatched];

    /// Returns the label value in metrics that stands for this result.
    pub(crate) const fn token(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Unverified => "unverified",
            Self::Mismatched => "mismatched",
        }
    }
}

/// The class of a status code, such as 2xx.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusClass {
    Interim,
    Success,
    Redirect,
    ClientError,
    ServerError,
}

impl StatusClass {
    pub(crate) const ALL: [Self; 5] =
        [Self::Interim, Self::Success, Self::Redirect, Self::ClientError, Self::ServerError];

    fn of(status: StatusCode) -> Self {
        Self::ALL[usize::from(status.as_u16() / 100).clamp(1, Self::ALL.len()) - 1]
    }

    /// Returns the label value in metrics that stands for this class.
    pub(crate) const fn token(self) -> &'static str {
        ["1xx", "2xx", "3xx", "4xx", "5xx"][self as usize]
    }
}

/// Facts about an exchange that has ended, to be counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExchangeSummary {
    pub(crate) outcome: Outcome,
    pub(crate) status: StatusCode,
    pub(crate) subject: Option<PopularitySubject>,
    pub(crate) sent_bytes: u64,
}

impl WorkerMetrics {
    pub(crate) fn count(&self, outcome: Outcome) {
        self.requests[outcome as usize].add(1);
    }

    /// Counts an exchange that has ended, under its outcome, status class, site and resource.
    pub(crate) fn settle(&self, exchange: &ExchangeSummary) {
        let ExchangeSummary { outcome, status, subject, sent_bytes } = *exchange;
        let class = StatusClass::of(status) as usize;
        self.responses[outcome.kind() as usize * StatusClass::ALL.len() + class].add(1);
        self.client_bytes.add(sent_bytes);
        if outcome.is_hit() {
            self.saved_bytes.add(sent_bytes);
        }
        if let Some(subject) = subject {
            self.popular.note(subject, outcome, sent_bytes);
            self.sites.note(subject.label, outcome, sent_bytes);
        }
    }
}
