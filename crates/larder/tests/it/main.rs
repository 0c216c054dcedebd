//! The program as a process: its output, refusals, responses and stored data. Loopback only; no sleeps: a test waits
//! for a line, a response or an exit.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod authority;
mod bench;
mod build_cache;
mod cluster;
mod control;
mod documents;
mod errors;
mod exec;
mod explaining;
mod fleet;
mod help;
mod manual;
mod memory;
mod offline;
mod origin;
mod output;
mod package;
mod packs;
mod pins;
mod planning;
mod platform;
#[path = "../../../larder-proxy/tests/it/support/ports.rs"]
mod ports;
mod process;
mod purging;
mod refusals;
mod reloading;
mod resuming;
mod service;
mod serving;
mod stopping;
mod store;
mod store_server;
mod top;
mod upgrading;
