//! `larder`: the caching web proxy as a program.
//!
//! Owns: what happens from the command line to the exit code. Does not: any proxying or storing (see the crates
//! `larder-proxy` and `larder-store`). Exit codes: 0 done, 1 something failed, 2 wrong flag or configuration.

mod cli;
mod config;
mod duration;
mod failure;
mod settings;
mod size;
mod value;

use clap::Parser;
use cli::{Cli, Command, ConfigCommand};
use failure::Failure;
use settings::Settings;
use std::{path::Path, process::ExitCode};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            return match cli::failure(&error) {
                Some(failure) => failure.report(),
                None => error.exit(),
            };
        }
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Run(flags) => {
            let mut settings = Settings::default();
            if let Some(path) = &flags.config {
                config::apply(path, &mut settings)?;
            }
            flags.apply(&mut settings);
            settings.check()?;
            Ok(())
        }
        Command::Config(ConfigCommand::Check { file }) => check_config(&file),
    }
}

fn check_config(file: &Path) -> Result<(), Failure> {
    let mut settings = Settings::default();
    config::apply(file, &mut settings)?;
    settings.check()?;
    println!("{}: ok", file.display());
    Ok(())
}
