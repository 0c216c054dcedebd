//! The flags that name the source of requests: a trace, standard input, or a workload.
//!
//! Traces are read elsewhere. Invariant: a source can be read repeatedly. Standard input is copied to an unnamed file,
//! which disappears with the process however it ends.

use crate::ground::{failure::Failure, value::BadValue};
use clap::Args;
use larder_sim::{RequestSource, TraceFile};
use larder_workload::Format;
use std::{
    fs,
    io::{self, IsTerminal},
    os::fd::{AsRawFd, IntoRawFd},
    path::{Path, PathBuf},
};

/// The flags that name one source of requests.
#[derive(Debug, Args)]
pub(super) struct SourceFlags {
    /// A trace: Squid's, common or combined log, columns (time key size), oracleGeneral, or larder's own; uncompressed,
    /// gzip or zstd; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workload", "seed"])]
    trace: Option<PathBuf>,

    /// The trace's format: squid, common (includes combined), csv, oracle or larder [default: detected from the first
    /// bytes]
    #[arg(long, value_name = "FORMAT", value_parser = parse_format)]
    format: Option<Format>,

    /// A workload: zipf, zipf-0.8, zipf-1.0, small-objects, markatos, polymix-3 or polymix-4
    #[arg(long, default_value = "zipf")]
    workload: String,

    /// Seed of the workload
    #[arg(long, default_value_t = 11)]
    seed: u64,
}

impl SourceFlags {
    /// Returns whether the source of requests is a trace.
    pub(super) fn is_trace(&self) -> bool {
        self.trace.is_some()
    }

    /// Returns the source of requests. If it is standard input, reads that to its end.
    pub(super) fn source(self) -> Result<RequestSource, Failure> {
        let Some(path) = self.trace else {
            return match self.format {
                None => Ok(RequestSource::Workload(self.workload, self.seed)),
                Some(_) => Err(Failure::usage("--format needs a trace", "add --trace FILE")),
            };
        };
        let name = path.display().to_string();
        let is_pipe = fs::metadata(&path).is_ok_and(|found| !found.is_file() && !found.is_dir());
        let (path, name) = match path.as_os_str() == "-" || is_pipe {
            true => (kept(&path)?, if name == "-" { "from standard input".to_owned() } else { name }),
            false => (path, name),
        };
        Ok(RequestSource::Trace(TraceFile { path, format: self.format, name }))
    }
}

/// The flags that name several sources of requests, which are simulated one after the other.
#[derive(Debug, Args)]
pub(super) struct SourcesFlags {
    /// A trace (repeatable): Squid's, common or combined log, columns (time key size), oracleGeneral, or larder's own;
    /// uncompressed, gzip or zstd
    #[arg(long, value_name = "FILE")]
    trace: Vec<PathBuf>,

    /// The traces' format: squid, common (includes combined), csv, oracle or larder [default: detected from the first
    /// bytes of each]
    #[arg(long, value_name = "FORMAT", value_parser = parse_format)]
    format: Option<Format>,

    /// Workloads, separated by commas: zipf, zipf-0.8, zipf-1.0, small-objects, markatos, polymix-3 or polymix-4
    /// [default: zipf, if there is no trace]
    #[arg(long, value_name = "WORKLOAD,...", value_delimiter = ',')]
    workload: Vec<String>,

    /// Seed of the workloads
    #[arg(long, default_value_t = 11)]
    seed: u64,
}

impl SourcesFlags {
    /// Returns the sources of requests: first the traces, then the workloads.
    pub(super) fn sources(self) -> Result<Vec<RequestSource>, Failure> {
        let Self { trace: traces, format, workload: mut workloads, seed } = self;
        if traces.is_empty() && workloads.is_empty() {
            workloads.push("zipf".to_owned());
        }
        if traces.is_empty() && format.is_some() {
            return Err(Failure::usage("--format needs a trace", "add --trace FILE"));
        }
        let flags = |trace, workload| SourceFlags { trace, format, workload, seed };
        let traces = traces.into_iter().map(|path| flags(Some(path), String::new()).source());
        traces.chain(workloads.into_iter().map(|name| Ok(RequestSource::Workload(name, seed)))).collect()
    }
}

/// Copies the trace at `path`, which is a pipe, to an unnamed file, because simulations read a trace more than once.
fn kept(path: &Path) -> Result<PathBuf, Failure> {
    let failed = |error: io::Error| {
        let problem = format!("cannot buffer the trace from {}: {error}", path.display());
        Failure::runtime(problem, "give the trace as a file")
    };
    let mut file = tempfile::tempfile().map_err(failed)?;
    if path.as_os_str() == "-" {
        if io::stdin().is_terminal() {
            return Err(Failure::usage(
                "standard input is a terminal",
                "pipe a trace into it: larder sim run --trace - <FILE",
            ));
        }
        io::copy(&mut io::stdin().lock(), &mut file).map_err(failed)?;
    } else {
        let mut pipe = fs::File::open(path).map_err(failed)?;
        io::copy(&mut pipe, &mut file).map_err(failed)?;
    }
    let place = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    // The descriptor is never closed, because the returned path refers to it.
    let _ = file.into_raw_fd();
    Ok(place)
}

fn parse_format(text: &str) -> Result<Format, BadValue> {
    let names = || Format::ALL.map(|(name, _)| name).join(", ");
    Format::named(text)
        .ok_or_else(|| BadValue::new(format!("unknown format: `{text}`"), format!("formats are {}", names())))
}

/// Parses a whole number of at least 1.
pub(super) fn parse_count(text: &str) -> Result<u64, BadValue> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| BadValue::new(format!("not a count: `{text}`"), "give a whole number of at least 1"))
}
