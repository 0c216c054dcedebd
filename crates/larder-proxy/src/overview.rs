//! The metrics of a running proxy in one document for people, as `/overview.json` returns it.
//!
//! Owns: its form. Counting is done elsewhere; `admin` and `larder top` display it. Invariant: its size is bounded,
//! whatever clients request. Cost: only when it is requested.

mod gathering;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The figures of a running proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Overview {
    /// The version of the program.
    pub version: String,
    /// A command that sends a request through this proxy.
    pub try_with: String,
    /// Time of this overview, in seconds of Unix time.
    pub now_s: i64,
    /// Start of the period of `ever`, in seconds of Unix time.
    pub since_s: i64,
    /// Requests in the last minute.
    pub minute: RequestFigures,
    /// Requests since midnight.
    pub today: RequestFigures,
    /// Requests over all runs with this store.
    pub ever: RequestFigures,
    /// The last minute, one entry per second, the oldest first.
    pub by_second: Vec<RequestFigures>,
    /// The last hour, one entry per minute.
    pub by_minute: Vec<RequestFigures>,
    /// The last day, one entry per quarter of an hour.
    pub by_quarter: Vec<RequestFigures>,
    /// The last days that had requests, the latest first.
    pub by_day: Vec<PeriodFigures>,
    /// The last months that had requests, the latest first.
    pub by_month: Vec<PeriodFigures>,
    /// Reasons why bodies came from origins today, the most frequent first.
    pub misses_today: Vec<NamedFigure>,
    /// Reasons of misses over all runs.
    pub misses_ever: Vec<NamedFigure>,
    /// Durations in the last minute: `hit`, `miss`, `origin`, `disk`.
    pub latencies: Vec<Latency>,
    /// The most requested sites of the last half hour to hour.
    pub sites: Vec<AskedFor>,
    /// The mirrored package registries, since the process began.
    pub registries: Vec<AskedFor>,
    /// The most requested objects of the last half hour to hour, without their queries.
    pub objects: Vec<AskedFor>,
    /// The volumes of the store.
    pub volumes: Vec<VolumeFigures>,
    /// Bytes of memory by purpose.
    pub memory: Vec<NamedFigure>,
    /// The state of the uplink.
    pub line: LineState,
    /// The origins of sites.
    pub origins: Vec<OriginState>,
    /// The certificates presented to clients, and when they expire.
    pub certificates: Vec<Expiry>,
    /// The metrics without labels, under their names in `/metrics`.
    pub metrics: BTreeMap<String, u64>,
}

impl Overview {
    /// Returns the value of a metric without labels; 0 if there is none of this name.
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
    /// Tunnels, refusals and failures.
    pub others: u64,
    /// Body bytes sent to clients.
    pub client_bytes: u64,
    /// Body bytes received from origins.
    pub origin_bytes: u64,
    /// Body bytes sent to clients that came from the cache.
    pub saved_bytes: u64,
}

/// A named number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamedFigure {
    /// The name.
    pub name: String,
    /// The count, or the size in bytes.
    pub count: u64,
}

/// The durations of one kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// The kind of operation.
    pub name: String,
    /// Number of operations.
    pub count: u64,
    /// Median duration in milliseconds.
    pub half_ms: f64,
    /// 99th percentile of the duration.
    pub p99_ms: f64,
}

/// The requests in one day or month.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeriodFigures {
    /// The day, such as `2026-11-28`, or the month, such as `2026-11`.
    pub period: String,
    /// The requests and their results.
    #[serde(flatten)]
    pub counted: RequestFigures,
}

/// The requests for one site or object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AskedFor {
    /// A host, or a URL.
    pub name: String,
    /// The requests and their results.
    #[serde(flatten)]
    pub counted: RequestFigures,
    /// Failed requests, which are among the others.
    pub failed: u64,
}

/// A volume of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeFigures {
    /// The volume's path.
    pub path: String,
    /// The volume's storage policy.
    pub policy: String,
    /// The volume's size in bytes.
    pub size_bytes: u64,
    /// Entries in the volume.
    pub entries: u64,
    /// Number of entries of the usual mean size that fit, or fewer if the index has no room for them.
    pub entries_room: u64,
    /// Entries evicted for lack of room since the start.
    pub evicted: u64,
    /// Corrupt entries found, each served as a miss.
    pub corrupt: u64,
    /// I/O operations that failed.
    pub io_errors: u64,
    /// Whether the index is loaded, so that every entry can be found.
    pub loaded: bool,
    /// Whether the volume was taken out of use because it failed.
    pub out: bool,
}

/// The state of the uplink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LineState {
    /// The mode set by the operator: `off`, `auto`, `on` or `on-even-forbidden`.
    pub mode: String,
    /// Whether origins are not contacted at the moment.
    pub offline: bool,
    /// URLs that were requested while offline and were not cached.
    pub missing: u64,
}

/// An origin of a site.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OriginState {
    /// The origin's address.
    pub name: String,
    /// Whether requests are sent to the origin.
    pub up: bool,
}

/// A certificate or token that expires.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Expiry {
    /// The name of the certificate or token.
    pub name: String,
    /// The time of expiry, in seconds of Unix time.
    pub expires_s: i64,
}
