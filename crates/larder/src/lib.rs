//! `larder`: the caching web proxy as a program.
//!
//! This library is the whole program except the binary, which calls [`main`]. It has the command line, the
//! configuration file and the wiring. `larder_proxy` is the proxy, and `larder_store` the storage engine.

#![deny(clippy::print_stdout, clippy::print_stderr)] // They panic; see `ground::output`.

mod commands;
mod ground;
mod run;
mod settings;

pub use commands::program::main;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub use run::fuzzing;
