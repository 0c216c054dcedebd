//! `larder plan`: predicts the resources and performance of every policy for a disk and memory size, and recommends
//! one.
//!
//! Owns: the flags, reading the lengths in a trace, and the table. `larder_store::plan` computes. The disk is touched
//! only if a measurement was requested. Results go to standard output.

use crate::{
    commands::lab::{bench::measure, columns::Columns},
    ground::{
        failure::Failure,
        output::{print_line, tell},
        progress::ProgressLine,
        size, value,
    },
    run::report,
    settings::{
        RunSettings,
        memory_plan::{self, TotalMemory},
        tuning::{self, TunedConstant},
    },
};
use clap::Args;
use larder_bench::DeviceJob;
use larder_sim::eviction;
use larder_store::{
    Policy, mean_entry_bytes_default,
    plan::{DeviceFigures, Plan, PlanWishes, Sizes},
};
use larder_workload::{Progress, Trace, TraceError};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

const EXAMPLES: &str = "\
Examples:
  larder plan --size 2TB --memory 2GB
  larder plan --size 2TB --memory 1GB --mean-object-size 10KiB
  larder plan --size 500GB --memory 1GB --measure /var/cache
  larder bench device /var/cache --json disk.json
  larder plan --size 500GB --memory 1GB --device disk.json --trace access.log";

/// The flags of `larder plan`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanFlags {
    /// Size of the store, such as 2TB.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    size: u64,

    /// Memory of the whole process, such as 256MB.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: u64,

    /// Mean size of stored objects [default: that of larder run, or that of the trace]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    mean_object_size: Option<u64>,

    /// Take object sizes, and the hit ratio of an LRU of this size, from a trace (Squid, common, CSV, oracleGeneral)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Figures of the disk from `larder bench device --json`.
    #[arg(long, value_name = "FILE", conflicts_with = "measure")]
    device: Option<PathBuf>,

    /// Measure the disk under this directory, or this block device, for half a minute first.
    #[arg(long, value_name = "PATH")]
    measure: Option<PathBuf>,

    /// Plan for a rotating disk, if nothing is measured.
    #[arg(long)]
    spinning: bool,

    /// Share of the requests that are hits in the store [default: 0.6, or that of the trace]
    #[arg(long, value_name = "SHARE", value_parser = value::fraction)]
    hit_ratio: Option<f64>,

    /// Share of the misses that are stored [default: 0.8]
    #[arg(long, value_name = "SHARE", value_parser = value::fraction)]
    storable: Option<f64>,

    /// Useful entries per read, in policies that read groups: 1 to 64; the papers found 2 to 3 [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = group_size)]
    group: Option<f64>,

    /// Processors for the proxy [default: all of this machine]
    #[arg(long, value_name = "COUNT", value_parser = value::workers)]
    processors: Option<usize>,

    /// Leave out the proxy's own processor time, to plan for the store alone.
    #[arg(long)]
    store_only: bool,

    #[arg(long, value_name = "NAME=VALUE", value_parser = tuning::parse_tuned,
        help = "Constant of a policy; `larder help tuning` lists them (repeatable)")]
    tune: Vec<TunedConstant>,

    /// Print JSON instead of the table.
    #[arg(long)]
    json: bool,
}

/// Runs `larder plan`: computes the plan, and prints it.
///
/// # Errors
/// A file cannot be read, the disk cannot be measured, or no plan is possible.
pub(crate) fn run(flags: PlanFlags) -> Result<(), Failure> {
    let settings = RunSettings { memory: TotalMemory::Bytes(flags.memory), ..RunSettings::default() };
    let mut wishes = PlanWishes::new(flags.size, memory_plan::index_and_cache_bytes(&settings)?);
    wishes.chooses_constants = true;
    if let Some(path) = &flags.trace {
        take_trace(path, &mut wishes)?;
    }
    let usual = flags.trace.is_none().then(|| mean_entry_bytes_default(flags.size));
    if let Some(mean) = flags.mean_object_size.or(usual) {
        wishes.sizes = Sizes::Mean(mean as f64);
    }
    for (target, value) in [
        (&mut wishes.hit_ratio, flags.hit_ratio),
        (&mut wishes.storable_share, flags.storable),
        (&mut wishes.group_size, flags.group),
        (&mut wishes.processor_count, flags.processors.map(|count| count as f64)),
    ] {
        *target = value.unwrap_or(*target);
    }
    if flags.store_only {
        wishes.request_cpu = Duration::ZERO;
    }
    for TunedConstant { name, value } in flags.tune {
        wishes.tuning.set(name, value).expect("it was checked when it was read");
        wishes.set_constants.push(name);
    }
    if !size::STORE_BYTES.contains(&wishes.size_bytes) {
        let shown = size::show(wishes.size_bytes);
        return Err(Failure::usage(format!("--size: size out of range: {shown}"), "give 64MiB to 16TiB"));
    }
    let figures = match (flags.device, flags.measure) {
        (Some(path), _) => read_figures(&path)?,
        (None, Some(path)) => {
            let io = larder_store::IoChoice::Auto;
            measure(DeviceJob { path, span_bytes: MEASURED_BYTES, time: MEASURING_TIME, io })?
        }
        (None, None) if flags.spinning => DeviceFigures::typical_spinning(),
        (None, None) => DeviceFigures::typical_solid_state(),
    };
    let plan = Plan::new(&wishes, &figures);
    if flags.json { print_line!("{}", larder_bench::to_json(&plan)) } else { print(&plan, &wishes, flags.memory) }
}

