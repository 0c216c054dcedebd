//! `larder sim convert`: converts a trace or a workload to larder's own trace format.

use super::{
    failed,
    source::{SourceFlags, parse_count},
};
use crate::ground::{failure::Failure, output::print_line, progress::ProgressLine, size};
use clap::Args;
use larder_sim::{Conversion, ConversionSummary};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  larder sim convert --trace access.log.gz access.trace.zst
  larder sim convert --workload polymix-4 --requests 50000000 polymix.trace.zst";

/// Default number of requests in a generated workload.
const REQUESTS_DEFAULT: u64 = 1_000_000;

/// The flags of `larder sim convert`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConvertFlags {
    /// File to write, which must not exist; compressed with zstd if its name ends with .zst
    to: PathBuf,

    #[command(flatten)]
    source: SourceFlags,

    /// Number of requests [default: a whole trace, or 1000000 of a workload]
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    requests: Option<u64>,

    /// Size of the memory cache for which the workload is generated
    #[arg(long, default_value = "64MB", value_parser = size::parse)]
    memory_cache: u64,

    /// Bytes that a workload requests repeatedly
    #[arg(long, value_name = "SIZE", default_value = "1GB", value_parser = size::parse)]
    working_set: u64,
}

pub(super) fn run(flags: ConvertFlags) -> Result<(), Failure> {
    let all = if flags.source.is_trace() { u64::MAX } else { REQUESTS_DEFAULT };
    let conversion = Conversion {
        requests: flags.requests.unwrap_or(all),
        source: flags.source.source()?,
        memory_bytes: flags.memory_cache.max(1 << 20),
        working_set_bytes: flags.working_set.max(16 << 20),
    };
    let shown = ProgressLine::new("converting");
    let converted = conversion.run(&flags.to, &|count, of| shown.advance(count, of));
    shown.finish();
    let ConversionSummary { requests, file_bytes, left_out, damaged, first_damage } = converted.map_err(failed)?;
    print_line!("{requests} requests in {file_bytes} bytes: {}", flags.to.display())?;
    print_line!("skipped because no cache could answer them: {left_out}; damaged: {damaged}")?;
    if let Some((number, why)) = first_damage {
        print_line!("the first damaged one is number {number}: {why}")?;
    }
    Ok(())
}
