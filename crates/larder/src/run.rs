//! A running proxy: its start from settings, its control socket, signals, reloads, upgrades and end.
//!
//! These modules may use `settings` and `ground`, but no module of `commands`.

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
