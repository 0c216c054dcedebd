//! `cargo xtask sim`: runs the schedules of `larder-torture`, built fast enough for millions of operations.
//!
//! Does not: know what a schedule is; all arguments go through.

use std::{env, path::Path, process::Command};

/// Runs schedules; whether all kept the law.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> bool {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(["run", "--quiet", "--locked", "--profile", "fast", "--package", "larder-torture"]);
    match command.arg("--").args(arguments).status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("sim: cannot run cargo: {error}");
            false
        }
    }
}
