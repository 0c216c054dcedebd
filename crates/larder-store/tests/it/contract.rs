//! One test suite per trait, run on all its implementations.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod device;
mod directory;
