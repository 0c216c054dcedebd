//! Runs the cargo that runs this program.

use std::{env, path::Path, process::Command};

/// Returns whether cargo exits with 0 in the workspace at `root`.
pub(crate) fn succeeds(root: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> bool {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(arguments).envs(environment.iter().copied());
    match command.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("xtask: cannot run cargo: {error}");
            false
        }
    }
}
