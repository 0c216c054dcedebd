//! `larder bench`: measures proxies and disks.
//!
//! Owns: the flags and the output. Measuring is in `larder-bench`. Results go to standard output, progress to standard
//! error if that is a terminal.

mod load;
mod store;

use crate::{
    ground::{
        duration,
        failure::Failure,
        output::{print_line, tell},
        size, value,
    },
    run::report,
};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use larder_bench::{BenchResult, DescriptorsFigures, DescriptorsJob, DeviceJob, Readiness, measure_device, to_json};
use larder_store::IoChoice;
use larder_store::plan::{DeviceFigures, READ_BYTES, READ_DEPTHS};
use std::{fs, path::PathBuf, time::Duration};

const DEVICE_EXAMPLES: &str = "\
Examples:
  larder bench device /var/cache             the disk below a directory
  larder bench device /dev/sdb --time 2m     a whole disk without data
  larder bench device /var/cache --json disk.json
  larder plan --size 2TB --memory 1GB --device disk.json";

const EXAMPLES: &str = "\
Examples:
  larder bench                                            this larder, PolyMix-4
  larder bench --workload all-hit --users 64 --time 20s   closed loop
  larder bench --trace access.log --size 50MB             requests of a trace
  larder bench --peak --rate 500 --html peak.html         99% within 50 ms
  larder bench --proxy http://127.0.0.1:3128 --pid 4711   any forward proxy
  larder bench report a.json b.json --html both.html      several on one page";

/// `larder bench`: a load on a proxy, or one of the other measurements.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct BenchFlags {
    #[command(subcommand)]
    command: Option<BenchCommand>,

    #[command(flatten)]
    load: load::LoadFlags,
}

/// The subcommands: measurements other than a load.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure a disk for `larder plan`: a scratch file in a directory, or an empty block device.
    Device(DeviceFlags),
    /// Measure policies on a disk, without a proxy, and compare them with the plan.
    Store(store::StoreFlags),
    /// Measure the cost of idle connections to a server with poll and with epoll.
    Descriptors(DescriptorsFlags),
    /// Put results that were written with --json on one page.
    Report(ReportFlags),
}

/// The flags of `larder bench report`.
#[derive(Debug, Args)]
pub(crate) struct ReportFlags {
    /// Result files.
    #[arg(required = true)]
    results: Vec<PathBuf>,

    /// File of the page.
    #[arg(long, value_name = "FILE")]
    html: PathBuf,
}

/// The flags of `larder bench device`.
#[derive(Debug, Args)]
#[command(after_help = DEVICE_EXAMPLES)]
pub(crate) struct DeviceFlags {
    /// A directory on the disk, or an empty block device.
    path: PathBuf,

    /// Bytes to read and write, which should exceed the disk's own memory [default: 2GiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,

    /// Time of all measurements together, not counting the first fill [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    time: Option<Duration>,

    /// I/O interface: auto, uring or threads [default: auto]
    #[arg(long, value_name = "HOW", value_parser = value::io)]
    io: Option<IoChoice>,

    /// Write the figures to this file for `larder plan`; `-` writes them to standard output instead of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const DESCRIPTORS_EXAMPLES: &str = "\
Examples:
  larder bench descriptors                          0 to 10,000 idle connections
  larder bench descriptors --idle 0,500 --active 1  one request at a time";

/// The flags of `larder bench descriptors`.
#[derive(Debug, Args)]
#[command(after_help = DESCRIPTORS_EXAMPLES)]
pub(crate) struct DescriptorsFlags {
    /// Numbers of idle connections, separated by commas.
    #[arg(long, value_name = "COUNT,...", value_delimiter = ',', default_value = "0,1000,5000,10000",
        value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    idle: Vec<u64>,

    /// Connections with requests, one at a time on each.
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    active: u64,

    /// Time of each measurement [default: 2s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    time: Option<Duration>,

