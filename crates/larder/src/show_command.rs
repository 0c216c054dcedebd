//! `larder show`: what a running proxy has stored of a URL.
//!
//! Owns: the flags. Does not: look, the proxy does and is asked. Invariant: nothing is fetched for it.

use crate::{
    admin_client::{self, AdminFlags},
    failure::Failure,
    output, value,
};
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  larder show http://example.com/style.css
  larder show --field 'Accept-Language: de' http://example.com/

It says first what larder explain says: what a request would come to, and why; then what lies there: when
it was asked for and received, its tags, its chunks, where it lies, when it may go, and its fields.";

/// The flags of `larder show`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowFlags {
    #[command(flatten)]
    admin: AdminFlags,

    /// A field that the request has, which may select a variant; can be repeated.
    #[arg(long = "field", value_name = "NAME: VALUE", value_parser = value::field_line)]
    fields: Vec<String>,

    /// The URL
    #[arg(value_name = "URL")]
    url: String,
}

/// Runs it.
///
/// # Errors
/// A usage failure for what is no URL; a runtime failure if the proxy cannot be reached or refuses.
pub(crate) fn run(flags: &ShowFlags) -> Result<(), Failure> {
    admin_client::check_url(&flags.url)?;
    let lines: String = flags.fields.iter().map(|line| format!("{line}\r\n")).collect();
    let told = admin_client::ask(flags.admin, &format!("SHOW {}", flags.url), &lines)?;
    output::print(format_args!("{told}"))
}
