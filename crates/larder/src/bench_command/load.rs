//! `larder bench`: a load on a proxy, with the origin behind it.

use super::{progress_bar, write};
use crate::{duration, failure::Failure, report, size, value};
use clap::Args;
use larder_bench::{
    BenchJob, BenchResult, LarderOptions, LarderProcess, Load, Loop, Origin, OriginOptions, PeakSearch, Phase, Target,
    Watched, Workload, WorkloadOptions, page,
};
use std::{
    env,
    ffi::OsString,
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
    time::Duration,
};

/// The flags of `larder bench`.
#[derive(Debug, Default, Args)]
pub(crate) struct LoadFlags {
    /// polymix-4, zipf, all-hit, all-miss, big or ranges [default: polymix-4]
    #[arg(long, value_name = "NAME", value_parser = workload)]
    workload: Option<Workload>,

    /// Forward proxy to measure, such as http://127.0.0.1:3128 [default: this program, in a scratch folder]
    #[arg(long, value_name = "URL", value_parser = proxy_address)]
    proxy: Option<SocketAddr>,

    /// Reverse proxy to measure; it must have --origin-listen as its origin.
    #[arg(long, value_name = "URL", value_parser = proxy_address, conflicts_with = "proxy")]
    reverse: Option<SocketAddr>,

    /// Where the origin of the benchmark listens [default: a free port on 127.0.0.1]
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen_address)]
    origin_listen: Option<SocketAddr>,

    /// Open loop: so many requests a second, whatever becomes of them [default: 200]
    #[arg(long, value_name = "COUNT", value_parser = rate)]
    rate: Option<f64>,

    /// Closed loop: so many users, each of which waits for an answer before it asks again.
    #[arg(long, value_name = "COUNT", value_parser = value::workers, conflicts_with = "rate")]
    users: Option<usize>,

    /// Search for the greatest rate that is answered within --limit, beginning with --rate.
    #[arg(long, conflicts_with = "users")]
    peak: bool,

    /// What 99% of the answers may take, with --peak [default: 50ms]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    limit: Option<Duration>,

    /// How long a rate is tried, with --peak [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    step: Option<Duration>,

    /// How long all phases take together [default: 2m]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    time: Option<Duration>,

    /// PolyMix' phase `fill` lasts until so much was stored; PolyMix wants twice the size of the cache.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    fill: Option<u64>,

    /// Time the origin thinks on average; it varies by two fifths of that [default: 0ms]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    think: Option<Duration>,

    /// Objects of the workload; in PolyMix the working set's bound.
    #[arg(long, value_name = "COUNT")]
    objects: Option<u64>,

    /// Length of an object, where the workload has one length.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    object_size: Option<u64>,

    /// Exponent of Zipf's law [default: 0.8]
    #[arg(long, value_name = "NUMBER")]
    alpha: Option<f64>,

    /// Where random numbers begin [default: 1]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// Process of the proxy, whose processor time and memory are counted with its children's (repeatable).
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,

    /// Disk that is counted, by the kernel's name such as sda [default: that under --scratch]
    #[arg(long, value_name = "NAME")]
    count_disk: Option<String>,

    /// Name of the proxy in the report [default: larder, or its address]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Write the result to this file, for `larder bench report`.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write a page with tables and plots to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Where a folder for the store is made, if larder is started [default: the folder for temporary files]
    #[arg(long, value_name = "PATH")]
    scratch: Option<PathBuf>,

    /// Size of the store, if larder is started [default: 1GB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,

    /// Memory of the hot tier, if larder is started [default: 64MB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<u64>,

    /// Another flag of `larder run`, if larder is started, such as --larder=--policy=tiny (repeatable).
    #[arg(long, value_name = "FLAG")]
    larder: Vec<OsString>,
}

