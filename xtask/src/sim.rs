//! `cargo xtask sim`: runs the schedules of `larder-torture`, built fast enough for millions of operations.
//!
//! Does not: know what a schedule is; all arguments go through.

use crate::cargo;
use std::path::Path;

/// Runs schedules; whether all kept the law.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> bool {
    let build = ["run", "--quiet", "--locked", "--profile", "fast", "--package", "larder-torture", "--"];
    cargo::succeeds(root, &[&build, arguments].concat(), &[])
}
