//! What every other part may name: configuration, errors, time, hosts and addresses, budgets, and bytes on their way.

pub(crate) mod arrivals;
pub(crate) mod cache;
pub(crate) mod clock;
pub(crate) mod config;
pub(crate) mod delays;
pub(crate) mod digest;
pub(crate) mod errors;
pub(crate) mod exchange_budget;
pub(crate) mod fault;
pub(crate) mod file_watcher;
pub(crate) mod forwarded;
pub(crate) mod handed;
pub(crate) mod hosts;
pub(crate) mod http2;
pub(crate) mod linked_body;
pub(crate) mod machine_memory;
pub(crate) mod marks;
pub(crate) mod overload;
pub(crate) mod pace;
pub(crate) mod received_body;
pub(crate) mod target;
pub(crate) mod tls_provider;
pub(crate) mod tokens;
pub(crate) mod unfinished;
pub(crate) mod watch;
