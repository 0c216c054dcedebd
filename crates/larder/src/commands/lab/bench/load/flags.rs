//! The flags of `larder bench`, and their valid combinations.
//!
//! Owns: their names, ranges and contradictions. Measuring is elsewhere. Invariant: invalid flags, and flags that would
//! be ignored, are refused before anything is started.

use crate::ground::{duration, failure::Failure, size, value};
use clap::Args;
use larder_bench::{Load, PolyMixVersion, WatchedProcesses, Workload, WorkloadOptions};
use std::{
    ffi::OsString,
    fs,
    net::{SocketAddr, ToSocketAddrs},
    path::{Path, PathBuf},
    time::Duration,
};

/// The flags of `larder bench`.
#[derive(Debug, Default, Args)]
pub(crate) struct LoadFlags {
    /// polymix-3, polymix-4, zipf, all-hit, all-miss, big or ranges [default: polymix-4]
    #[arg(long, value_name = "NAME", value_parser = workload)]
    pub(super) workload: Option<Workload>,

    /// Replay a trace in a closed loop, one request after another unless --users says otherwise (Squid, common, CSV,
    /// oracleGeneral or larder's own format)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workload", "rate", "peak", "objects", "object_size", "alpha", "seed", "fill"])]
    pub(super) trace: Option<PathBuf>,

    /// End after this number of requests, or of pages in PolyMix [default: end by --time, or with the trace]
    #[arg(long, value_name = "COUNT", value_parser = requests, conflicts_with = "peak")]
    pub(super) requests: Option<u64>,

    /// Forward proxy to measure, such as http://127.0.0.1:3128 [default: this program, in a scratch folder]
    #[arg(long, value_name = "URL", value_parser = proxy_address)]
    pub(super) proxy: Option<SocketAddr>,

    /// Reverse proxy to measure; it must have --origin-listen as its origin.
    #[arg(long, value_name = "URL", value_parser = proxy_address, conflicts_with = "proxy", requires = "origin_listen")]
    pub(super) reverse: Option<SocketAddr>,

    /// Listening address of the benchmark's origin [default: a free port on 127.0.0.1]
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen_address)]
    pub(super) origin_listen: Option<SocketAddr>,

    /// Open loop: this many requests a second, whatever their outcome [default: 200]
    #[arg(long, value_name = "COUNT", value_parser = rate)]
    pub(super) rate: Option<f64>,

    /// Closed loop: this many users, each of whom waits for a response before the next request.
    #[arg(long, value_name = "COUNT", value_parser = users, conflicts_with = "rate")]
    pub(super) users: Option<usize>,

    /// Search for the highest rate that meets --limit, starting at --rate.
    #[arg(long, conflicts_with = "users")]
    pub(super) peak: bool,

    /// Limit on the 99th percentile of response times, with --peak [default: 50ms]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "peak")]
    pub(super) limit: Option<Duration>,

    /// Time for each rate, with --peak [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "peak")]
    pub(super) step: Option<Duration>,

    /// Time of all phases together [default: 2m, or no limit with --trace or --requests]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, conflicts_with = "peak")]
    pub(super) time: Option<Duration>,

    /// Bytes to store before PolyMix's phase `fill` ends. PolyMix requires twice the size of the cache.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, conflicts_with = "users")]
    pub(super) fill: Option<u64>,

    /// Mean response time of the origin; it varies by 40% [default: 0ms]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(super) think: Option<Duration>,

    /// Number of objects in the workload; in PolyMix, limit of the working set.
    #[arg(long, value_name = "COUNT", value_parser = objects)]
    pub(super) objects: Option<u64>,

    /// Length of an object, in workloads with one length, or of each object in zipf [zipf default: PolyMix's lengths]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(super) object_size: Option<u64>,

    /// Exponent of Zipf's law [default: 0.8]
    #[arg(long, value_name = "NUMBER", value_parser = alpha)]
    pub(super) alpha: Option<f64>,

    /// Seed of the random numbers [default: 1]
    #[arg(long, value_name = "NUMBER")]
    pub(super) seed: Option<u64>,

    /// Process of the proxy, whose processor time and memory are counted, including its children's (repeatable).
    #[arg(long, value_name = "PID")]
    pub(super) pid: Vec<u32>,

    /// Folder or file of the proxy's store, whose disk usage is counted.
    #[arg(long, value_name = "PATH")]
    pub(super) store: Option<PathBuf>,

    /// Disk whose I/O is counted, by the kernel's name, such as sda [default: the disk under --scratch]
    #[arg(long, value_name = "NAME")]
    pub(super) count_disk: Option<String>,

    /// Name of the proxy in the report [default: larder, or its address]
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,

    /// Write the result to this file for `larder bench report`; `-` writes it to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,

    /// Write the response times to this file, as HdrHistogram's table of percentiles, in milliseconds.
    #[arg(long, value_name = "FILE")]
    pub(super) hdr: Option<PathBuf>,

    /// Write a page with tables and plots to this file.
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,

    /// Folder in which the store's folder is created if larder is started; the disk under it is counted [default: the
    /// folder for temporary files]
    #[arg(long, value_name = "PATH")]
    pub(super) scratch: Option<PathBuf>,

    /// Size of the store, if larder is started [default: 1GB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, conflicts_with_all = ["proxy", "reverse"])]
    pub(super) size: Option<u64>,

    /// Memory of the whole process, if larder is started [default: 64MB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, conflicts_with_all = ["proxy", "reverse"])]
    pub(super) memory: Option<u64>,

    /// Another flag of `larder run`, if larder is started, such as --larder=--policy=tiny (repeatable).
    #[arg(long, value_name = "FLAG", conflicts_with_all = ["proxy", "reverse"])]
    pub(super) larder: Vec<OsString>,
}

