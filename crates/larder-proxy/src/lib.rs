//! The caching proxy: sockets, exchanges, flights, origins, ranges, metrics, access log.
//!
//! [`Proxy::start`] opens the listeners and starts one worker thread per core, each with a runtime and
//! sockets of its own; [`RunningProxy::shutdown`] drains and ends them. A request takes the first of these
//! ways that answers it:
//!
//! | way | module | cost of a small hit or miss |
//! |---|---|---|
//! | from memory, within the call | `exchange`, `cache::hot`, `cache::hit` | one key, one map of fields |
//! | from the store | `serve`, `cache::lookup`, `cache::chunks` | one device read |
//! | by a flight, shared with all who ask | `share`, `flight` | one origin request, one commit |
//! | passed on as it is | `pass` | one origin request |
//! | as a tunnel | `tunnel`, `upgrade` | two copies |
//!
//! The caching rules themselves are in `larder_http`, as pure functions; storing is `larder_store`'s.

mod access_log;
mod admin;
mod admission;
mod asked;
mod cache;
mod change;
mod client;
mod clock;
mod config;
mod errors;
mod exchange;
mod explain;
mod exposition;
mod final_recipient;
mod flight;
mod forwarded;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod hit;
mod marks;
mod metrics;
mod origin;
mod outcome;
mod pass;
mod refusal;
mod routes;
mod serve;
mod served;
mod server;
mod share;
mod shared;
mod tunnel;
mod unfinished;
mod upgrade;
mod watch;
mod worker;

pub use config::{
    AccessLogTarget, Balance, InvalidOriginUrl, Limits, Listener, OriginUrl, Origins, ProxyConfig, Site, TargetRules,
    TlsIdentity,
};
pub use exposition::ProxyStats;
pub use outcome::Outcome;
pub use server::{Proxy, ProxyHandle, RunningProxy};
