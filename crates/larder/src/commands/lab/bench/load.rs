//! `larder bench`: puts a load on a proxy, with an origin of its own behind it.

mod flags;
mod shown;

use super::{progress_bar, write};
use crate::ground::{failure::Failure, output::print_line};
pub(super) use flags::LoadFlags;
use larder_bench::{
    BenchJob, BenchResult, LarderOptions, LarderProcess, Load, Loop, Origin, OriginOptions, PeakSearch, Phase,
    PolyMixVersion, Target, WatchedProcesses, Workload, WorkloadOptions, page, to_json,
};
use larder_workload::{Request, Trace, TraceError};
use std::{env, path::Path, process, time::Duration};

/// Measures a proxy under load, and writes the results.
///
/// # Errors
/// The measurement failed, or the proxy gave wrong responses or none at all.
pub(super) fn run(flags: LoadFlags) -> Result<(), Failure> {
    flags.check()?;
    let result = measure(&flags)?;
    // The files are written even if the printed output cannot be, for example because its reader has gone.
    let printed = match &flags.json {
        Some(path) if path.as_os_str() == "-" => print_line!("{}", to_json(&result)),
        Some(path) => {
            let printed = shown::print(&result);
            write(path, &to_json(&result))?;
            printed
        }
        None => shown::print(&result),
    };
    if let Some(path) = &flags.hdr {
        write(path, &result.result_times(|phase| &phase.times).percentiles())?;
    }
    let failure = result.failure();
    let ended_early = result.ended_early;
    if let Some(path) = &flags.html {
        write_page(path, &[result])?;
    }
    if let Some(code) = ended_early {
        process::exit(code);
    }
    let help = "see the errors above; without correct responses the figures mean nothing";
    failure.map_or(printed, |failure| Err(Failure::runtime(failure, help)))
}

/// Starts the origin, and a Larder if no proxy was named. Runs the measurement, and ends what it started.
fn measure(flags: &LoadFlags) -> Result<BenchResult, Failure> {
    let workload = flags.workload();
    let trace = flags.trace.as_deref().map_or(Ok(Vec::new()), read_trace)?;
    let is_polymix = workload.polymix().is_some();
    let has_aborts = workload.polymix() == Some(PolyMixVersion::Four) && !flags.peak;
    let origin_abort_share = if has_aborts { ABORT_SHARE } else { 0.0 };
    let origin = start_origin(flags, is_polymix, origin_abort_share)?;
    let scratch = flags.scratch.clone().unwrap_or_else(env::temp_dir);
    let process = if flags.proxy.or(flags.reverse).is_none() { Some(start(flags, &scratch, &origin)?) } else { None };
    let address = process.as_ref().map(LarderProcess::address).or(flags.proxy).or(flags.reverse);
    let address = address.expect("a proxy was given or started");
    let mut pids = flags.pid.clone();
    pids.extend(process.as_ref().map(LarderProcess::pid));
    let own = process.is_some();
    let has_end = flags.trace.is_some() || flags.requests.is_some();
    let time_default = if has_end { UNLIMITED } else { LOAD_TIME_DEFAULT };
    let job = BenchJob {
        name: flags.name.clone().unwrap_or_else(|| if own { "larder".to_owned() } else { address.to_string() }),
        load: Load {
            target: Target { address, origin: origin.address().to_string(), is_forward: flags.proxy.is_some() },
            workload,
            loop_kind: loop_of(flags),
            phases: Phase::of(workload, flags.time.unwrap_or(time_default)),
            fill_bytes: flags.fill,
            closes_connections: is_polymix,
            origin_abort_share,
        },
        options: options_of(flags, workload),
        trace,
        peak: flags.peak.then(|| PeakSearch {
            limit: flags.limit.unwrap_or(LIMIT_DEFAULT),
            first: flags.rate.unwrap_or(RATE_DEFAULT),
            step: flags.step.unwrap_or(STEP_DEFAULT),
            bits: PEAK_BITS,
        }),
        watched: WatchedProcesses {
            pids,
            disk: flags.count_disk.clone().or_else(|| WatchedProcesses::disk_of(&scratch)),
            store: flags.store.clone().or_else(|| process.as_ref().map(|process| process.folder().to_owned())),
        },
    };
    run_job(&job, &origin)
}

