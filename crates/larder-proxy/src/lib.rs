//! The caching proxy: sockets, exchanges, flights, origins, ranges, metrics, access log.
//!
//! [`Proxy::start`] opens the listeners and starts one worker thread per core, each with its own runtime and sockets.
//! [`RunningProxy::shutdown`] drains and ends them. The first of these ways that can answer a request is used:
//!
//! | way | module | cost of a small hit or miss |
//! |---|---|---|
//! | from memory, within the call | `road::memory`, `ground::cache::hot` | one key, one map of fields |
//! | from the store | `road::serve`, `larder_cache::http::answer` | one device read |
//! | by a flight, shared with other requests | `larder_cache::http::fetch` | one origin request, one commit |
//! | passed on as it is | `road::pass` | one origin request |
//! | as a tunnel | `road::tunnel`, `road::upgrade` | two copies |
//!
//! Layers, from top to bottom: `server`, `client`, `request`, `fetcher`, then `cache` and `origin`, and finally shared
//! modules such as `config`, `errors`, `metrics` and `watch`. A layer may use only the layers below it. `cache` and
//! `origin` take plain values and own their state; a worker has one of each.
//!
//! `larder_http` has the caching rules as pure functions, and `larder_store` is the storage engine.

mod door;
mod figures;
mod fleet;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod ground;
mod operators;
mod origins;
mod road;
mod run;
mod targets;

pub use figures::log_format::{InvalidLogFormat, LogFormat};
pub use figures::metrics::ProxyStats;
pub use figures::outcome::Outcome;
pub use figures::times::TimeCounts;
pub use ground::config::{
    AccessLogTarget, Balance, BuildCache, CacheSettings, ClientField, Direct, DirectFallback, Fleet, FleetName,
    FleetNode, GroupRules, HostPattern, HostRules, HostSent, Intercept, InvalidFleetNode, InvalidHostPattern,
    InvalidOriginUrl, InvalidParent, InvalidSharedLog, Limits, Listener, LocalWriters, LogSystem, Mirror, MirrorLink,
    NodeTls, Offline, OriginUrl, Origins, PackageIndex, Parent, Parents, ProxyConfig, RateLimit, RateSharing,
    SharedLog, Site, SiteLimits, SitePolicy, TargetRules, TierBucket, TierConfig, TlsIdentity,
};
pub use ground::handed::ClientConnection;
pub use ground::machine_memory::{MachineMemory, MemoryLevel};
pub use ground::overload::Shortage;
pub use ground::pace::{Bucket, Pace};
pub use operators::missing::{MissingResource, clear_missed, read_missed};
pub use operators::overview::{
    AskedFor, Expiry, Latency, LineState, NamedFigure, OriginState, Overview, PeriodFigures, RequestFigures,
    VolumeFigures,
};
pub use road::client::session::{Session, SessionOptions, SessionStats};
pub use run::worker::CONNECTIONS_SHARE;
pub use run::{
    Proxy, ProxyHandle, RunningProxy,
    leaving::{Handover, ListeningSocket, RemainingWork},
    reload::{NeedsRestart, ReloadOutcome},
};
pub use targets::authority::Authority;
pub use targets::intercept::bypass::BypassReason;
pub use targets::lists::HostLists;
pub use targets::routes::origins_of;
