//! `larder explain` and `larder show`: what a running proxy's cache would do with a request, the reasons, and the
//! stored responses of its URL.
//!
//! Owns: the flags. The proxy decides and examines its store. Invariant: nothing is fetched.

use crate::{
    admin_client::{self, AdminFlags},
    failure::Failure,
    output, value,
};
use clap::Args;

pub(crate) const EXPLAIN_EXAMPLES: &str = "\
Examples:
  larder explain http://example.com/style.css
  larder explain --field 'Accept-Language: de' http://example.com/";

pub(crate) const SHOW_EXAMPLES: &str = "\
Examples:
  larder show http://example.com/style.css
  larder show --field 'Accept-Language: de' http://example.com/

The output begins with that of `larder explain`: the outcome of a request and the reason. Then follows \
the stored response: when it was requested and received, its tags, chunks, location, earliest eviction \
and fields.";

/// The request that either is about.
#[derive(Debug, Args)]
pub(crate) struct RequestFlags {
    #[command(flatten)]
    admin: AdminFlags,

    /// A field that the request has, which may select a variant; can be repeated.
    #[arg(long = "field", value_name = "NAME: VALUE", value_parser = value::field_line)]
    fields: Vec<String>,

    /// The URL that is asked for
    #[arg(value_name = "URL")]
    url: String,
}

impl RequestFlags {
    /// Prints what would happen to the request, and why.
    ///
    /// # Errors
    /// A usage failure for an invalid URL; a runtime failure if the proxy is unreachable or refuses.
    pub(crate) fn explain(&self) -> Result<(), Failure> {
        self.tell("EXPLAIN")
    }

    /// Prints that, and what is stored of the URL.
    ///
    /// # Errors
    /// As [`Self::explain`].
    pub(crate) fn show(&self) -> Result<(), Failure> {
        self.tell("SHOW")
    }

    fn tell(&self, method: &str) -> Result<(), Failure> {
        admin_client::check_url(&self.url)?;
        let lines: String = self.fields.iter().map(|line| format!("{line}\r\n")).collect();
        let told = admin_client::ask(self.admin, &format!("{method} {}", self.url), &lines)?;
        output::print(format_args!("{told}"))
    }
}
