//! The laboratory's commands: measuring, planning and simulating. A proxy needs none of them to run.
//!
//! Owns: the list of them. A program built without the feature `lab` lacks this module.

mod bench;
mod columns;
mod plan;
mod sim;

use crate::ground::failure::Failure;
use clap::Subcommand;

/// The commands of the laboratory: benchmarks, plans and simulations.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Measure proxies and disks.
    Bench(Box<bench::BenchFlags>),
    /// Compare all policies for a disk and memory size, and recommend one.
    Plan(Box<plan::PlanFlags>),
    /// Simulate policies, disks and workloads in virtual time.
    #[command(subcommand)]
    Sim(sim::SimCommand),
}

impl LabCommand {
    /// Returns whether the command runs proxies or stores, so that their log messages must be shown.
    pub(crate) fn has_diagnostics(&self) -> bool {
        matches!(self, Self::Bench(_))
    }
}

/// Runs a command of the laboratory.
///
/// # Errors
/// The failure of that command.
pub(crate) fn run(command: LabCommand) -> Result<(), Failure> {
    match command {
        LabCommand::Bench(flags) => bench::run(*flags),
        LabCommand::Plan(flags) => plan::run(*flags),
        LabCommand::Sim(command) => sim::run(command),
    }
}
