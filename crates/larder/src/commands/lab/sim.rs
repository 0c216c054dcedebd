//! `larder sim`: runs the real engine in virtual time on modeled machines.
//!
//! Owns: the flags of these commands and their output. The simulation is in the crate `larder-sim`. Results go to
//! standard output, progress to standard error.

mod cluster;
mod convert;
mod plan;
mod source;
mod speed;
mod steps;

use crate::{
    ground::{
        failure::Failure,
        output::{self, print_line, tell},
        progress::ProgressLine as Progress,
        size,
        value::{self, BadValue},
    },
    settings::{
        files,
        tuning::{self, TunedConstant},
    },
};
use clap::{Args, Subcommand, ValueEnum};
use larder_sim::{
    Evictions, KnownRuns, MODELS, Model, Note, PAPERS, Paper, PaperOptions, Report, Steps, Sweep, SweepError,
    bed_notes, jobs_default,
};
use larder_store::{Policy, Tuning};
use source::{SourceFlags, SourcesFlags, parse_count};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

const RUN_EXAMPLES: &str = "\
Examples:
  larder sim run --policy all --machine hdd-7200 --size 8GB
  larder sim run --trace access.log --policy log,tiny --size 100GB --references
  larder sim run --workload polymix-4 --sweep size=100GB..4TB --plots plots
  larder sim run --policy stream,log --size 8GB --sweep utilization=50..95
  larder sim run --policy none --references --sweep size=1GB,5GB --output csv";

/// The subcommands of `larder sim`.
#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Run a trace or a workload against policies on a modeled machine.
    Run(Box<SimRunFlags>),
    /// Compare policies with published evictions, at several cache sizes.
    Evictions(Box<EvictionsFlags>),
    /// Reproduce a table or figure of a paper, with published and simulated values.
    Paper(PaperFlags),
    /// Convert a trace or a workload to larder's own trace format.
    Convert(convert::ConvertFlags),
    /// Compute how keys and requests spread over nodes, and which keys a new node moves.
    Cluster(cluster::ClusterFlags),
    /// Compare `larder plan` with simulations: the order of all policies, for 40 combinations of disk, memory and size
    Plan(plan::PlanTestFlags),
    /// Measure the laboratory itself: requests per second of evictions, traces and policies.
    Speed(speed::SpeedFlags),
    /// List the tables and figures that can be reproduced.
    Papers,
    /// List the machines, or the parameters of one with their sources.
    Models {
        /// The machine, or a file that describes one.
        name: Option<String>,
    },
}

/// The flags of `larder sim run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct SimRunFlags {
    #[command(flatten)]
    source: SourceFlags,

    #[arg(long, value_name = "POLICY,...", value_delimiter = ',', value_parser = parse_policies,
        help = "Policies, separated by commas, `all` or `none`; `larder help tuning` lists them (repeatable) [default: log]")]
    policy: Vec<PolicyList>,

    /// The machine: a name from `larder sim models`, or a file
    #[arg(long, value_name = "MODEL", default_value = "ssd-sata")]
    machine: String,

    /// Size of the store
    #[arg(long, default_value = "1GB", value_parser = size::parse)]
    size: u64,

    /// Several values instead of one: sizes of the store (size=100GB..4TB), of the memory cache
    /// (memory-cache=16MB..1GB), or shares of the store for entries (utilization=50..95). In a range, sizes double and
    /// shares rise by 5; lists are possible (size=100GB,1TB)
    #[arg(long, value_name = "WHAT=FROM..TO", value_parser = steps::parse)]
    sweep: Option<Steps>,

    /// Size of the memory cache in front of the store
    #[arg(long, default_value = "64MB", value_parser = size::parse)]
    memory_cache: u64,

    /// Bytes that a workload requests repeatedly [default: the largest size]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    working_set: Option<u64>,

    /// Number of requests [default: the whole trace, or enough of a workload to fill the store several times]
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    requests: Option<u64>,

    /// Mean size of an entry, which sizes the index of `tiny` and HashCache's policies [default: as in larder run]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    mean_object_size: Option<u64>,

    #[arg(long, value_name = "NAME=VALUE", value_parser = tuning::parse_tuned,
        help = "Constant of a policy; `larder help tuning` lists them (repeatable)")]
    tune: Vec<TunedConstant>,

    /// Add published evictions: LRU, FIFO, SIEVE, S3-FIFO, ARC, 2Q, W-TinyLFU, GDSF, LHD, Belady; with
    /// `--policy none`, only these
    #[arg(long)]
    references: bool,

    #[command(flatten)]
    output: OutputFlags,
}

