//! `larder sim`: the laboratory, in which the shipping engine runs in virtual time on modelled machines.
//!
//! Owns: the flags of these commands and what they print. Does not: simulate (see the crate `larder-sim`). Results go to
//! standard output, progress to standard error and only if that is a terminal.

use crate::{failure::Failure, value::BadValue};
use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use larder_sim::{MODELS, Model, PAPERS, Paper, PaperOptions, Report, jobs_default};
use std::path::{Path, PathBuf};

/// What to simulate.
#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Reproduce a table or figure of a paper, the printed values beside the simulated ones.
    Paper(PaperFlags),
    /// List the tables and figures that can be reproduced.
    Papers,
    /// List the machines, or the parameters of one with their sources.
    Models {
        /// The machine, or a file with one.
        name: Option<String>,
    },
}

/// The flags of `larder sim paper`.
#[derive(Debug, Args)]
pub(crate) struct PaperFlags {
    /// Names of tables and figures, or `all`; see `larder sim papers`.
    #[arg(required = true, value_parser = parse_paper)]
    names: Vec<String>,

    /// Seed of the workload
    #[arg(long, default_value_t = 11)]
    seed: u64,

    /// Share of the paper's operations to run, for a first look
    #[arg(long, default_value_t = 1.0, value_parser = parse_share)]
    share: f64,

    /// Another machine than the paper's: a name from `larder sim models`, or a file
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,

    #[command(flatten)]
    output: OutputFlags,
}

/// How results are shown, for every simulation.
#[derive(Debug, Args)]
pub(crate) struct OutputFlags {
    /// How to print the results
    #[arg(long, value_enum, default_value_t = Shown::Table)]
    output: Shown,

    /// Draw the figures into this folder, as SVG and PNG
    #[arg(long, value_name = "FOLDER")]
    plots: Option<PathBuf>,

    /// Simulations at a time [default: one per processor]
    #[arg(long, value_name = "COUNT")]
    jobs: Option<usize>,
}

/// Forms of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shown {
    Table,
    Json,
    Csv,
}

/// Runs `command`.
///
/// # Errors
/// A failure that says what to do.
pub(crate) fn run(command: SimCommand) -> Result<(), Failure> {
    match command {
        SimCommand::Paper(flags) => papers(&flags),
        SimCommand::Papers => {
            PAPERS.iter().for_each(|paper| println!("{:24} {}", paper.name, paper.about));
            Ok(())
        }
        SimCommand::Models { name: None } => {
            for (name, _) in MODELS {
                println!("{name:16} {}", model(name)?.about);
            }
            Ok(())
        }
        SimCommand::Models { name: Some(name) } => {
            let model = model(&name)?;
            println!("{}", model.about);
            for note in model.notes {
                println!("  {:36} {:>16}  {}", note.name, note.value, note.source);
            }
            Ok(())
        }
    }
}

fn papers(flags: &PaperFlags) -> Result<(), Failure> {
    let is_asked_for = |paper: &&Paper| flags.names.iter().any(|name| name == "all" || name == paper.name);
    let model = flags.model.as_deref().map(model).transpose()?;
    for paper in PAPERS.iter().filter(is_asked_for) {
        let bar = progress_bar(paper.name);
        let progress = |count: u64| {
            bar.set_length(count);
            bar.inc(1);
        };
        let jobs = flags.output.jobs.unwrap_or_else(jobs_default);
        let options =
            PaperOptions { seed: flags.seed, jobs, share: flags.share, model: model.clone(), progress: &progress };
        let simulated = paper.simulate(&options);
        bar.finish_and_clear();
        let report = simulated.map_err(|error| {
            Failure::runtime(format!("cannot simulate {}: {error}", paper.name), "leave out --model and --share")
        })?;
        show(&report, &flags.output)?;
    }
    Ok(())
}

fn show(report: &Report, flags: &OutputFlags) -> Result<(), Failure> {
    match flags.output {
        Shown::Table => println!("{}", report.to_text()),
        Shown::Json => print!("{}", report.to_json()),
        Shown::Csv => print!("{}", report.to_csv()),
    }
    flags.plots.as_deref().map_or(Ok(()), |folder| draw(report, folder))
}

fn draw(report: &Report, folder: &Path) -> Result<(), Failure> {
    for figure in &report.figures {
        let drawn = figure.draw(folder).map_err(|error| {
            let problem = format!("cannot draw {} into {}: {error}", figure.name, folder.display());
            Failure::runtime(problem, "check that the folder can be written to")
        })?;
        drawn.iter().for_each(|path| eprintln!("drew {}", path.display()));
    }
    Ok(())
}

fn model(name: &str) -> Result<Model, Failure> {
    Model::open(name).map_err(|error| Failure::usage(error.to_string(), "see larder sim models"))
}

/// Drawn on standard error, and only if that is a terminal.
fn progress_bar(what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {bar:40} {pos} of {len}, {elapsed}, {eta} left")
        .expect("the template is right");
    ProgressBar::new(0).with_style(style).with_message(what.to_owned())
}

fn parse_paper(text: &str) -> Result<String, BadValue> {
    if text == "all" || Paper::named(text).is_some() {
        return Ok(text.to_owned());
    }
    let near = PAPERS.iter().max_by(|a, b| strsim::jaro(a.name, text).total_cmp(&strsim::jaro(b.name, text)));
    let near = near.map_or_else(String::new, |paper| format!("did you mean `{}`? ", paper.name));
    Err(BadValue::new(format!("no such table or figure: `{text}`"), format!("{near}see larder sim papers")))
}

fn parse_share(text: &str) -> Result<f64, BadValue> {
    let share = text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| BadValue::new(format!("no share: `{text}`"), "a share is over 0 and up to 1, such as 0.1"))
}
