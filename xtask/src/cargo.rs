//! Runs the cargo that runs this program.

use std::{env, path::Path, process::Command};

/// Returns whether cargo has the subcommand `name`, such as `deny` of cargo-deny.
pub(crate) fn has_command(root: &Path, name: &str) -> bool {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let asked = Command::new(cargo).args([name, "--version"]).current_dir(root).output();
    asked.is_ok_and(|output| output.status.success())
}

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
