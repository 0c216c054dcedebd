//! Guards against a help text that is too long to be read, or whose lines are wrapped twice.

use crate::process::{command, said};
use tempfile::TempDir;

/// Widths of common terminals.
const WIDTHS: [usize; 2] = [80, 100];

/// Wider than any line, so that nothing is wrapped.
const UNWRAPPED: usize = 10_000;

/// Returns the lines of a command's help in a terminal of this width.
fn help(home: &TempDir, command_name: &[&str], width: usize) -> Vec<String> {
    let output =
        command(home.path()).env("COLUMNS", width.to_string()).args(command_name).arg("--help").output().unwrap();
    assert!(output.status.success(), "{command_name:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Returns the names of the commands below the one with this help.
fn commands(lines: &[String]) -> Vec<String> {
    let listed = lines.iter().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Adds the faults in the help of a command and its subcommands to `faults`.
fn check(home: &TempDir, command_name: &[&str], faults: &mut Vec<String>) {
    let whole = help(home, command_name, UNWRAPPED);
    let mut paragraph_line = "";
    for line in &whole {
        let is_prose = !line.is_empty() && !line.starts_with(' ');
        if is_prose && !paragraph_line.is_empty() {
            faults.push(format!("{command_name:?}: a paragraph of several lines: {line}"));
        }
        paragraph_line = if is_prose { line } else { "" };
    }
    for width in WIDTHS {
        let wrapped = help(home, command_name, width);
        let mut examples = whole.iter().skip_while(|line| *line != "Examples:").take_while(|line| !line.is_empty());
        if let Some(line) = examples.find(|line| !wrapped.contains(line)) {
            faults.push(format!("{command_name:?}: an example that does not fit {width} columns: {line}"));
        }
        if let Some(line) = wrapped.iter().find(|line| line.len() > width) {
            faults.push(format!("{command_name:?}: a line that does not fit {width} columns: {line}"));
        }
    }
    for name in commands(&whole) {
        check(home, &[command_name, &[name.as_str()]].concat(), faults);
    }
}

#[test]
fn help_of_run_has_under_100_lines() {
    let home = TempDir::new().unwrap();
    for width in WIDTHS {
        let lines = help(&home, &["run"], width);
        assert!(lines.len() < 100, "{} lines at {width} columns", lines.len());
    }
}

#[test]
fn no_help_is_wrapped_twice() {
    let home = TempDir::new().unwrap();
    let mut faults = Vec::new();
    check(&home, &[], &mut faults);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn help_tuning_lists_every_policy_and_constant() {
    let home = TempDir::new().unwrap();
    let topic = said(&home, &["help", "tuning"]);
    for name in ["hashcache-log-lru", "auto", "reinsertion_share", "esp_level_count", "default 1.3"] {
        assert!(topic.contains(name), "no {name} in {topic}");
    }
    assert_eq!(said(&home, &["tuning"]), topic);
    assert!(said(&home, &["run", "--help"]).contains("larder help tuning"));
}
