//! A running proxy: its start from settings, its control socket, signals, reloads, upgrades and end.
//!
//! It may use `settings` and `ground`, and knows no command.

pub(crate) mod automatic;
pub(crate) mod control;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub(crate) mod passing;
pub(crate) mod reload;
pub(crate) mod report;
pub(crate) mod service_manager;
pub(crate) mod signals;
pub(crate) mod store_server;
pub(crate) mod upgrade;
pub(crate) mod wiring;
