//! `larder reload`: makes a running proxy read its configuration again.
//!
//! Owns: the command. The proxy reads the configuration with the flags with which it was started. Invariant: the exit
//! code is 0 only if the configuration is in force.

use crate::{
    ground::{failure::Failure, output},
    run::control::{ControlAnswer, ControlPath, ControlRequest},
};
use clap::Args;

const EXAMPLES: &str = "\
The running proxy takes over listeners, sites, mirrors, rules, limits, certificates, passwords, lists, \
logs and memory sizes without closing a connection, and names the changes that need a restart. An \
invalid file changes nothing; the error gives the place. SIGHUP does the same and reports on the proxy's \
standard error.

Examples:
  larder config check /etc/larder/larder.toml
  larder reload";

/// The flags of `larder reload`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReloadFlags {}

/// Runs `larder reload`.
///
/// # Errors
/// No Larder of this user runs, or its configuration is invalid.
pub(crate) fn run(_: &ReloadFlags) -> Result<(), Failure> {
    let none = || {
        let help = "start it with larder run; if another user runs it, use that user or root, or send SIGHUP to its \
                    process";
        Failure::runtime("no larder of yours is running", help)
    };
    let mut control = ControlPath::connect_any()?.ok_or_else(none)?;
    let answer = control.ask_patiently(&ControlRequest::Reload)?.map_err(|error| {
        let help = "see its standard error for the result; it may be stopping";
        Failure::runtime(format!("the running larder does not respond: {error}"), help)
    })?;
    match answer {
        ControlAnswer::Reloaded { told } => output::print(format_args!("{told}\n")),
        ControlAnswer::Refused { problem, help } => Err(Failure::runtime(problem, help)),
        other => Err(Failure::runtime(
            format!("unexpected response of the running larder: {other:?}"),
            "use the same version of larder on both ends",
        )),
    }
}