/// Measures, and writes what was found.
///
/// # Errors
/// A failure that says what to do.
pub(super) fn run(flags: LoadFlags) -> Result<(), Failure> {
    let workload = flags.workload.unwrap_or(Workload::PolyMix4);
    let is_polymix = workload == Workload::PolyMix4;
    let origin_abort_share = if is_polymix && !flags.peak { ABORT_SHARE } else { 0.0 };
    let think = flags.think.unwrap_or_default();
    let mut origin_options = OriginOptions {
        think: (think, think.mul_f64(0.4)),
        closes_connections: is_polymix,
        abort_share: origin_abort_share,
        ..OriginOptions::default()
    };
    origin_options.listen = flags.origin_listen.unwrap_or(origin_options.listen);
    let listen = origin_options.listen;
    let origin = Origin::start(origin_options).map_err(|error| {
        Failure::runtime(format!("cannot start the origin on {listen}: {error}"), "give another --origin-listen")
    })?;
    let scratch = flags.scratch.clone().unwrap_or_else(env::temp_dir);
    let process = if flags.proxy.or(flags.reverse).is_none() { Some(start(&flags, &scratch, &origin)?) } else { None };
    let address = process.as_ref().map(LarderProcess::address).or(flags.proxy).or(flags.reverse);
    let address = address.expect("a proxy was given or started");
    let mut pids = flags.pid.clone();
    pids.extend(process.as_ref().map(LarderProcess::pid));
    let own = process.is_some();
    let options = options_of(&flags, workload);
    let job = BenchJob {
        name: flags.name.clone().unwrap_or_else(|| if own { "larder".to_owned() } else { address.to_string() }),
        load: Load {
            target: Target { address, origin: origin.address().to_string(), is_forward: flags.proxy.is_some() },
            workload,
            loop_kind: flags.users.map_or(Loop::Open(flags.rate.unwrap_or(RATE_DEFAULT)), Loop::Closed),
            phases: Phase::of(workload, flags.time.unwrap_or(LOAD_TIME_DEFAULT)),
            fill_bytes: flags.fill,
            closes_connections: is_polymix,
            origin_abort_share,
        },
        options,
        peak: flags.peak.then(|| PeakSearch {
            limit: flags.limit.unwrap_or(LIMIT_DEFAULT),
            first: flags.rate.unwrap_or(RATE_DEFAULT),
            step: flags.step.unwrap_or(STEP_DEFAULT),
            bits: PEAK_BITS,
        }),
        watched: Watched { pids, disk: flags.count_disk.clone().or_else(|| Watched::disk_of(&scratch)) },
    };
    let result = measure(&job, &origin)?;
    print(&result);
    if let Some(path) = &flags.json {
        write(path, &result.to_json())?;
    }
    if let Some(path) = &flags.html {
        write_page(path, &[result])?;
    }
    Ok(())
}

/// Writes a page of results.
///
/// # Errors
/// A failure that names the file.
pub(super) fn write_page(path: &std::path::Path, results: &[BenchResult]) -> Result<(), Failure> {
    let names: Vec<_> = results.iter().map(|result| result.name.as_str()).collect();
    let workload = results.first().map_or("", |result| &result.workload);
    let page = page(&format!("{workload}: {}", names.join(", ")), results).map_err(|error| {
        Failure::runtime(format!("cannot draw the report: {error}"), "the JSON files have all of it")
    })?;
    write(path, &page)
}

fn start(flags: &LoadFlags, scratch: &std::path::Path, origin: &Origin) -> Result<LarderProcess, Failure> {
    let help = "see what it says, or measure one that runs already with --proxy or --reverse";
    let failed = |error: std::io::Error| Failure::runtime(format!("cannot start larder: {error}"), help);
    let options = LarderOptions {
        program: env::current_exe().map_err(failed)?,
        scratch: scratch.to_owned(),
        size_bytes: flags.size.unwrap_or(SIZE_BYTES_DEFAULT),
        memory_bytes: flags.memory.unwrap_or(MEMORY_BYTES_DEFAULT),
        flags: flags.larder.clone(),
    };
    LarderProcess::start(&options, origin.address()).map_err(failed)
}

fn options_of(flags: &LoadFlags, workload: Workload) -> WorkloadOptions {
    let mut options = WorkloadOptions::new(workload);
    options.object_count = flags.objects.filter(|count| *count > 0).unwrap_or(options.object_count);
    options.object_bytes = flags.object_size.filter(|bytes| *bytes > 0).unwrap_or(options.object_bytes);
    options.alpha = flags.alpha.filter(|alpha| *alpha > 0.0).unwrap_or(options.alpha);
    options.seed = flags.seed.unwrap_or(options.seed);
    options
}

