//! Keeps the reference of the command line equal to what `--help` prints.

use super::root;
use crate::process::said;
use std::{env, fs};
use tempfile::TempDir;

const PAGE: &str = "docs/reference/command-line.md";

/// Writes the page instead of comparing it.
const WRITE: &str = "LARDER_WRITE_DOCS";

const OPENING: &str = "# Command line

This page contains the help of every command, as `larder COMMAND --help` prints it. A test keeps it up to date; after a
change of the help, write it with
`LARDER_WRITE_DOCS=1 cargo test -p larder --test it reference_of_the_command_line_is_the_help_of_every_command`.

Sizes, durations, networks and addresses are written as in the [configuration](configuration.md).
[Errors and exit codes](errors.md) lists the codes.
";

#[test]
fn reference_of_the_command_line_is_the_help_of_every_command() {
    let home = TempDir::new().unwrap();
    let mut page = OPENING.to_owned();
    add(&home, &mut page, &[]);
    let path = root().join(PAGE);
    if env::var_os(WRITE).is_some() {
        fs::write(&path, &page).unwrap();
    }
    let is_current = fs::read_to_string(&path).is_ok_and(|text| text == page);
    assert!(is_current, "{PAGE} is not what --help prints: write it as its first paragraph says");
}

/// Adds the help of a command and of those below it.
fn add(home: &TempDir, page: &mut String, command: &[&str]) {
    let help = said(home, &[command, &["--help"]].concat());
    let title = [&["larder"], command].concat().join(" ");
    let lines: Vec<_> = help.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    *page += &format!("\n## {title}\n\n```text\n{}```\n", lines.concat());
    for name in commands(&help) {
        add(home, page, &[command, &[name]].concat());
    }
}

/// Returns the names of the commands that a help lists.
fn commands(help: &str) -> impl Iterator<Item = &str> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help")
}
