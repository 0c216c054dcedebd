//! What people look at: the figures of a running proxy in one piece, as `/overview.json` has them.
//!
//! Owns: its form. Does not: count, or show it (see `admin`, and `larder top`). Invariant: its size has a bound, whatever clients ask for.
//! Cost: nothing until somebody asks.

mod gathering;

use serde::{Deserialize, Serialize};

/// The figures of a running proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Overview {
    /// The version of the program.
    pub version: String,
    /// A command that asks something through this proxy.
    pub try_with: String,
    /// When this was looked at, in seconds of Unix time.
    pub now_s: i64,
    /// Since when `ever` counts, in seconds of Unix time.
    pub since_s: i64,
    /// What was answered in the last minute.
    pub minute: RequestFigures,
    /// What was answered since midnight.
    pub today: RequestFigures,
    /// What was answered over all runs with this store.
    pub ever: RequestFigures,
    /// The last minute, second by second, the oldest first.
    pub by_second: Vec<RequestFigures>,
    /// The last hour, minute by minute.
    pub by_minute: Vec<RequestFigures>,
    /// The last day, a quarter of an hour each.
    pub by_quarter: Vec<RequestFigures>,
    /// Why bodies came from origins today, most often first.
    pub misses_today: Vec<NamedFigure>,
    /// Why they did over all runs.
    pub misses_ever: Vec<NamedFigure>,
    /// How long things took in the last minute: `hit`, `miss`, `origin`, `disk`.
    pub latencies: Vec<Latency>,
    /// The sites that were asked for most in the last half hour to hour.
    pub sites: Vec<AskedFor>,
    /// The objects that were, without their queries.
    pub objects: Vec<AskedFor>,
    /// The volumes of the store.
    pub volumes: Vec<VolumeFigures>,
    /// Entries in the hot tier of memory.
    pub hot_entries: u64,
    /// Bytes of memory by what they are for.
    pub memory: Vec<NamedFigure>,
    /// Whether origins are asked.
    pub line: LineState,
    /// The origins of sites.
    pub origins: Vec<OriginState>,
    /// The certificates that clients are shown, and when they end in seconds of Unix time.
    pub certificates: Vec<Expiry>,
    /// Client connections that are open.
    pub connections: u64,
    /// Requests that wait for an answer.
    pub waiting: u64,
    /// Lines of the access log that were dropped.
    pub log_lines_dropped: u64,
}

/// What was answered in some time.
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

/// So much of something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamedFigure {
    /// Its name.
    pub name: String,
    /// How often it was so, or how many bytes it takes.
    pub count: u64,
}

/// How long something took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// What it was.
    pub name: String,
    /// How often it was.
    pub count: u64,
    /// What half of them took at most, in milliseconds.
    pub half_ms: f64,
    /// What 99 of 100 took at most.
    pub p99_ms: f64,
}

/// How often something was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AskedFor {
    /// A host, or a URL.
    pub name: String,
    /// What was answered.
    #[serde(flatten)]
    pub counted: RequestFigures,
}

/// A volume of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeFigures {
    /// Where it is.
    pub path: String,
    /// Its storage policy.
    pub policy: String,
    /// Its size.
    pub size_bytes: u64,
    /// Entries in it.
    pub entries: u64,
    /// Entries that it has room for.
    pub entries_max: u64,
    /// Entries that went for want of room since the start.
    pub evicted: u64,
    /// Damaged entries that were met, each a miss.
    pub corrupt: u64,
    /// Transfers that failed.
    pub io_errors: u64,
    /// Whether everything on it can be found again.
    pub loaded: bool,
    /// Whether it was taken out because it failed.
    pub out: bool,
}

/// Whether origins are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LineState {
    /// What the operator says: `off`, `auto`, `on` or `on-even-forbidden`.
    pub mode: String,
    /// Whether origins are not asked now.
    pub offline: bool,
    /// URLs that were asked for meanwhile and not there.
    pub missing: u64,
}

/// An origin of a site.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OriginState {
    /// Its address.
    pub name: String,
    /// Whether it is asked.
    pub up: bool,
}

/// When something ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Expiry {
    /// What.
    pub name: String,
    /// When, in seconds of Unix time.
    pub expires_s: i64,
}
