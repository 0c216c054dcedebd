//! `larder upgrade`: replaces the running proxy with a newer program.
//!
//! Owns: the command. The running proxy starts the newer program with its own flags. Invariant: the exit code is 0 only
//! if the newer program serves or, with `--check`, would serve.

use crate::{
    ground::{failure::Failure, output},
    run::control::{ControlAnswer, ControlPath, ControlRequest},
};
use clap::Args;
use std::path::{PathBuf, absolute};

const EXAMPLES: &str = "\
Install the newer program at the path of the running one, then run this command. The running proxy \
starts the newer program with its own flags and environment, and hands over its listeners and its store. \
No request is refused: running exchanges finish in the old process, and new clients wait until the new \
one serves. If the new process does not start, the old one continues.

Examples:
  larder upgrade --check
  larder upgrade
  larder upgrade --program ./larder";

/// The flags of `larder upgrade`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UpgradeFlags {
    /// Check only whether the new program would start with the current configuration, listeners and store
    #[arg(long)]
    check: bool,

    /// New program [default: the file from which the running proxy was started]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Runs `larder upgrade`.
///
/// # Errors
/// No Larder of this user runs, or the newer program does not start.
pub(crate) fn run(flags: &UpgradeFlags) -> Result<(), Failure> {
    let none = || {
        let help = "start it with larder run; if another user runs it, use that user or root";
        Failure::runtime("no larder of yours is running", help)
    };
    let program = flags.program.as_deref().map(absolute).transpose().map_err(|error| {
        Failure::usage(format!("cannot find --program: {error}"), "give the path of a larder program")
    })?;
    let mut control = ControlPath::connect_any()?.ok_or_else(none)?;
    let broken = |error| {
        let help = "see its standard error for the result; an older larder without upgrades must be restarted";
        Failure::runtime(format!("the running larder does not respond: {error}"), help)
    };
    match control.ask_patiently(&ControlRequest::Upgrade { program, check: flags.check })?.map_err(broken)? {
        ControlAnswer::Upgraded { told } => output::print(format_args!("{told}\n")),
        ControlAnswer::Refused { problem, help } => Err(Failure::runtime(problem, help)),
        other => Err(Failure::runtime(
            format!("unexpected response of the running larder: {other:?}"),
            "use the same version of larder on both ends",
        )),
    }
}
