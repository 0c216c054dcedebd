//! The laboratory's commands: measuring, planning and simulating, none of which a proxy needs to run.
//!
//! Owns: which of them there are. Does not: exist in a program built without the feature `lab`.

mod bench;
mod columns;
mod plan;
mod sim;

use crate::failure::Failure;
use clap::Subcommand;

/// The commands of the laboratory.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Measure proxies and disks.
    Bench(Box<bench::BenchFlags>),
    /// Say what every policy would take and do on a disk with a memory, and which one to use.
    Plan(Box<plan::PlanFlags>),
    /// Simulate policies, disks and workloads in virtual time.
    #[command(subcommand)]
    Sim(sim::SimCommand),
}

impl LabCommand {
    /// Whether it runs proxies or stores, whose diagnostics are wanted.
    pub(crate) fn has_diagnostics(&self) -> bool {
        matches!(self, Self::Bench(_))
    }
}

/// Runs a command.
///
/// # Errors
/// The command's own.
pub(crate) fn run(command: LabCommand) -> Result<(), Failure> {
    match command {
        LabCommand::Bench(flags) => bench::run(*flags),
        LabCommand::Plan(flags) => plan::run(*flags),
        LabCommand::Sim(command) => sim::run(command),
    }
}
