//! `cargo xtask shuttle`: tries interleavings of threads over the engine's rows (`crates/larder-store/tests/shuttle`).

use crate::cargo;
use std::path::Path;

/// The tests, with locks and atomics that a scheduler rules.
pub(crate) const ARGUMENTS: [&str; 8] =
    ["test", "--locked", "--package", "larder-store", "--features", "shuttle", "--test", "shuttle"];

/// Tries `iterations` interleavings of each scene, policy and kind of scheduler, and returns whether all kept the law.
pub(crate) fn run(root: &Path, iterations: &str) -> bool {
    cargo::succeeds(root, &ARGUMENTS, &[("SHUTTLE_ITERATIONS", iterations)])
}