fn print(plan: &Plan, wishes: &PlanWishes, memory_bytes: u64) -> Result<(), Failure> {
    print_line!(
        "{} of store, {} of memory ({} of it for index and memory cache), entries of {} on average, {:.0}% hits, {:.0}% of misses stored; rates of {}\n",
        size::show(wishes.size_bytes),
        size::show(memory_bytes),
        size::show(wishes.memory_bytes),
        size::show(wishes.sizes.mean_bytes() as u64),
        wishes.hit_ratio * 100.0,
        wishes.storable_share * 100.0,
        plan.device
    )?;
    print_line!("{}", COLUMNS.header())?;
    for row in &plan.rows {
        let mark = if Some(row.policy) == plan.recommended { '*' } else { ' ' };
        let (rate, bound) = if row.known {
            (report::rate(row.requests_per_second), row.bound.to_string())
        } else {
            ("-".to_owned(), "needs a file system".to_owned())
        };
        let cells = [
            size::show(row.index_bytes as u64),
            format!("{:.1}", row.index_bits),
            format!("{:.2}", row.reads_per_hit),
            format!("{:.3}", row.reads_per_miss),
            format!("{:.2}", row.write_factor),
            format!("{:.0}%", row.hits_of_lru * 100.0),
            rate,
        ];
        let lack = if row.fits { "" } else { "; memory is too small" };
        print_line!("{}  {bound}{lack}", COLUMNS.row(mark, row.policy, cells))?;
    }
    print_constants(plan)?;
    if !plan.advice.is_empty() {
        print_line!("\nconstants to consider:")?;
    }
    plan.advice.iter().try_for_each(|advice| print_line!("  {advice}"))?;
    match plan.recommended {
        Some(policy) => {
            print_line!("\nuse {policy}: {}", plan.reason)?;
            let kept = Policy::named(policy).map_or("", |policy| policy.kept_after_kill(wishes.tuning.map_journal));
            print_line!("after kill -9 it keeps {kept}")
        }
        None => print_line!("\nnot recommended: {}", plan.reason),
    }
}

/// Prints the flags for the constants of each policy, with the values that the plan chose.
fn print_constants(plan: &Plan) -> Result<(), Failure> {
    let mut rows = plan.rows.iter().filter(|row| !row.constants.is_empty()).peekable();
    if rows.peek().is_some() {
        print_line!("\nconstants chosen for this disk and memory:")?;
    }
    rows.try_for_each(|row| {
        let flags: Vec<String> = row.constants.iter().map(|constant| format!("--tune {constant}")).collect();
        print_line!("  {:22}{}", row.policy, flags.join(" "))
    })
}

/// Reads the figures of a disk from a file.
///
/// # Errors
/// A failure that says why the file is unusable.
pub(crate) fn read_figures(path: &Path) -> Result<DeviceFigures, Failure> {
    let help = "give a file written by `larder bench device PATH --json FILE`";
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::runtime(format!("cannot read {}: {error}", path.display()), help))?;
    larder_bench::figures_from_json(&text)
        .map_err(|error| Failure::usage(format!("not figures of a device: {}: {error}", path.display()), help))
}

/// Reads a trace. Puts the lengths of its objects, and the hit ratio of an LRU of the store's size, into `wishes`.
fn take_trace(path: &Path, wishes: &mut PlanWishes) -> Result<(), Failure> {
    let failed = |error: TraceError| {
        let help = "give a trace in Squid's, common, CSV, oracleGeneral or larder's own format, plain, gzip or zstd";
        Failure::runtime(error.to_string(), help)
    };
    let mut cache = eviction("lru", wishes.size_bytes).expect("there is an LRU");
    let mut lengths = Vec::new();
    let mut requests = 0_u64;
    let mut hits = 0_u64;
    let mut shown_bytes = 0;
    let mut trace = Trace::open(path, None).map_err(failed)?;
    let shown = ProgressLine::new("reading the trace");
    while let Some(request) = trace.next() {
        let request = request.map_err(failed)?;
        requests += 1;
        if requests.is_multiple_of(SHOWN_EVERY) {
            let Progress { read_bytes, file_bytes, .. } = trace.progress();
            shown.advance(read_bytes - shown_bytes, file_bytes);
            shown_bytes = read_bytes;
        }
        if cache.request(request.key, request.size_bytes) {
            hits += 1;
        } else if requests.is_multiple_of(lengths.len() as u64 / SAMPLE_MAX + 1) {
            lengths.push(request.size_bytes);
        }
    }
    shown.finish();
    let progress = trace.progress();
    progress.check(&path.display().to_string()).map_err(failed)?;
    if let Some((number, why)) = progress.first_damage {
        tell!(
            "{} damaged lines or records of the trace were skipped; the first is number {number}: {why}",
            progress.damaged
        );
    }
    wishes.sizes = Sizes::sample(lengths);
    wishes.hit_ratio = hits as f64 / requests as f64;
    Ok(())
}

fn group_size(text: &str) -> Result<f64, value::BadValue> {
    let bad = || value::BadValue::new(format!("not a group size: `{text}`"), "give a number from 1 to 64");
    text.parse().ok().filter(|size| (1.0..=64.0).contains(size)).ok_or_else(bad)
}

const COLUMNS: Columns = Columns {
    name: "policy",
    values: &[
        ("memory", "", 12),
        ("bits per", "entry", 9),
        ("reads", "a hit", 8),
        ("reads", "a miss", 8),
        ("written", "a byte", 9),
        ("hits of", "an LRU's", 9),
        ("requests", "per second", 12),
    ],
    rest: "  limited by",
};
const MEASURED_BYTES: u64 = 2 << 30;
const MEASURING_TIME: Duration = Duration::from_secs(30);
/// Maximum number of object lengths kept from a trace. In a longer trace, lengths are sampled less and less often.
const SAMPLE_MAX: u64 = 1_000_000;
/// Number of requests between two updates of the progress.
const SHOWN_EVERY: u64 = 16_384;
