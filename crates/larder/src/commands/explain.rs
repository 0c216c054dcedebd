//! `larder explain` and `larder show`: print how a running proxy would answer a request, the reasons, and the stored
//! responses of its URL.
//!
//! Owns: the flags. The proxy decides and examines its store. Invariant: nothing is fetched.

use crate::{
    commands::{
        admin_client::{self, AdminFlags},
        url_argument,
    },
    ground::{failure::Failure, output, value},
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

/// The flags of `larder explain` and `larder show`, which describe a request.
#[derive(Debug, Args)]
pub(crate) struct RequestFlags {
    #[command(flatten)]
    admin: AdminFlags,

    /// A field of the request, which may select a variant; can be repeated.
    #[arg(long = "field", value_name = "NAME: VALUE", value_parser = value::field_line)]
    fields: Vec<String>,

    /// The URL of the request
    #[arg(value_name = "URL")]
    url: String,
}

impl RequestFlags {
    /// Runs `larder explain`: prints how the proxy would answer the request, and why.
    ///
    /// # Errors
    /// A usage failure for an invalid URL; a runtime failure if the proxy is unreachable or refuses.
    pub(crate) fn explain(&self) -> Result<(), Failure> {
        self.tell("EXPLAIN")
    }

    /// Runs `larder show`: prints how the proxy would answer the request, and the responses stored for its URL.
    ///
    /// # Errors
    /// The same as for [`Self::explain`].
    pub(crate) fn show(&self) -> Result<(), Failure> {
        self.tell("SHOW")
    }

    fn tell(&self, method: &str) -> Result<(), Failure> {
        let url = url_argument::whole_url(&self.url)?;
        let lines: String = self.fields.iter().map(|line| format!("{line}\r\n")).collect();
        let told = admin_client::ask(self.admin, &format!("{method} {url}"), &lines)?;
        output::print(format_args!("{told}"))
    }
}
