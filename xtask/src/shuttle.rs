//! `cargo xtask shuttle`: runs the engine's policies under many interleavings of threads
//! (`crates/larder-store/tests/shuttle`).

use crate::cargo;
use std::path::Path;

/// Arguments for the tests, whose locks and atomics are controlled by a scheduler.
pub(crate) const ARGUMENTS: [&str; 8] =
    ["test", "--locked", "--package", "larder-store", "--features", "shuttle", "--test", "shuttle"];

/// Runs `iterations` interleavings of each scene, policy and kind of scheduler. Returns whether all tests passed.
pub(crate) fn run(root: &Path, iterations: &str) -> bool {
    cargo::succeeds(root, &ARGUMENTS, &[("SHUTTLE_ITERATIONS", iterations)])
}