/// The flags of `larder sim evictions`.
#[derive(Debug, Args)]
pub(crate) struct EvictionsFlags {
    #[command(flatten)]
    sources: SourcesFlags,

    /// Policies, separated by commas, `all` or `none` (repeatable)
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',', value_parser = parse_policies, default_value = "log,log-clock")]
    policy: Vec<PolicyList>,

    /// Sizes of the cache, in percent of the bytes of all requested objects
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', default_value = "1,5,10")]
    percent: Vec<f64>,

    /// Number of requests [default: a whole trace, or 1,500,000 of a workload; the first half is a warm-up]
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    requests: Option<u64>,

    /// Mean size of an entry, which sizes the index of `tiny` and HashCache's policies [default: as in larder run]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    mean_object_size: Option<u64>,

    #[arg(long, value_name = "NAME=VALUE", value_parser = tuning::parse_tuned,
        help = "Constant of a policy; `larder help tuning` lists them (repeatable)")]
    tune: Vec<TunedConstant>,

    /// Add Kangaroo (SOSP 2021), the baseline of `tiny` for objects of 100 to 200 bytes
    #[arg(long)]
    kangaroo: bool,

    #[command(flatten)]
    output: OutputFlags,
}

/// The policies that one value of the flag `--policy` names.
#[derive(Clone, Debug)]
struct PolicyList(Vec<&'static Policy>);

/// The flags of `larder sim paper`.
#[derive(Debug, Args)]
pub(crate) struct PaperFlags {
    /// Names of tables and figures (see `larder sim papers`), or `all`. `count` simulates all of them without the
    /// tables that vary an assumption; that is the quickest way to see how many printed claims are met
    #[arg(required = true, value_parser = parse_paper)]
    names: Vec<String>,

    /// Seed of the workload
    #[arg(long, default_value_t = 11)]
    seed: u64,

    /// Share of the paper's operations to run, for a quick look
    #[arg(long, default_value_t = 1.0, value_parser = parse_share)]
    share: f64,

    /// Machine other than the paper's: a name from `larder sim models`, or a file
    #[arg(long, value_name = "MODEL")]
    machine: Option<String>,

    #[command(flatten)]
    output: OutputFlags,
}

/// The output flags of every simulation.
#[derive(Debug, Args)]
pub(crate) struct OutputFlags {
    /// Output format
    #[arg(long, value_enum, default_value_t = OutputForm::Table)]
    output: OutputForm,

    /// Write the figures to this folder, as SVG
    #[arg(long, value_name = "FOLDER")]
    plots: Option<PathBuf>,

    /// Concurrent simulations [default: one per processor]
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    jobs: Option<u64>,
}

impl OutputFlags {
    fn jobs(&self) -> usize {
        self.jobs.map_or_else(jobs_default, |jobs| usize::try_from(jobs).unwrap_or(usize::MAX))
    }

    /// Creates the folder for the figures before the simulation, so that its result is not lost if that fails.
    fn prepare(&self) -> Result<(), Failure> {
        self.plots.as_deref().map_or(Ok(()), |folder| {
            fs::create_dir_all(folder).map_err(|error| {
                let problem = format!("cannot create the folder {}: {error}", folder.display());
                Failure::runtime(problem, "choose another folder for --plots")
            })
        })
    }
}

/// The formats in which results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OutputForm {
    Table,
    Json,
    Csv,
}

/// Runs `larder sim`.
///
/// # Errors
/// The simulation failed, or the flags contradict each other.
pub(crate) fn run(command: SimCommand) -> Result<(), Failure> {
    match command {
        SimCommand::Run(flags) => run_sweep(*flags),
        SimCommand::Evictions(flags) => evictions(*flags),
        SimCommand::Paper(flags) => papers(&flags),
        SimCommand::Convert(flags) => convert::run(flags),
        SimCommand::Cluster(flags) => cluster::run(&flags),
        SimCommand::Plan(flags) => plan::run(&flags),
        SimCommand::Speed(flags) => speed::run(flags),
        SimCommand::Papers => PAPERS.iter().try_for_each(|paper| print_line!("{:24} {}", paper.name, paper.about)),
        SimCommand::Models { name: None } => {
            for (name, _) in MODELS {
                print_line!("{name:18} {}", model(name)?.about)?;
            }
            Ok(())
        }
        SimCommand::Models { name: Some(name) } if name == BEDS => print_notes(&bed_notes()),
        SimCommand::Models { name: Some(name) } => {
            let model = model(&name)?;
            print_line!("{}", model.about)?;
            print_notes(&model.notes)
        }
    }
}

