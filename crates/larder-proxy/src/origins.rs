//! Access to origins: names, addresses, rules, connections, and the bodies that arrive on them.
//!
//! The road may name what this file exports, and the modules `access`, `ask`, `body`, `fetcher` and `request_body`. The
//! other modules are the insides of this folder (`cargo xtask tidy`).

pub(crate) mod access;
pub(crate) mod ask;
mod attempt;
pub(crate) mod body;
pub(crate) mod certificate_askers;
pub(crate) mod checks;
pub(crate) mod complaints;
pub(crate) mod connect;
pub(crate) mod dns;
pub(crate) mod expectation;
pub(crate) mod fetcher;
pub(crate) mod group;
pub(crate) mod hosts_file;
pub(crate) mod http1;
pub(crate) mod other_protocol;
mod parent;
pub(crate) mod pool;
pub(crate) mod proxy_header;
pub(crate) mod request_body;
pub(crate) mod room;
pub(crate) mod sending;
pub(crate) mod shared;
pub(crate) mod stream;
pub(crate) mod survivors;
pub(crate) mod tls;
pub(crate) mod uplink;
pub(crate) mod ways;

pub(crate) use self::{
    connect::{check_way, open_by_a_way},
    http1::{InterimTaker, SwitchedStream},
    other_protocol::accepted_key,
    pool::{AskingClient, ReplayableRequest, RetryRule},
    proxy_header::ClientEnds,
    stream::OriginStream,
};
