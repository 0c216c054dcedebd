//! Runs the program from the command line to the exit code.
//!
//! Owns: the choice of the command, and the destination of diagnostics. Proxying and storing are in the crates
//! `larder-proxy` and `larder-store`. Exit codes: 0 means success, 1 a failure, 2 an invalid flag or configuration.

use crate::{
    commands::{
        self,
        cli::{self, Cli, CliCommand, ConfigCommand, RunFlags},
        exec::isolated,
        exec_server,
    },
    ground::{
        failure::Failure,
        machine,
        output::{self, print_line, tell},
        panics,
    },
    run::{upgrade::Takeover, wiring},
    settings::{
        RunSettings, authority_files, config, files,
        memory_plan::{self, TotalMemory},
        volumes,
    },
};
use clap::Parser;
use std::{env, io, path::Path, process::ExitCode, sync::Arc};
use tracing_subscriber::EnvFilter;

/// Runs the command that the process's arguments name. Returns the exit code.
pub fn main() -> ExitCode {
    panics::end_the_program();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            return match cli::failure(&error, env::args_os()) {
                Some(failure) => failure.report(),
                None => output::help(&error),
            };
        }
    };
    let cli = match cli.command {
        CliCommand::Exec(flags) => return commands::exec::run(flags).unwrap_or_else(Failure::report),
        CliCommand::ExecIsolated(flags) => return isolated::run(&flags),
        command => Cli { command },
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        CliCommand::Run(flags) => {
            let taking = if flags.take_over { Some(Takeover::begin()?) } else { None };
            let read = move || settings_of(&flags);
            start_diagnostics();
            let outcome = read().and_then(|settings| wiring::run(&settings, Arc::new(read), taking.as_ref()));
            if let (Err(failure), Some(taking)) = (&outcome, &taking) {
                taking.tell_failed(failure);
            }
            outcome
        }
        CliCommand::Store(command) => {
            start_diagnostics();
            commands::store::run(command)
        }
        #[cfg(feature = "lab")]
        CliCommand::Lab(command) => {
            if command.has_diagnostics() {
                start_diagnostics();
            }
            crate::commands::lab::run(command)
        }
        #[cfg(not(feature = "lab"))]
        CliCommand::NoLab(_) => Err(crate::commands::no_lab::failure()),
        CliCommand::Purge(flags) => commands::purge::run(&flags),
        CliCommand::Ls(flags) => commands::ls::run(&flags),
        CliCommand::Show(flags) => flags.show(),
        CliCommand::Explain(flags) => flags.explain(),
        #[cfg(feature = "top")]
        CliCommand::Top(flags) => crate::commands::top::run(&flags),
        CliCommand::Reload(flags) => commands::reload::run(&flags),
        CliCommand::Upgrade(flags) => commands::upgrade::run(&flags),
        CliCommand::Offline(flags) => commands::offline::run(&flags),
        CliCommand::Missing(flags) => commands::missing::run(&flags),
        CliCommand::Warm(flags) => commands::warm::run(&flags),
        CliCommand::Pack(flags) => commands::pack::pack(&flags),
        CliCommand::Unpack(flags) => commands::pack::unpack(&flags),
        CliCommand::Pin(flags) => commands::pin::pin(&flags),
        CliCommand::Unpin(flags) => commands::pin::unpin(&flags),
        CliCommand::Exec(_) | CliCommand::ExecIsolated(_) => unreachable!("it has an exit code of its own"),
        CliCommand::ExecServer(flags) => {
            start_diagnostics();
            exec_server::run(&flags)
        }
        CliCommand::Env(flags) => commands::env::run(&flags),
        CliCommand::Tuning => commands::manual::print_help_of("tuning"),
        CliCommand::Completions(flags) => commands::manual::print_completions(&flags),
        CliCommand::Manual(flags) => commands::manual::write_manual(&flags),
        CliCommand::Mirror(command) => commands::mirror::run(command),
        CliCommand::Ca(command) => commands::ca::run(command),
        CliCommand::Service(command) => commands::service::run(&command),
        CliCommand::Cluster(command) => commands::cluster::run(command),
        CliCommand::Config(ConfigCommand::Check { file }) => {
            let mut settings = read_config(Some(&file))?;
            if let Some(warning) = settings.warn_of_direct_hosts() {
                tell!("warning: {warning}");
            }
            Failure::all([check(&mut settings), check_start(settings)])?;
            print_line!("{}: ok", file.display())
        }
        CliCommand::Config(ConfigCommand::Default) => output::print(format_args!("{}", config::default_file())),
        CliCommand::Config(ConfigCommand::Print { file }) => {
            let mut settings = read_config(Some(&file))?;
            check(&mut settings)?;
            let text = std::fs::read_to_string(&file).map_err(|error| config::unreadable(&file, &error))?;
            output::print(format_args!("{}", config::effective_file(&text)))
        }
    }
}

/// Returns the settings of the configuration file, overridden by the flags.
fn settings_of(flags: &RunFlags) -> Result<RunSettings, Failure> {
    let mut settings = read_config(flags.config.as_deref())?;
    flags.clone().apply(&mut settings);
    check(&mut settings)?;
    Ok(settings)
}

/// Refuses a memory size that exceeds the memory of this machine.
fn check_memory(settings: &RunSettings) -> Result<(), Failure> {
    let given = if let TotalMemory::Bytes(bytes) = settings.memory { Some(bytes) } else { settings.memory_cache };
    machine::check_memory(given.unwrap_or(0))
}

/// Refuses settings that contradict each other, exceed this machine's resources, or name unusable files. If
/// interception is on and no CA is named, the user's CA is used.
fn check(settings: &mut RunSettings) -> Result<(), Failure> {
    let contradictions = settings.check();
    let authority = authority_files::settle(settings);
    Failure::all([contradictions, authority, files::check(settings), check_memory(settings)])
}

/// Starts printing log messages on standard error: warnings and errors, or the selection in the variable `LARDER_LOG`.
fn start_diagnostics() {
    // The NATS client logs each failed connection as an error. Its messages are off, because Larder itself reports a
    // log that it cannot read.
    let filter = EnvFilter::try_from_env("LARDER_LOG").unwrap_or_else(|_| EnvFilter::new("warn,async_nats=off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(output::has_colors(&io::stderr()))
        .log_internal_errors(false)
        .init();
}

/// Returns the settings of a configuration file. Without one, returns the defaults.
fn read_config(file: Option<&Path>) -> Result<RunSettings, Failure> {
    let mut settings = RunSettings::default();
    if let Some(file) = file {
        config::apply(file, &mut settings)?;
    }
    Ok(settings)
}

/// Refuses settings with which `larder run` would certainly not start on this machine.
fn check_start(mut settings: RunSettings) -> Result<(), Failure> {
    let tier = settings.proxy.tier.folder.as_deref().map_or(Ok(()), files::check_tier);
    // If the store's settings are invalid, the check of the settings reports that, and its disks need no check.
    if settings.store.check().is_err() {
        return tier;
    }
    let store = volumes::check(&settings.store).and_then(|()| {
        // The sizes that this computes depend on the memory that is free now, and are dropped. Its errors are wanted.
        memory_plan::fit(&mut settings, None).map(drop)
    });
    Failure::all([store, tier])
}
