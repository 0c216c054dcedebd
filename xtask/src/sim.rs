//! `cargo xtask sim`: runs the schedules of `larder-torture`, compiled with optimizations, because they run millions of
//! operations.
//!
//! All arguments are passed on unchanged.

use crate::cargo;
use std::path::Path;

/// Runs `larder-torture` with `arguments`. Returns whether all its schedules passed.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> bool {
    let build = ["run", "--quiet", "--locked", "--profile", "fast", "--package", "larder-torture", "--"];
    cargo::succeeds(root, &[&build, arguments].concat(), &[])
}
