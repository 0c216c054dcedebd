//! `larder completions` and `larder manual`: generate shell completions and manual pages from the command line's
//! definition.
//!
//! Owns: the commands, and the names of the files. `cli` has the wording. Invariant: the pages that a package installs
//! describe the program in it.

use crate::{
    commands::cli::Cli,
    ground::{failure::Failure, output},
};
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

const EXAMPLES: &str = "\
Examples:
  larder completions bash > ~/.local/share/bash-completion/completions/larder
  larder completions zsh > ~/.zfunc/_larder
  larder completions fish > ~/.config/fish/completions/larder.fish";

/// The flags of `larder completions`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsFlags {
    /// Shell that reads the completions
    shell: Shell,
}

/// The flags of `larder manual`.
#[derive(Debug, Args)]
pub(crate) struct ManualFlags {
    /// Folder to write to
    directory: PathBuf,
}

/// Runs `larder completions`: prints the completions for a shell.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print_completions(flags: &CompletionsFlags) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(flags.shell, &mut Cli::command(), "larder", &mut text);
    output::print(format_args!("{}", String::from_utf8_lossy(&text)))
}

/// Prints the help of a command.
///
/// # Panics
/// If there is no such command.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print_help_of(name: &str) -> Result<(), Failure> {
    let mut command = Cli::command();
    command.build();
    let help = command.find_subcommand_mut(name).expect("the caller names a command").render_help();
    output::print(format_args!("{help}"))
}

/// Runs `larder manual`: writes the manual pages of all commands, and the completions for bash, zsh and fish.
///
/// # Errors
/// The directory cannot be created or written.
pub(crate) fn write_manual(flags: &ManualFlags) -> Result<(), Failure> {
    let write = |directory: &Path| -> io::Result<()> {
        fs::create_dir_all(directory)?;
        clap_mangen::generate_to(Cli::command(), directory)?;
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            clap_complete::generate_to(shell, &mut Cli::command(), "larder", directory)?;
        }
        Ok(())
    };
    write(&flags.directory).map_err(|error| {
        let help = "give a directory that you may create and write to";
        Failure::runtime(format!("cannot write: {error}: {}", flags.directory.display()), help)
    })
}
