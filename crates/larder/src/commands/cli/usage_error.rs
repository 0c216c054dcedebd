//! Rewords the parser's errors about the command line.
//!
//! Owns: the wording, and the help that a mistake points to. Invariant: an error about a value says which values are
//! valid.

use super::Cli;
use crate::ground::{
    failure::Failure,
    value::{self, BadValue},
};
use clap::{
    CommandFactory,
    error::{ContextKind, ContextValue, ErrorKind},
};
use std::{error::Error, ffi::OsString};

/// Returns the failure to show for an error of the command-line parser. `arguments` begin with the program's name.
/// Returns `None` if the user requested help or the version.
pub(crate) fn failure(error: &clap::Error, arguments: impl IntoIterator<Item = OsString>) -> Option<Failure> {
    let command = command_of(arguments);
    let help = format!("see {command} --help");
    let flag = text_of(error, ContextKind::InvalidArg);
    let value = text_of(error, ContextKind::InvalidValue);
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            None
        }
        ErrorKind::ValueValidation => Some(refused_by_parser(error, name_of(&flag), &value, &help)),
        ErrorKind::InvalidValue if !value.is_empty() => {
            let valid = texts_of(error, ContextKind::ValidValue);
            let names = value::names_help("values", &value, valid.iter().map(String::as_str));
            let whose = if flag.starts_with('-') { format!("{}: ", name_of(&flag)) } else { String::new() };
            Some(Failure::usage(format!("{whose}unknown value: `{value}`"), format!("{names}; {help}")))
        }
        ErrorKind::UnknownArgument => {
            let suggested = text_of(error, ContextKind::SuggestedArg);
            let peers = PEER_FLAGS.iter().find(|(peers, _)| *peers == name_of(&flag));
            let help = match (peers, suggested.as_str()) {
                (Some((_, own)), _) if command == "larder run" => format!("did you mean `{own}`? {help}"),
                (_, "") if command == "larder run" && is_configuration(&flag) => {
                    format!("did you mean `--config {flag}`? {help}")
                }
                (_, "") => format!("{command} --help lists the flags"),
                (_, suggested) => format!("did you mean `{suggested}`? {help}"),
            };
            Some(Failure::usage(format!("unknown flag or argument: `{flag}`"), help))
        }
        ErrorKind::MissingRequiredArgument => Some(Failure::usage(format!("missing: {flag}"), help)),
        ErrorKind::InvalidSubcommand => {
            let name = text_of(error, ContextKind::InvalidSubcommand);
            // clap's own suggestion misses names in which letters are swapped.
            let suggested = text_of(error, ContextKind::SuggestedSubcommand);
            let root = Cli::command();
            let is_here = |own: &str| command == "larder" && root.find_subcommand(own).is_some();
            let suggested = match PEER_COMMANDS.iter().find(|(peers, own)| *peers == name && is_here(own)) {
                Some((_, own)) => Some((*own).to_owned()),
                None if suggested.is_empty() => nearest_command(&command, &name),
                None => Some(suggested),
            };
            let help = match suggested {
                None => format!("{command} --help lists the commands"),
                Some(suggested) => format!("did you mean `{suggested}`? {help}"),
            };
            Some(Failure::usage(format!("unknown command: `{name}`"), help))
        }
        _ => {
            let text = error.to_string();
            let problem = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            Some(Failure::usage(problem, help))
        }
    }
}

/// Makes the failure for a value that the parser of this flag refused.
fn refused_by_parser(error: &clap::Error, flag: &str, value: &str, help: &str) -> Failure {
    match error.source().map(|source| (source.downcast_ref::<BadValue>(), source)) {
        Some((Some(bad), _)) => Failure::usage(format!("{flag}: {}", bad.problem), format!("{}; {help}", bad.help)),
        Some((None, source)) => {
            Failure::usage(format!("{flag}: value not accepted: `{value}`"), format!("{source}; {help}"))
        }
        None => Failure::usage(format!("{flag}: value not accepted: `{value}`"), help),
    }
}

