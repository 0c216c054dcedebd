//! `larder missing`: lists resources that were requested while the proxy was offline and were not cached.
//!
//! Owns: the flags, and the output. The proxy keeps the list. If no proxy runs, the list is read from the file next to
//! its store. Invariant: with `--json` every line is an object.

use crate::{
    commands::admin_client::{self, AdminFlags},
    ground::{
        failure::Failure,
        output::{self, print_line, tell},
        size,
    },
    run::control::ControlPath,
    settings::store_path,
};
use clap::Args;
use larder_proxy::MissingResource;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  larder missing
  larder missing --json | jq -r .url
  larder warm --missing                     fetch them once the uplink is back
  larder missing --disk /var/cache/larder   of a proxy that does not run
  larder missing --clear

If no Larder of yours runs, the list next to your default store is used.";

/// The flags of `larder missing`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MissingFlags {
    /// Print a JSON object for each URL, one per line
    #[arg(long, conflicts_with = "clear")]
    json: bool,

    /// Empty the list
    #[arg(long)]
    clear: bool,

    /// Store of a proxy that does not run, as in its --disk
    #[arg(long, value_name = "PATH", conflicts_with = "admin")]
    disk: Option<PathBuf>,

    #[command(flatten)]
    admin: AdminFlags,
}

/// Runs `larder missing`.
///
/// # Errors
/// The proxy is unreachable, or its response is invalid; a file cannot be read or written.
pub(crate) fn run(flags: &MissingFlags) -> Result<(), Failure> {
    let base = base_of(flags)?;
    if flags.clear {
        let told = match &base {
            Some(base) => clear(base)?,
            None => admin_client::ask(flags.admin, "MISSING /clear", "")?,
        };
        return output::print(format_args!("{told}"));
    }
    let list = match &base {
        Some(base) => read(base)?,
        None => fetch(flags.admin)?,
    };
    if list.missed.is_empty() {
        tell!("larder: no URL is missing");
    }
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
        more => print_line!("and {} requests that did not fit in the list", size::show_count(more)),
    }
}

/// Returns the store's path, from which the path of the list's file is formed. Returns `None` if the list comes from a
/// running proxy.
fn base_of(flags: &MissingFlags) -> Result<Option<PathBuf>, Failure> {
    let store = match &flags.disk {
        Some(disk) => store_path::existing(disk),
        None if flags.admin.is_named() || ControlPath::connect_any()?.is_some() => return Ok(None),
        None => store_path::default_store()?,
    };
    if !store.exists() {
        // Without a running proxy of this user and without a store, there is no list. A proxy of another user may be
        // running.
        let help = "start a proxy with larder run, or name the store of one that is not running with --disk PATH";
        return match &flags.disk {
            Some(_) => Err(Failure::runtime(format!("no such store: {}", store.display()), help)),
            None => Ok(None),
        };
    }
    Ok(store_path::state_base(&store))
}

fn read(base: &Path) -> Result<MissingReport, Failure> {
    let missed = larder_proxy::read_missed(base).map_err(|error| {
        let help = "check that you may read it; larder missing --clear starts a new list";
        Failure::runtime(format!("cannot read the list of {}: {error}", base.display()), help)
    })?;
    Ok(MissingReport { missed, unlisted_count: 0 })
}

fn clear(base: &Path) -> Result<String, Failure> {
    larder_proxy::clear_missed(base).map_err(|error| {
        let help = "check that you may write next to the store";
        Failure::runtime(format!("cannot empty the list of {}: {error}", base.display()), help)
    })?;
    Ok("the list is empty\n".to_owned())
}

/// The list that a proxy keeps of missing resources.
pub(crate) struct MissingReport {
    pub(crate) missed: Vec<MissingResource>,
    pub(crate) unlisted_count: u64,
}

/// Requests the list from a running proxy.
///
/// # Errors
/// The same as for [`run`].
pub(crate) fn fetch(admin: AdminFlags) -> Result<MissingReport, Failure> {
    let told = admin_client::ask(admin, "MISSING /", "")?;
    let mut list = MissingReport { missed: Vec::new(), unlisted_count: 0 };
    for line in told.lines().filter(|line| !line.is_empty()) {
        let no_list = |error| {
            let help = "use the same version of larder on both ends";
            Failure::runtime(format!("the proxy's response is not a list: {error}"), help)
        };
        let value: serde_json::Value = serde_json::from_str(line).map_err(no_list)?;
        match value.get("unlisted").and_then(serde_json::Value::as_u64) {
            Some(count) => list.unlisted_count = count,
            None => list.missed.push(serde_json::from_value(value).map_err(no_list)?),
        }
    }
    Ok(list)
}
