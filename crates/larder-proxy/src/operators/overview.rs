//! The figures of a running proxy in one document for people, as `/overview.json` returns it.
//!
//! Owns: the form of the document. Counting is done elsewhere; the dashboard and `larder top` display it. Invariant:
//! its size is bounded, whatever clients request. Cost: nothing until it is requested.

mod gathering;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The figures of a running proxy, as the dashboard and `larder top` show them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Overview {
    /// The version of Larder.
    pub version: String,
    /// An example command that sends a request through this proxy.
    pub try_with: String,
    /// The time of these figures, in seconds of Unix time.
    pub now_s: i64,
    /// Start of the period that `ever` covers, in seconds of Unix time.
    pub since_s: i64,
    /// Requests in the last minute.
    pub minute: RequestFigures,
    /// Requests since midnight.
    pub today: RequestFigures,
    /// Requests over all runs with this store.
    pub ever: RequestFigures,
    /// Requests of the last minute, one entry per second, oldest first.
    pub by_second: Vec<RequestFigures>,
    /// Requests of the last hour, one entry per minute, oldest first.
    pub by_minute: Vec<RequestFigures>,
    /// Requests of the last day, one entry per quarter of an hour, oldest first.
    pub by_quarter: Vec<RequestFigures>,
    /// Requests of the last days, the latest day first. Days without requests are left out.
    pub by_day: Vec<PeriodFigures>,
    /// Requests of the last months, the latest month first. Months without requests are left out.
    pub by_month: Vec<PeriodFigures>,
    /// Reasons why bodies came from origins today, the most frequent first.
    pub misses_today: Vec<NamedFigure>,
    /// Reasons why bodies came from origins, over all runs with this store, the most frequent first.
    pub misses_ever: Vec<NamedFigure>,
    /// Durations in the last minute, by kind: `hit`, `miss`, `origin` and `disk`.
    pub latencies: Vec<Latency>,
    /// The most requested sites. Counts cover the last 30 to 60 minutes.
    pub sites: Vec<AskedFor>,
    /// Requests for each mirrored package registry since the process started.
    pub registries: Vec<AskedFor>,
    /// The most requested objects, with queries removed. Counts cover the last 30 to 60 minutes.
    pub objects: Vec<AskedFor>,
    /// The volumes of the store.
    pub volumes: Vec<VolumeFigures>,
    /// Memory in use, in bytes, by purpose.
    pub memory: Vec<NamedFigure>,
    /// The state of the uplink.
    pub line: LineState,
    /// The origins of all sites, and whether each receives requests.
    pub origins: Vec<OriginState>,
    /// The certificates presented to clients, and their expiry.
    pub certificates: Vec<Expiry>,
    /// The metrics without labels, by their names in `/metrics`.
    pub metrics: BTreeMap<String, u64>,
}

impl Overview {
    /// Returns the value of a metric without labels, or 0 if there is none with this name.
    pub fn metric(&self, name: &str) -> u64 {
        self.metrics.get(name).copied().unwrap_or(0)
    }
}

/// Requests in a period, by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestFigures {
    /// Requests whose body came from the cache.
    pub hits: u64,
    /// Requests whose body came from an origin.
    pub misses: u64,
    /// Requests that were neither hits nor misses: tunnels, refusals and failures.
    pub others: u64,
    /// Body bytes sent to clients.
    pub client_bytes: u64,
    /// Body bytes received from origins.
    pub origin_bytes: u64,
    /// Body bytes sent to clients that came from the cache.
    pub saved_bytes: u64,
}

/// A count or a size, with the name of what it describes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamedFigure {
    /// The name of what is counted or measured.
    pub name: String,
    /// The count, or the size in bytes.
    pub count: u64,
}

/// The distribution of durations of one kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// The kind of operation, such as `hit`.
    pub name: String,
    /// Number of operations that were measured.
    pub count: u64,
    /// Median duration, in milliseconds.
    pub half_ms: f64,
    /// 99th percentile of the duration, in milliseconds.
    pub p99_ms: f64,
}

/// The requests in one day or month.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeriodFigures {
    /// The day, such as `2026-11-28`, or the month, such as `2026-11`.
    pub period: String,
    /// Requests in that day or month, by result.
    #[serde(flatten)]
    pub counted: RequestFigures,
}

/// The requests for one site or object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AskedFor {
    /// A host, or a URL without its query.
    pub name: String,
    /// Requests for the site or object, by result.
    #[serde(flatten)]
    pub counted: RequestFigures,
    /// Failed requests, which `counted.others` includes.
    pub failed: u64,
}

/// One volume of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeFigures {
    /// The volume's path.
    pub path: String,
    /// The volume's storage policy.
    pub policy: String,
    /// The volume's size in bytes.
    pub size_bytes: u64,
    /// Number of entries in the volume.
    pub entries: u64,
    /// Number of entries of the usual mean size for which the volume has room, on its disk and in its index.
    pub entries_room: u64,
    /// Entries evicted for lack of room since the start.
    pub evicted: u64,
    /// Number of corrupt entries found, each of which was served as a miss.
    pub corrupt: u64,
    /// Number of I/O operations that failed.
    pub io_errors: u64,
    /// Whether the index is loaded completely, so that every entry can be found.
    pub loaded: bool,
    /// Whether the volume is excluded from the store, because it failed.
    pub out: bool,
}

/// The state of the uplink: the offline mode, and whether it is down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LineState {
    /// The offline mode that the operator set: `off`, `auto`, `on` or `on-even-forbidden`.
    pub mode: String,
    /// Whether requests to origins are withheld at present.
    pub offline: bool,
    /// Number of URLs that were requested while offline and were not cached.
    pub missing: u64,
}

/// An origin of a site.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OriginState {
    /// The URL of the origin.
    pub name: String,
    /// Whether the origin receives requests.
    pub up: bool,
}

/// A certificate or token, and when it expires.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Expiry {
    /// The name of the certificate or token.
    pub name: String,
    /// The time of expiry, in seconds of Unix time.
    pub expires_s: i64,
}
