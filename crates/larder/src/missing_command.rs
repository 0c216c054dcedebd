//! `larder missing`: what a running proxy was asked for while it was offline, and did not have.
//!
//! Owns: the flags, and what is printed. Does not: keep the list, the proxy does. Invariant: with `--json` every line is an object.

use crate::{
    admin_client::{self, AdminFlags},
    failure::Failure,
    output::{self, print_line},
    size,
};
use clap::Args;
use larder_proxy::Missed;

const EXAMPLES: &str = "\
Examples:
  larder missing
  larder missing --json | jq -r .url
  larder warm --missing        fetch it, once the line is back
  larder missing --clear";

/// The flags of `larder missing`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MissingFlags {
    /// Print an object for each URL, on a line of its own
    #[arg(long, conflicts_with = "clear")]
    json: bool,

    /// Empty the list
    #[arg(long)]
    clear: bool,

    #[command(flatten)]
    admin: AdminFlags,
}

/// Runs it.
///
/// # Errors
/// The proxy cannot be reached, or what it says is no list.
pub(crate) fn run(flags: &MissingFlags) -> Result<(), Failure> {
    if flags.clear {
        let told = admin_client::ask(flags.admin, "MISSING /clear", "")?;
        return output::print(format_args!("{told}"));
    }
    let list = fetch(flags.admin)?;
    for missed in &list.missed {
        if flags.json {
            print_line!("{}", serde_json::json!(missed))?;
        } else {
            print_line!("{:>6}  {}", size::show_count(missed.count), missed.url)?;
        }
    }
    match list.unlisted_count {
        0 => Ok(()),
        more if flags.json => print_line!("{}", serde_json::json!({ "unlisted": more })),
        more => print_line!("and {} requests for what the list had no room for", size::show_count(more)),
    }
}

/// What a proxy has on its list.
pub(crate) struct List {
    pub(crate) missed: Vec<Missed>,
    pub(crate) unlisted_count: u64,
}

/// The list of a running proxy.
///
/// # Errors
/// As [`run`].
pub(crate) fn fetch(admin: AdminFlags) -> Result<List, Failure> {
    let told = admin_client::ask(admin, "MISSING /", "")?;
    let mut list = List { missed: Vec::new(), unlisted_count: 0 };
    for line in told.lines().filter(|line| !line.is_empty()) {
        let no_list = |error| {
            let help = "use the same version of larder on both ends";
            Failure::runtime(format!("what the proxy says is no list: {error}"), help)
        };
        let value: serde_json::Value = serde_json::from_str(line).map_err(no_list)?;
        match value.get("unlisted").and_then(serde_json::Value::as_u64) {
            Some(count) => list.unlisted_count = count,
            None => list.missed.push(serde_json::from_value(value).map_err(no_list)?),
        }
    }
    Ok(list)
}
