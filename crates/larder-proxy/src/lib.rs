//! The caching proxy: sockets, exchanges, flights, origins, ranges, metrics, access log.
//!
//! [`Proxy::start`] opens the listeners and starts one worker thread per core, each with its own runtime and sockets.
//! [`RunningProxy::shutdown`] drains and ends them. The first of these ways that can answer a request is used:
//!
//! | way | module | cost of a small hit or miss |
//! |---|---|---|
//! | from memory, within the call | `request::memory`, `cache::hot` | one key, one map of fields |
//! | from the store | `request::serve`, `larder_cache::http::answer` | one device read |
//! | by a flight, shared with other requests | `larder_cache::http::fetch` | one origin request, one commit |
//! | passed on as it is | `request::pass` | one origin request |
//! | as a tunnel | `request::tunnel`, `request::upgrade` | two copies |
//!
//! Layers, from top to bottom: `server`, `client`, `request`, `fetcher`, then `cache` and `origin`, and finally shared
//! modules such as `config`, `errors`, `metrics` and `watch`. A layer may use only the layers below it. `cache` and
//! `origin` take plain values and own their state; a worker has one of each.
//!
//! `larder_http` has the caching rules as pure functions, and `larder_store` is the storage engine.

mod access_log;
mod admin;
mod admin_tokens;
mod arrivals;
mod asked;
mod authority;
mod body;
mod build_caches;
mod cache;
mod client;
mod clock;
mod config;
mod delays;
mod digest;
mod dots;
mod encoder;
mod errors;
mod exchange_budget;
mod exposition;
mod fetcher;
mod file_watcher;
mod fleet;
mod forwarded;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod git;
mod history;
mod http2;
mod links;
mod listings;
mod lists;
mod log_format;
mod machine_memory;
mod marks;
mod metrics;
mod mirrors;
mod missing;
mod origin;
mod outcome;
mod overload;
mod overview;
mod pace;
mod pack;
mod popular;
mod query_log;
mod readiness;
mod received_body;
mod registries;
mod request;
mod routes;
mod server;
mod session;
mod shared;
mod siblings;
mod site_figures;
mod times;
mod tls_provider;
mod tokens;
mod unfinished;
mod watch;
mod worker;

use larder_cache::http::body_budget;

pub use authority::Authority;
pub use client::handed::ClientConnection;
pub use client::intercept::bypass::BypassReason;
pub use config::{
    AccessLogTarget, Balance, BuildCache, CacheSettings, ClientField, Direct, DirectFallback, Fleet, FleetName,
    FleetNode, GroupRules, HostPattern, HostRules, HostSent, Intercept, InvalidFleetNode, InvalidHostPattern,
    InvalidOriginUrl, InvalidParent, InvalidSharedLog, Limits, Listener, LocalWriters, LogSystem, Mirror, MirrorLink,
    NodeTls, Offline, OriginUrl, Origins, PackageIndex, Parent, Parents, ProxyConfig, RateLimit, RateSharing,
    SharedLog, Site, SiteLimits, SitePolicy, TargetRules, TierBucket, TierConfig, TlsIdentity,
};
pub use lists::HostLists;
pub use log_format::{InvalidLogFormat, LogFormat};
pub use machine_memory::{MachineMemory, MemoryLevel};
pub use metrics::ProxyStats;
pub use missing::{MissingResource, clear_missed, read_missed};
pub use outcome::Outcome;
pub use overload::Shortage;
pub use overview::{
    AskedFor, Expiry, Latency, LineState, NamedFigure, OriginState, Overview, PeriodFigures, RequestFigures,
    VolumeFigures,
};
pub use pace::{Bucket, Pace};
pub use routes::origins_of;
pub use server::{
    Proxy, ProxyHandle, RunningProxy,
    leaving::{Handover, ListeningSocket, RemainingWork},
    reload::{NeedsRestart, ReloadOutcome},
};
pub use session::{Session, SessionOptions, SessionStats};
pub use times::TimeCounts;
pub use worker::CONNECTIONS_SHARE;
