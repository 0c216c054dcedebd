//! `larder sim plan`: compares plans with simulations of all policies.

use super::{OutputFlags, Progress, failed, show};
use crate::ground::{failure::Failure, size};
use clap::Args;
use larder_sim::PlanTest;

/// The flags of `larder sim plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanTestFlags {
    /// Size of the simulated stores, each of which represents a store on half of a disk
    #[arg(long, default_value = "64MiB", value_parser = size::parse)]
    size: u64,

    /// Seed of the workload
    #[arg(long, default_value_t = 11)]
    seed: u64,

    #[command(flatten)]
    output: OutputFlags,
}

pub(super) fn run(flags: &PlanTestFlags) -> Result<(), Failure> {
    flags.output.prepare()?;
    let test =
        PlanTest { simulated_bytes: flags.size, seed: flags.seed, jobs: flags.output.jobs(), ..PlanTest::default() };
    let shown = Progress::new("simulating");
    let ran = test.run(&|count, of| shown.advance(count, of));
    shown.finish();
    show(&ran.map_err(failed)?, &flags.output)
}
