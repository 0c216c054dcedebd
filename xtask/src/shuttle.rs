//! `cargo xtask shuttle`: tries interleavings of threads over the engine's rows (`crates/larder-store/tests/shuttle`).

use crate::cargo;
use std::path::Path;

/// The tests, with locks and atomics that a scheduler rules. They are built apart, lest everything else be built anew.
pub(crate) const ARGUMENTS: [&str; 8] =
    ["test", "--locked", "--package", "larder-store", "--test", "shuttle", "--target-dir", "target/shuttle"];
pub(crate) const ENVIRONMENT: [(&str, &str); 1] = [("RUSTFLAGS", "--cfg shuttle")];

/// Tries so many interleavings of each scene, row and kind of scheduler; whether all kept the law.
pub(crate) fn run(root: &Path, iterations: &str) -> bool {
    cargo::succeeds(root, &ARGUMENTS, &[ENVIRONMENT[0], ("SHUTTLE_ITERATIONS", iterations)])
}
