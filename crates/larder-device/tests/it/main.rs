//! The contracts of devices and directories, checked on every implementation.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod device;
mod directory;
#[cfg(target_os = "linux")]
mod runtime;
