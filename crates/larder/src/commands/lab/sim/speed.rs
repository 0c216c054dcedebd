//! `larder sim speed`: measures how many requests per second the laboratory itself replays.

use super::{OutputFlags, PolicyList, Progress, SourceFlags, failed, listed, show};
use crate::ground::{failure::Failure, size};
use clap::Args;
use larder_sim::SpeedTest;

const EXAMPLES: &str = "\
Examples:
  larder sim speed                              every eviction and every policy
  larder sim speed --policy none --streamed 100000000
  larder sim speed --trace cluster52.oracleGeneral.zst --size 1GB";

/// The flags of `larder sim speed`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SpeedFlags {
    #[command(flatten)]
    source: SourceFlags,

    /// Policies: names with commas between them, `all` or `none` (repeatable)
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',', default_value = "all", value_parser = super::parse_policies)]
    policy: Vec<PolicyList>,

    /// Size of caches and stores
    #[arg(long, default_value = "1GB", value_parser = size::parse)]
    size: u64,

    /// Requests for each published eviction algorithm, held in memory; 0 skips them
    #[arg(long, value_name = "COUNT", default_value_t = 10_000_000)]
    requests: u64,

    /// Requests read or generated while an LRU processes them, in bounded memory; 0 skips this
    #[arg(long, value_name = "COUNT", default_value_t = 10_000_000)]
    streamed: u64,

    /// Requests for each policy
    #[arg(long, value_name = "COUNT", default_value_t = 400_000)]
    policy_requests: u64,

    #[command(flatten)]
    output: OutputFlags,
}

pub(super) fn run(flags: SpeedFlags) -> Result<(), Failure> {
    flags.output.prepare()?;
    let speed = SpeedTest {
        source: flags.source.source()?,
        kept: flags.requests,
        streamed: flags.streamed,
        row_requests: flags.policy_requests,
        cache_bytes: flags.size,
        policies: listed(&flags.policy),
    };
    let shown = Progress::new("timing");
    let ran = speed.run(&|count| shown.advance(1, count));
    shown.finish();
    show(&ran.map_err(failed)?, &flags.output)
}
