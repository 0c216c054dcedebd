//! `larder bench store`: measures policies of the engine on a disk, and compares them with the plan.

use super::{TIME_DEFAULT, progress_bar};
use crate::{
    commands::lab::{columns::Columns, plan::read_figures},
    ground::{duration, failure::Failure, output::print_line, size, value},
    run::report,
    settings::tuning::{self, TunedConstant},
};
use clap::Args;
use larder_bench::{StoreJob, StoreRate, measure_store};
use larder_store::plan::{DeviceFigures, Plan, PlanWishes};
use larder_store::{IoChoice, Policy, Tuning};
use std::{path::PathBuf, time::Duration};

/// The flags of `larder bench store`.
#[derive(Debug, Args)]
pub(crate) struct StoreFlags {
    /// A directory on the disk.
    path: PathBuf,

    #[arg(long, value_name = "POLICY", value_parser = tuning::parse_policy, required = true, value_delimiter = ',',
        help = "Policies, separated by commas; `larder help tuning` lists them")]
    policy: Vec<&'static Policy>,

    /// Figures of the disk from `larder bench device --json`, used for the plan.
    #[arg(long, value_name = "FILE")]
    device: Option<PathBuf>,

    /// Size of the store, which is filled first [default: 2GiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,

    /// Mean size of an entry [default: 16KiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    mean_object_size: Option<u64>,

    /// Share of requests for stored entries [default: 0.6]
    #[arg(long, value_name = "SHARE", value_parser = value::fraction)]
    hit_ratio: Option<f64>,

    /// Concurrent requests [default: 64]
    #[arg(long, value_name = "COUNT", value_parser = value::workers)]
    depth: Option<usize>,

    /// Time for which requests are counted [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    time: Option<Duration>,

    /// I/O interface: auto, uring or threads [default: auto]
    #[arg(long, value_name = "HOW", value_parser = value::io)]
    io: Option<IoChoice>,

    #[arg(long, value_name = "NAME=VALUE", value_parser = tuning::parse_tuned,
        help = "Constant of a policy; `larder help tuning` lists them (repeatable)")]
    tune: Vec<TunedConstant>,
}

/// Measures each policy, and prints the measured rate with the planned one.
///
/// # Errors
/// The disk or a store fails, or the flags are invalid.
pub(super) fn run(flags: StoreFlags) -> Result<(), Failure> {
    let figures = flags.device.as_deref().map(read_figures).transpose()?;
    let mut constants = Tuning::default();
    for TunedConstant { name, value } in &flags.tune {
        constants.set(name, *value).expect("it was checked when it was read");
    }
    print_line!("{}", COLUMNS.header())?;
    for policy in &flags.policy {
        let job = StoreJob {
            directory: flags.path.clone(),
            policy,
            tuning: constants.clone(),
            size_bytes: flags.size.unwrap_or(SIZE_BYTES_DEFAULT),
            mean_bytes: flags.mean_object_size.unwrap_or(MEAN_BYTES_DEFAULT),
            hit_ratio: flags.hit_ratio.unwrap_or(0.6),
            storable_share: 0.8,
            depth: flags.depth.unwrap_or(64) as u32,
            time: flags.time.unwrap_or(TIME_DEFAULT),
            io: flags.io.unwrap_or_default(),
        };
        let bar = progress_bar();
        let measured = measure_store(&job, &mut |what, share| {
            bar.set_message(format!("{policy}: {what}"));
            bar.set_position((share * 1000.0) as u64);
        });
        bar.finish_and_clear();
        let rate = measured.map_err(|error| {
            let help = "give a directory on a file system with room for the store (--size)";
            Failure::runtime(format!("cannot measure {policy}: {error}"), help)
        })?;
        print(&job, rate, figures.as_ref())?;
    }
    Ok(())
}

fn print(job: &StoreJob, rate: StoreRate, figures: Option<&DeviceFigures>) -> Result<(), Failure> {
    let planned = figures.and_then(|figures| {
        let mut wishes = PlanWishes::new(job.size_bytes, u64::MAX);
        (wishes.sizes, wishes.hit_ratio, wishes.storable_share) = (job.sizes(), rate.hit_ratio, job.storable_share);
        (wishes.depth, wishes.request_cpu, wishes.tuning) = (job.depth, Duration::ZERO, job.tuning.clone());
        let plan = Plan::new(&wishes, figures);
        plan.rows.iter().find(|row| row.policy == job.policy.name).map(|row| row.requests_per_second)
    });
    let ratio = planned.map_or_else(|| "-".to_owned(), |planned| format!("{:.2}", planned / rate.per_second));
    let cells = [
        planned.map_or_else(|| "-".to_owned(), report::rate),
        report::rate(rate.per_second),
        ratio,
        format!("{:.0}%", rate.hit_ratio * 100.0),
        format!("{:.1}%", rate.refused_ratio * 100.0),
        format!("{:.2}", rate.reads_per_request),
        format!("{:.2}", rate.write_factor),
        format!("{:.0} us", rate.cpu_us),
    ];
    print_line!("{}", COLUMNS.row(' ', job.policy.name, cells))
}

const COLUMNS: Columns = Columns {
    name: "policy",
    values: &[
        ("planned", "req/s", 10),
        ("measured", "req/s", 10),
        ("ratio", "", 8),
        ("hits", "", 8),
        ("refused", "", 8),
        ("reads", "a request", 10),
        ("written", "a byte", 10),
        ("CPU", "a request", 10),
    ],
    rest: "",
};

const SIZE_BYTES_DEFAULT: u64 = 2 << 30;
const MEAN_BYTES_DEFAULT: u64 = 16 << 10;
