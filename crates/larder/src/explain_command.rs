//! `larder explain`: what a running proxy's cache would do with a request, and why.
//!
//! Owns: the flags. Does not: decide, the proxy does and is asked. Invariant: nothing is fetched for it.

use crate::{
    admin_client::{self, AdminFlags},
    failure::Failure,
    output, value,
};
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  larder explain http://example.com/style.css
  larder explain --field 'Accept-Language: de' http://example.com/";

/// The flags of `larder explain`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExplainFlags {
    #[command(flatten)]
    admin: AdminFlags,

    /// A field that the request has; can be repeated.
    #[arg(long = "field", value_name = "NAME: VALUE", value_parser = value::field_line)]
    fields: Vec<String>,

    /// The URL that is asked for
    #[arg(value_name = "URL")]
    url: String,
}

/// Runs it.
///
/// # Errors
/// A usage failure for what is no URL; a runtime failure if the proxy cannot be reached or refuses.
pub(crate) fn run(flags: &ExplainFlags) -> Result<(), Failure> {
    admin_client::check_url(&flags.url)?;
    let lines: String = flags.fields.iter().map(|line| format!("{line}\r\n")).collect();
    let told = admin_client::ask(flags.admin, &format!("EXPLAIN {}", flags.url), &lines)?;
    output::print(format_args!("{told}"))
}