fn measure(job: &BenchJob, origin: &Origin) -> Result<BenchResult, Failure> {
    let bar = progress_bar();
    let measured = job.run(origin, &mut |phase, share, counts| {
        bar.set_position((share * 1000.0) as u64);
        let (hits, failed) = (counts.hit_ratio() * 100.0, counts.failed + counts.wrong);
        bar.set_message(format!("{phase}: {} requests, {hits:.0}% hits, {failed} failed", counts.requests));
    });
    bar.finish_and_clear();
    measured.map_err(|error| {
        let help = "check that the proxy runs, and that it may ask the origin at --origin-listen";
        Failure::runtime(format!("cannot measure {}: {error}", job.name), help)
    })
}

fn print(result: &BenchResult) {
    println!("{}: {}, {}", result.name, result.workload, result.load);
    for phase in result.phases.iter().filter(|phase| phase.counts.requests > 0) {
        let time = |share| phase.times.quantile_us(share) as f64 / 1000.0;
        println!(
            "  {:8}{:>9} requests/s  {:5.1}% hits ({:.1}% offered)  {:.2} ms for half, {:.2} ms for 99%, {:.2} ms for 99.9%",
            phase.name,
            report::rate(phase.per_second),
            phase.counts.hit_ratio() * 100.0,
            phase.counts.offered_ratio() * 100.0,
            time(0.5),
            time(0.99),
            time(0.999),
        );
    }
    for step in &result.peak {
        let mark = if step.passed { "kept" } else { "not kept" };
        let p99 = step.p99_us as f64 / 1000.0;
        println!("  {:>9} requests/s  {p99:.2} ms for 99%, {} failed: {mark}", report::rate(step.rate), step.failed);
    }
    if !result.peak.is_empty() {
        println!("  peak     {}", result.peak_rate().map_or("none".to_owned(), report::rate));
    }
    let totals = result.totals();
    println!(
        "  all      {} requests, {} failed, {} wrong, {} outdated, {} broken off on purpose; {} at the origin",
        size::show_count(totals.requests),
        totals.failed,
        totals.wrong,
        totals.outdated,
        totals.broken_off,
        size::show_count(result.origin_requests),
    );
    if let Some(kernel) = result.kernel_total() {
        println!(
            "  proxy    {:.1} us of CPU a request, {} of memory, {} written to the disk, {} read",
            kernel.cpu_s * 1e6 / totals.requests.max(1) as f64,
            size::show(kernel.resident_bytes),
            size::show(kernel.process_written_bytes),
            size::show(kernel.process_read_bytes),
        );
    }
    result.complaints.iter().for_each(|complaint| println!("  wrong    {complaint}"));
}

fn workload(text: &str) -> Result<Workload, value::BadValue> {
    Workload::named(text).ok_or_else(|| {
        let names: Vec<_> = Workload::ALL.iter().map(|(name, _)| *name).collect();
        value::BadValue::new(format!("not a workload: `{text}`"), format!("the workloads are {}", names.join(", ")))
    })
}

/// The address of `http://host:port`, or of `host:port`.
fn proxy_address(text: &str) -> Result<SocketAddr, value::BadValue> {
    let bad = || value::BadValue::new(format!("not a proxy: `{text}`"), "give a URL such as http://127.0.0.1:3128");
    let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    address.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(bad)
}

fn rate(text: &str) -> Result<f64, value::BadValue> {
    let bad = || value::BadValue::new(format!("not a rate: `{text}`"), "give requests per second, from 0.1 to 1000000");
    text.parse().ok().filter(|rate| (0.1..=1e6).contains(rate)).ok_or_else(bad)
}

const RATE_DEFAULT: f64 = 200.0;
const LOAD_TIME_DEFAULT: Duration = Duration::from_secs(120);
const LIMIT_DEFAULT: Duration = Duration::from_millis(50);
const STEP_DEFAULT: Duration = Duration::from_secs(10);
const SIZE_BYTES_DEFAULT: u64 = 1_000_000_000;
const MEMORY_BYTES_DEFAULT: u64 = 64_000_000;
/// The peak is known to 3% after five halvings.
const PEAK_BITS: u32 = 5;
/// PolyMix' servers break off one answer in a thousand.
const ABORT_SHARE: f64 = 0.001;