/// Returns the way of sending requests. A trace is sent in a closed loop, because the order of its requests matters.
fn loop_of(flags: &LoadFlags) -> Loop {
    let users = flags.users.or(flags.trace.is_some().then_some(1));
    users.map_or(Loop::Open(flags.rate.unwrap_or(RATE_DEFAULT)), Loop::Closed)
}

/// Reads a whole trace before the measurement, so that sending requests never waits for a file.
fn read_trace(path: &Path) -> Result<Vec<Request>, Failure> {
    let help = "give a trace in Squid's, common, CSV, oracleGeneral or larder's own format, plain, gzip or zstd";
    let failed = |error: TraceError| Failure::runtime(error.to_string(), help);
    let mut trace = Trace::open(path, None).map_err(failed)?;
    let requests = trace.by_ref().collect::<Result<_, _>>().map_err(failed)?;
    trace.progress().check(&path.display().to_string()).map_err(failed)?;
    Ok(requests)
}

fn start_origin(flags: &LoadFlags, is_polymix: bool, abort_share: f64) -> Result<Origin, Failure> {
    let think = flags.think.unwrap_or_default();
    let usual = OriginOptions::default();
    let listen = flags.origin_listen.unwrap_or(usual.listen);
    let think = (think, think.mul_f64(0.4));
    let options = OriginOptions { listen, think, closes_connections: is_polymix, abort_share };
    Origin::start(options).map_err(|error| {
        Failure::runtime(
            format!("cannot start the origin on {listen}: {error}"),
            "choose another address with --origin-listen",
        )
    })
}

/// Writes an HTML page with the results.
///
/// # Errors
/// A failure that names the file.
pub(super) fn write_page(path: &Path, results: &[BenchResult]) -> Result<(), Failure> {
    let names: Vec<_> = results.iter().map(|result| result.name.as_str()).collect();
    let workload = results.first().map_or("", |result| &result.workload);
    let page = page(&format!("{workload}: {}", names.join(", ")), results).map_err(|error| {
        Failure::runtime(format!("cannot draw the report: {error}"), "the JSON files contain all results")
    })?;
    write(path, &page)
}

fn start(flags: &LoadFlags, scratch: &Path, origin: &Origin) -> Result<LarderProcess, Failure> {
    let help = "see its error above, or measure a running proxy with --proxy or --reverse";
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
    options.object_count = flags.objects.unwrap_or(options.object_count);
    options.object_bytes = flags.object_size.unwrap_or(options.object_bytes);
    options.alpha = flags.alpha.unwrap_or(options.alpha);
    options.seed = flags.seed.unwrap_or(options.seed);
    options.arrivals_max = flags.requests.unwrap_or(options.arrivals_max);
    options
}

fn run_job(job: &BenchJob, origin: &Origin) -> Result<BenchResult, Failure> {
    let bar = progress_bar();
    let measured = job.run(origin, &mut |phase, share, counts| {
        bar.set_position((share * 1000.0) as u64);
        let hits = counts.hit_ratio() * 100.0;
        let failed = counts.failed + counts.lies();
        bar.set_message(format!("{phase}: {} requests, {hits:.0}% hits, {failed} failed", counts.requests));
    });
    bar.finish_and_clear();
    measured.map_err(|error| {
        let help = "check that the proxy runs, and that it may contact the origin at --origin-listen";
        Failure::runtime(format!("cannot measure {}: {error}", job.name), help)
    })
}

const RATE_DEFAULT: f64 = 200.0;
/// The time limit of a run that ends after a number of requests. It is never reached in practice.
const UNLIMITED: Duration = Duration::from_hours(24);
const LOAD_TIME_DEFAULT: Duration = Duration::from_secs(120);
const LIMIT_DEFAULT: Duration = Duration::from_millis(50);
const STEP_DEFAULT: Duration = Duration::from_secs(10);
const SIZE_BYTES_DEFAULT: u64 = 1_000_000_000;
const MEMORY_BYTES_DEFAULT: u64 = 64_000_000;
/// Number of halvings in the search for the peak rate. After five, the rate is known to within 3%.
const PEAK_BITS: u32 = 5;
/// Share of responses that PolyMix-4's servers break off.
const ABORT_SHARE: f64 = 0.001;