/// The name with which `larder sim models` prints the test beds of a paper. They are not machines on which simulations
/// run.
const BEDS: &str = "beds";

fn print_notes(notes: &[Note]) -> Result<(), Failure> {
    notes.iter().try_for_each(|note| print_line!("  {:36} {:>16}  {}", note.name, note.value, note.source))
}

fn run_sweep(flags: SimRunFlags) -> Result<(), Failure> {
    flags.output.prepare()?;
    let steps = flags.sweep.unwrap_or_else(|| Steps::Disk(vec![flags.size]));
    let mut tuned = steps.tuning();
    for TunedConstant { name, value } in flags.tune {
        tuned.set(name, value).expect("it was checked when it was read");
    }
    let mut policies = listed(&flags.policy);
    if flags.policy.is_empty() {
        policies.push(Policy::default_policy());
    }
    if policies.is_empty() && !flags.references {
        return Err(Failure::usage("nothing to simulate", "with --policy none, add --references"));
    }
    let sweep = Sweep {
        policies,
        model: model(&flags.machine)?,
        disk_bytes: flags.size,
        memory_bytes: flags.memory_cache,
        steps,
        source: flags.source.source()?,
        working_set_bytes: flags.working_set,
        requests: flags.requests,
        tuning: tuned,
        mean_entry_bytes: flags.mean_object_size,
        has_references: flags.references,
        jobs: flags.output.jobs(),
    };
    let shown = Progress::new("simulating");
    let ran = sweep.run(&|count, of| shown.advance(count, of));
    shown.finish();
    show(&ran.map_err(failed)?, &flags.output)
}

fn evictions(flags: EvictionsFlags) -> Result<(), Failure> {
    flags.output.prepare()?;
    if flags.percent.iter().any(|percent| !(*percent > 0.0 && *percent <= 100.0)) {
        return Err(Failure::usage("cache size out of range", "give --percent 1,5,10"));
    }
    let mut tuned = Tuning::default();
    for TunedConstant { name, value } in flags.tune {
        tuned.set(name, value).expect("it was checked when it was read");
    }
    let compared = Evictions {
        policies: listed(&flags.policy),
        sources: flags.sources.sources()?,
        percentages: flags.percent,
        requests: flags.requests,
        tuning: tuned,
        mean_entry_bytes: flags.mean_object_size,
        has_kangaroo: flags.kangaroo,
        jobs: flags.output.jobs(),
    };
    let shown = Progress::new("comparing");
    let ran = compared.run(&|count, of| shown.advance(count, of));
    shown.finish();
    show(&ran.map_err(failed)?, &flags.output)
}

fn failed(error: SweepError) -> Failure {
    let help = match &error {
        SweepError::Trace(_) => "check the file; its format is recognized by the first bytes, or given by --format",
        SweepError::Write(..) => "choose another file",
        SweepError::Workload(_) => "give one of these",
        SweepError::Store(..) => "give another --size, use sizes closer together in the sweep, or remove the policy",
    };
    Failure::runtime(format!("cannot simulate: {error}"), help)
}

/// Returns the policies of several lists, each once.
fn listed(lists: &[PolicyList]) -> Vec<&'static Policy> {
    let mut listed = Vec::new();
    for policy in lists.iter().flat_map(|PolicyList(policies)| policies) {
        if !listed.contains(policy) {
            listed.push(*policy);
        }
    }
    listed
}