impl LoadFlags {
    /// Returns the workload that the flags name, or the default.
    pub(super) fn workload(&self) -> Workload {
        let usual = if self.trace.is_some() { Workload::Trace } else { Workload::PolyMix(PolyMixVersion::Four) };
        self.workload.unwrap_or(usual)
    }

    /// Refuses flags that would have no effect, and measurements whose results could not be written.
    ///
    /// # Errors
    /// A usage failure that names the flag.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let workload = self.workload();
        let name = workload.name();
        let refused = |flag: &str, help: &str| Err(Failure::usage(format!("{flag} does not apply to {name}"), help));
        if self.fill.is_some() && workload.polymix().is_none() {
            return refused("--fill", "remove it, or use --workload polymix-4 or polymix-3");
        }
        if self.alpha.is_some() && workload != Workload::Zipf {
            return refused("--alpha", "remove it, or use --workload zipf");
        }
        if self.objects.is_some() && workload == Workload::AllMiss {
            return refused("--objects", "remove it: every object of this workload is new");
        }
        if self.object_size.is_some() && workload.polymix().is_some() {
            return refused("--object-size", "remove it: this workload has PolyMix's object sizes");
        }
        let bytes_max = WorkloadOptions::OBJECT_BYTES_MAX;
        if let Some(bytes) = self.object_size.filter(|bytes| !(1..=bytes_max).contains(bytes)) {
            let help = format!("give from 1B to {}", size::show(bytes_max));
            return Err(Failure::usage(format!("object size out of range: {bytes}"), help));
        }
        for (flag, time) in [("--time", self.time), ("--step", self.step), ("--limit", self.limit)] {
            if time.is_some_and(|time| time.is_zero()) {
                return Err(Failure::usage(format!("{flag} must be longer than 0"), "give a duration such as 10s"));
            }
        }
        if let Some(disk) = self.count_disk.as_ref().filter(|disk| !WatchedProcesses::has_disk(disk)) {
            let help = "give a name from /proc/diskstats, such as sda";
            return Err(Failure::usage(format!("--count-disk: no such disk: `{disk}`"), help));
        }
        if let Some(pid) = self.pid.iter().find(|pid| !Path::new(&format!("/proc/{pid}/stat")).exists()) {
            return Err(Failure::usage(
                format!("--pid: no such process: {pid}"),
                "give the proxy's process id, as ps shows it",
            ));
        }
        if let Some(store) = self.store.as_ref().filter(|store| !store.exists()) {
            let help = "give the folder or file of the proxy's store; it must exist";
            return Err(Failure::usage(format!("--store: no such file: {}", store.display()), help));
        }
        // The result files are opened before the measurement, because failing to write them after an hour would lose
        // the result.
        for path in [&self.json, &self.html, &self.hdr].into_iter().flatten().filter(|path| path.as_os_str() != "-") {
            let is_new = !path.exists();
            let opened = fs::OpenOptions::new().append(true).create(true).open(path);
            let removed = opened.and_then(|_| if is_new { fs::remove_file(path) } else { Ok(()) });
            removed.map_err(|error| {
                let problem = format!("cannot write {}: {error}", path.display());
                Failure::runtime(problem, "give a path that you may write to")
            })?;
        }
        Ok(())
    }
}

fn workload(text: &str) -> Result<Workload, value::BadValue> {
    Workload::named(text).ok_or_else(|| {
        let names: Vec<_> = Workload::ALL.iter().map(|(name, _)| *name).collect();
        value::BadValue::new(format!("unknown workload: `{text}`"), format!("the workloads are {}", names.join(", ")))
    })
}

/// Parses the address of a proxy: `http://host:port` or `host:port`, in which the host is an IP address.
fn proxy_address(text: &str) -> Result<SocketAddr, value::BadValue> {
    let bad =
        || value::BadValue::new(format!("not a proxy's address: `{text}`"), "give a URL such as http://127.0.0.1:3128");
    let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    address.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(bad)
}

fn users(text: &str) -> Result<usize, value::BadValue> {
    let bad = || value::BadValue::new(format!("not a number of users: `{text}`"), "give from 1 to 8192 users");
    text.parse().ok().filter(|count| (1..=Load::UNDER_WAY_MAX).contains(count)).ok_or_else(bad)
}

fn requests(text: &str) -> Result<u64, value::BadValue> {
    let bad =
        || value::BadValue::new(format!("not a number of requests: `{text}`"), "give a whole number of at least 1");
    text.parse().ok().filter(|count| *count > 0).ok_or_else(bad)
}

fn objects(text: &str) -> Result<u64, value::BadValue> {
    let help = "give from 1 to 100000000 objects";
    let bad = || value::BadValue::new(format!("not a number of objects: `{text}`"), help);
    text.parse().ok().filter(|count| (1..=OBJECTS_MAX).contains(count)).ok_or_else(bad)
}

fn alpha(text: &str) -> Result<f64, value::BadValue> {
    let bad =
        || value::BadValue::new(format!("not an exponent: `{text}`"), "give a number from 0.01 to 4, such as 0.8");
    text.parse().ok().filter(|alpha| (0.01..=4.0).contains(alpha)).ok_or_else(bad)
}

fn rate(text: &str) -> Result<f64, value::BadValue> {
    let bad = || value::BadValue::new(format!("not a rate: `{text}`"), "give requests per second, from 0.1 to 1000000");
    text.parse().ok().filter(|rate| (0.1..=1e6).contains(rate)).ok_or_else(bad)
}

const OBJECTS_MAX: u64 = 100_000_000;
