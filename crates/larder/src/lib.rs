//! `larder`: the caching web proxy as a program.
//!
//! This library is the whole program except the binary, which calls [`main`]. It has the command line, the
//! configuration file and the wiring. `larder_proxy` is the proxy, and `larder_store` the storage engine.

#![deny(clippy::print_stdout, clippy::print_stderr)] // They panic; see `output`.

mod admin_client;
mod authority_files;
mod automatic;
mod ca_command;
mod cli;
mod cluster_command;
mod config;
mod control;
mod duration;
mod env_command;
mod exec_command;
mod exec_server;
mod explain_command;
mod failure;
mod files;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "lab")]
mod lab;
mod ls_command;
mod machine;
mod manual_command;
mod memory_plan;
mod mirror_command;
mod mirrors;
mod missing_command;
#[cfg(not(feature = "lab"))]
mod no_lab;
mod offline_command;
mod open_files;
mod output;
mod pack_command;
mod panics;
mod passing;
mod pin_command;
mod private_larder;
mod program;
mod progress;
mod purge_command;
mod reload;
mod reload_command;
mod report;
mod serve_command;
mod service_command;
mod service_manager;
mod settings;
mod signals;
mod size;
mod store_command;
mod store_path;
mod store_server;
#[cfg(feature = "top")]
mod top_command;
mod tuning;
mod upgrade;
mod upgrade_command;
mod url_argument;
mod url_list;
mod value;
mod volumes;
mod warm_command;
mod wiring;

pub use program::main;