/// Flags of other proxies, each with the flag of `larder run` that does the same.
const PEER_FLAGS: [(&str, &str); 4] =
    [("--port", "--listen"), ("--http-port", "--listen"), ("--upstream", "--origin"), ("--proxy-pass", "--origin")];

/// Commands of other proxies, each with Larder's command that does the same.
const PEER_COMMANDS: [(&str, &str); 3] = [("serve", "run"), ("start", "run"), ("status", "top")];

/// Returns whether an argument looks like the path of a configuration file.
fn is_configuration(argument: &str) -> bool {
    !argument.starts_with('-') && argument.ends_with(".toml")
}

/// Returns the subcommand of `parent` of which `name` is probably a misspelling. `parent` is a full command, such as
/// `larder config`.
fn nearest_command(parent: &str, name: &str) -> Option<String> {
    let root = Cli::command();
    let parent = parent.split(' ').skip(1).try_fold(&root, |command, name| command.find_subcommand(name))?;
    let shown = parent.get_subcommands().filter(|command| !command.is_hide_set());
    value::nearest(name, shown.map(clap::Command::get_name)).map(str::to_owned)
}

/// Returns a flag without its values: the text before the first space.
fn name_of(flag: &str) -> &str {
    flag.split(' ').next().unwrap_or(flag)
}

fn text_of(error: &clap::Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::StyledStr(text)) => text.to_string(),
        _ => texts_of(error, kind).join(", "),
    }
}

fn texts_of(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

/// Returns the full command in the arguments, such as `larder config check`.
///
/// The parser's errors about values do not contain it.
fn command_of(arguments: impl IntoIterator<Item = OsString>) -> String {
    let mut command = &Cli::command();
    let mut names = vec![command.get_name()];
    for argument in arguments.into_iter().skip(1) {
        let Some(found) = command.find_subcommand(&argument) else { break };
        command = found;
        names.push(command.get_name());
    }
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn shown(arguments: &[&str]) -> String {
        let error = Cli::try_parse_from(arguments).expect_err("it is wrong");
        let failure = failure(&error, arguments.iter().map(OsString::from)).expect("no help was requested");
        format!("{failure:?}")
    }

    #[test]
    fn missing_flag_is_named() {
        let shown = shown(&["larder", "plan", "--size", "1TB"]);
        assert!(shown.contains("missing: --memory <SIZE>"), "{shown}");
    }

    #[test]
    fn probable_meaning_of_a_mistake_is_suggested() {
        for (arguments, told) in [
            (&["larder", "rnu"][..], "did you mean `run`? see larder --help"),
            (&["larder", "zzzz"], "help: \"larder --help lists the commands\""),
            (&["larder", "config", "chekc"], "did you mean `check`?"),
            (&["larder", "run", "larder.toml"], "did you mean `--config larder.toml`?"),
            (&["larder", "run", "--zzzz"], "help: \"larder run --help lists the flags\""),
            (&["larder", "serve"], "did you mean `run`? see larder --help"),
            (&["larder", "start"], "did you mean `run`? see larder --help"),
            (&["larder", "status"], "did you mean `top`? see larder --help"),
            (&["larder", "run", "--port", "80"], "did you mean `--listen`? see larder run --help"),
            (&["larder", "run", "--http-port=80"], "did you mean `--listen`?"),
            (&["larder", "run", "--upstream", "a"], "did you mean `--origin`? see larder run --help"),
            (&["larder", "run", "--proxy-pass", "a"], "did you mean `--origin`?"),
            (&["larder", "offline", "foo"], "problem: \"unknown value: `foo`\""),
            (&["larder", "run", "--offline", "foo"], "problem: \"--offline: "),
        ] {
            let shown = shown(arguments);
            assert!(shown.contains(told), "{arguments:?}: {shown}");
        }
    }

    #[test]
    fn help_of_the_very_command_is_pointed_to() {
        for (arguments, help) in [
            (&["larder", "purge", "--sofft"][..], "see larder purge --help"),
            (&["larder", "store", "format", "x", "--size", "1XB"], "see larder store format --help"),
            (&["larder", "--versio"], "see larder --help"),
        ] {
            let shown = shown(arguments);
            assert!(shown.contains(help), "{shown}");
        }
    }
}
