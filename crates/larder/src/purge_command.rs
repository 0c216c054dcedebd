//! `larder purge`: has a running proxy forget what it stored.
//!
//! Owns: the flags. Does not: forget anything itself, the proxy's admin listener is asked to.
//! Invariant: it says that something is purged only if the proxy said so.

use crate::{
    admin_client::{self, AdminFlags},
    failure::Failure,
    output::print_line,
};
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  larder purge http://example.com/style.css
  larder purge --site http://example.com/
  larder purge --admin 127.0.0.1:3180 --all";

/// The flags of `larder purge`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PurgeFlags {
    #[command(flatten)]
    admin: AdminFlags,

    /// Forget everything of each URL's host, whatever its port and path.
    #[arg(long, conflicts_with = "all")]
    site: bool,

    /// Forget everything.
    #[arg(long, conflicts_with = "urls")]
    all: bool,

    /// The URL to forget, with all its variants
    #[arg(value_name = "URL", required_unless_present = "all")]
    urls: Vec<String>,
}

/// Runs it.
///
/// # Errors
/// A usage failure for what is no URL; a runtime failure if the proxy cannot be reached or refuses.
pub(crate) fn run(flags: &PurgeFlags) -> Result<(), Failure> {
    if flags.all {
        return purge(flags.admin, "http://all.invalid/", "all", "everything");
    }
    let scope = if flags.site { "site" } else { "url" };
    for url in &flags.urls {
        admin_client::check_url(url)?;
        purge(flags.admin, url, scope, url)?;
    }
    Ok(())
}

/// Asks for it, and prints what the proxy says became of `shown`.
fn purge(admin: AdminFlags, url: &str, scope: &str, shown: &str) -> Result<(), Failure> {
    let said = admin_client::ask(admin, &format!("PURGE {url}"), &format!("Purge-Scope: {scope}\r\n"))?;
    print_line!("{}: {shown}", said.trim_end())
}