fn papers(flags: &PaperFlags) -> Result<(), Failure> {
    flags.output.prepare()?;
    let is_counting = flags.names.iter().any(|name| name == "count");
    let is_requested =
        |paper: &&Paper| is_counting || flags.names.iter().any(|name| name == "all" || name == paper.name);
    let model = flags.machine.as_deref().map(model).transpose()?;
    let known = KnownRuns::default();
    let papers: Vec<_> = PAPERS.iter().filter(is_requested).collect();
    let simulation_count = papers.iter().map(|paper| paper.simulation_count(!is_counting)).sum();
    let shown = Progress::new("simulating");
    shown.advance(0, simulation_count);
    let progress = |count: u64| shown.advance(count, simulation_count);
    let mut reports = Vec::new();
    for paper in papers {
        let jobs = flags.output.jobs();
        let options = PaperOptions {
            seed: flags.seed,
            jobs,
            share: flags.share,
            model: model.clone(),
            varies_assumptions: !is_counting,
            known: &known,
            progress: &progress,
            dry_run: false,
        };
        let report = paper.simulate(&options).map_err(|error| {
            Failure::runtime(format!("cannot simulate {}: {error}", paper.name), "remove --machine and --share")
        })?;
        shown.beside(|| show(&report, &flags.output))?;
        reports.push(report);
    }
    shown.finish();
    if reports.len() == PAPERS.len() { show(&Paper::account(&reports), &flags.output) } else { Ok(()) }
}

fn show(report: &Report, flags: &OutputFlags) -> Result<(), Failure> {
    match flags.output {
        OutputForm::Table => print_line!("{}", report.to_text()),
        OutputForm::Json => output::print(format_args!("{}", report.to_json())),
        OutputForm::Csv => output::print(format_args!("{}", report.to_csv())),
    }?;
    flags.plots.as_deref().map_or(Ok(()), |folder| draw(report, folder))
}

fn draw(report: &Report, folder: &Path) -> Result<(), Failure> {
    if report.figures.is_empty() {
        tell!("drew nothing of \"{}\": it has tables only", report.title);
    }
    for figure in &report.figures {
        let drawn = figure.draw(folder).map_err(|error| {
            let problem = format!("cannot draw {} into {}: {error}", figure.name, folder.display());
            Failure::runtime(problem, "check that you may write to the folder")
        })?;
        tell!("drew {}", drawn.display());
    }
    Ok(())
}

fn model(name: &str) -> Result<Model, Failure> {
    Model::open(name).map_err(|error| match fs::read(name) {
        // The file exists but cannot be read, so `name` was not meant as a built-in machine.
        Err(unread) if unread.kind() != io::ErrorKind::NotFound => files::unreadable("model", Path::new(name), &unread),
        _ => Failure::usage(error.to_string(), "larder sim models lists the models"),
    })
}

fn parse_paper(text: &str) -> Result<String, BadValue> {
    if ["all", "count"].contains(&text) || Paper::named(text).is_some() {
        return Ok(text.to_owned());
    }
    let near = PAPERS.iter().max_by(|a, b| strsim::jaro(a.name, text).total_cmp(&strsim::jaro(b.name, text)));
    let near = near.map_or_else(String::new, |paper| format!("did you mean `{}`? ", paper.name));
    Err(BadValue::new(format!("unknown table or figure: `{text}`"), format!("{near}larder sim papers lists them")))
}

fn parse_policies(text: &str) -> Result<PolicyList, BadValue> {
    if text == "all" {
        return Ok(PolicyList(Policy::all().iter().collect()));
    }
    if text == "none" {
        return Ok(PolicyList(Vec::new()));
    }
    let policy = Policy::named(text).ok_or_else(|| {
        let names = ["all", "none"].into_iter().chain(Policy::all().iter().map(|policy| policy.name));
        BadValue::new(format!("unknown policy: `{text}`"), value::names_help("policies", text, names))
    })?;
    Ok(PolicyList(vec![policy]))
}

fn parse_share(text: &str) -> Result<f64, BadValue> {
    let share = text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| {
        BadValue::new(format!("not a share: `{text}`"), "give a number above 0 and up to 1, such as 0.1")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_told_with_what_there_is() {
        assert!(parse_paper("markatos-tabel2").unwrap_err().help.contains("`markatos-table2`"));
        assert!(parse_policies("lru").unwrap_err().help.contains("hashcache-log"));
        assert_eq!(parse_policies("all").unwrap().0.len(), Policy::all().len());
        assert!(parse_share("1.5").is_err() && parse_share("0.5").is_ok());
    }
}