    /// Write the figures as JSON to this file; `-` writes them to standard output instead of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs `larder bench`.
///
/// # Errors
/// The measurement failed, or the flags contradict each other.
pub(crate) fn run(flags: BenchFlags) -> Result<(), Failure> {
    match flags.command {
        None => load::run(flags.load),
        Some(BenchCommand::Device(flags)) => device(flags),
        Some(BenchCommand::Store(flags)) => store::run(flags),
        Some(BenchCommand::Descriptors(flags)) => descriptors(flags),
        Some(BenchCommand::Report(flags)) => results(flags),
    }
}

fn results(flags: ReportFlags) -> Result<(), Failure> {
    let help = "give files written by `larder bench --json FILE`";
    let mut results = Vec::new();
    for path in &flags.results {
        let shown = path.display();
        let text = fs::read_to_string(path)
            .map_err(|error| Failure::runtime(format!("cannot read {shown}: {error}"), help))?;
        let result = BenchResult::from_json(&text)
            .map_err(|error| Failure::usage(format!("not a result of larder bench: {shown}: {error}"), help))?;
        results.push(result);
    }
    load::write_page(&flags.html, &results)
}

/// Returns a progress bar, which is drawn on standard error if that is a terminal.
fn progress_bar() -> ProgressBar {
    ProgressBar::new(PROGRESS_STEPS).with_style(
        ProgressStyle::with_template("{bar:30} {percent}% {msg}, {elapsed}").expect("the template is right"),
    )
}

fn descriptors(flags: DescriptorsFlags) -> Result<(), Failure> {
    let job = DescriptorsJob {
        idle_counts: flags.idle,
        active_count: flags.active,
        time: flags.time.unwrap_or(DESCRIPTORS_TIME_DEFAULT),
    };
    let progress = |readiness: Readiness, idle_count: u64| {
        tell!("measuring {} with {idle_count} idle connections", readiness.name());
    };
    let figures = job.run(&progress).map_err(|error| {
        let help = "raise the limit of open files (ulimit -n), or give fewer connections (--idle)";
        Failure::runtime(format!("cannot measure: {error}"), help)
    })?;
    if let Some(path) = &flags.json {
        let text = to_json(&figures);
        if path.as_os_str() == "-" {
            return print_line!("{text}");
        }
        write(path, &text)?;
    }
    print_line!("{:>8} {:>8} {:>14} {:>22} {:>12}", "call", "idle", "requests/s", "processor time, us", "ready/call")?;
    for line in figures {
        let DescriptorsFigures { readiness, idle_count, requests_per_s, cpu_us, ready_per_call, .. } = line;
        let name = readiness.name();
        print_line!("{name:>8} {idle_count:>8} {requests_per_s:>14.0} {cpu_us:>22.2} {ready_per_call:>12.2}")?;
    }
    Ok(())
}

fn device(flags: DeviceFlags) -> Result<(), Failure> {
    let figures = measure(DeviceJob {
        path: flags.path,
        span_bytes: flags.size.unwrap_or(SPAN_BYTES_DEFAULT),
        time: flags.time.unwrap_or(TIME_DEFAULT),
        io: flags.io.unwrap_or_default(),
    })?;
    match flags.json {
        Some(path) if path.as_os_str() == "-" => print_line!("{}", to_json(&figures)),
        Some(path) => {
            write(&path, &to_json(&figures))?;
            print(&figures)
        }
        None => print(&figures),
    }
}

/// Measures a disk, and shows the progress.
///
/// # Errors
/// The place is unusable, or the disk fails.
pub(crate) fn measure(job: DeviceJob) -> Result<DeviceFigures, Failure> {
    let size = size::show(job.span_bytes);
    let seconds = job.time.as_secs_f64();
    tell!("measuring {} with {size}, {seconds:.0} s after writing it", job.path.display());
    let bar = progress_bar();
    let measured = measure_device(&job, &mut |what, share| {
        bar.set_message(what.to_owned());
        bar.set_position((share * PROGRESS_STEPS as f64) as u64);
    });
    bar.finish_and_clear();
    measured.map_err(|error| {
        let help = "give a directory with room for the scratch file (--size), or a block device without data";
        Failure::runtime(format!("cannot measure: {error}"), help)
    })
}

/// Writes a result to a file.
///
/// # Errors
/// A failure that names the file.
pub(crate) fn write(path: &std::path::Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| {
        Failure::runtime(format!("cannot write {}: {error}", path.display()), "give a path that you may write to")
    })
}

fn print(figures: &DeviceFigures) -> Result<(), Failure> {
    print_line!(
        "{} ({}{})",
        figures.path,
        figures.io,
        if figures.is_direct { ", bypassing the page cache" } else { "" }
    )?;
    if !figures.is_direct {
        print_line!("  warning  the page cache is used: some reads may come from memory")?;
    }
    if figures.load_average > 0.5 {
        print_line!("  warning  the machine was busy with other work: load average {:.1}", figures.load_average)?;
    }
    let read = figures.sequential_read;
    let written = figures.sequential_write;
    print_line!("  sequential  {}/s read, {}/s written", size::show(read as u64), size::show(written as u64))?;
    if let Some(beside) = &figures.beside_reads {
        let sequential = size::show(beside.sequential_write as u64);
        let times = beside.random_write_times;
        print_line!(
            "  while random reads go on, {sequential}/s written, and a random write takes {times:.1} times as long"
        )?;
    }
    print_line!("\n  random reads per second (99% take at most), CPU time of one at the greatest depth")?;
    let heads = READ_DEPTHS.map(|depth| format!("{:>22}", format!("{depth} in flight")));
    print_line!("  {:>8}{}{:>10}", "length", heads.concat(), "CPU")?;
    for read_bytes in READ_BYTES {
        let row = || figures.reads.iter().filter(move |read| read.read_bytes == read_bytes);
        let cells = row().map(|read| {
            let cell = format!("{} ({:.2} ms)", report::rate(read.per_second), read.p99_us / 1000.0);
            format!("{cell:>22}")
        });
        let cpu = row().next_back().map_or(0.0, |read| read.cpu_us);
        print_line!("  {:>8}{}{:>10}", kib(read_bytes), cells.collect::<String>(), format!("{cpu:.1} us"))?;
    }
    print_line!("\n  random writes per second")?;
    for write in &figures.writes {
        let length = kib(write.write_bytes);
        let rate = report::rate(write.per_second);
        print_line!("  {length:>8}{rate:>10}  {} in flight, {:.1} us of CPU each", write.depth, write.cpu_us)?;
    }
    if let Some(files) = &figures.files {
        print_line!("\n  files of {} per second, {} at a time", kib(files.file_bytes), files.depth)?;
        for (what, rate, cpu_us) in [
            ("made in place of others, and synced", files.replace_per_second, files.replace_cpu_us),
            ("read", files.read_per_second, files.read_cpu_us),
        ] {
            print_line!("  {:>8}  {what}, {cpu_us:.0} us of CPU each", report::rate(rate))?;
        }
    }
    Ok(())
}

fn kib(bytes: u64) -> String {
    format!("{} KiB", bytes >> 10)
}

const SPAN_BYTES_DEFAULT: u64 = 2 << 30;
const TIME_DEFAULT: Duration = Duration::from_secs(30);
/// Default time of each measurement of descriptors.
const DESCRIPTORS_TIME_DEFAULT: Duration = Duration::from_secs(2);
const PROGRESS_STEPS: u64 = 1000;
