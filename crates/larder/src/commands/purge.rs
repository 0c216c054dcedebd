//! `larder purge`: removes cached responses of a running proxy, or marks them stale.
//!
//! Owns: the flags. The proxy purges. Invariant: a purge is reported only if the proxy confirmed it.

use crate::{
    commands::{
        admin_client::{self, AdminFlags},
        url_argument,
    },
    ground::{
        failure::Failure,
        output::{print_line, tell},
    },
};
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  larder purge http://example.com/style.css           one URL, all its variants
  larder purge --prefix https://example.com/img/2026- URLs with this prefix
  larder purge --prefix example.com/img/              both http:// and https://
  larder purge --site example.com                     a host, on every port
  larder purge --tag product-17 product-18            responses with such a tag
  larder purge --soft --tag news                      stale from now on
  larder purge --admin 127.0.0.1:3180 --all

Tags are the words in a response's Surrogate-Key or Cache-Tag, in any case. A soft purge deletes \
nothing: it makes responses stale, so that Larder validates them before it serves them. \
stale-while-revalidate and stale-if-error apply as usual.

A completed purge is permanent: on every core, for running fetches, and after kill -9. If Larder cannot \
write it to disk, the command reports that and exits with 1.";

/// The flags of `larder purge`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PurgeFlags {
    #[command(flatten)]
    admin: AdminFlags,

    /// Purge every URL that begins with one of these.
    #[arg(long, conflicts_with_all = ["all", "site", "tag"])]
    prefix: bool,

    /// Purge all responses of each URL's host, for any port and path.
    #[arg(long, conflicts_with_all = ["all", "tag"])]
    site: bool,

    /// Purge every response with one of these tags (in Surrogate-Key or Cache-Tag); each argument is a tag.
    #[arg(long, conflicts_with = "all")]
    tag: bool,

    /// Purge all responses.
    #[arg(long, conflicts_with = "what")]
    all: bool,

    /// Mark responses stale instead of deleting them.
    #[arg(long)]
    soft: bool,

    /// URL to purge, with all its variants; or a prefix, site or tag with the flags below
    #[arg(value_name = "URL|TAG", required_unless_present = "all")]
    what: Vec<String>,
}

/// Runs `larder purge`.
///
/// # Errors
/// A usage failure for an invalid URL or tag; a runtime failure if the proxy is unreachable or refuses.
pub(crate) fn run(flags: &PurgeFlags) -> Result<(), Failure> {
    if flags.all {
        return purge(flags, ALL_TARGET, "Purge-Scope: all", "everything").map(drop);
    }
    if flags.tag {
        // All tags are checked before the first purge, so that an invalid tag does not leave the purge half done.
        flags.what.iter().try_for_each(|tag| check_tag(tag))?;
    }
    for what in &flags.what {
        if flags.tag {
            purge(flags, ALL_TARGET, &format!("Surrogate-Key: {what}"), what)?;
        } else if flags.prefix {
            for prefix in whole_prefixes(what) {
                let prefix = url_argument::whole_url(&prefix)?;
                purge(flags, &prefix, "Purge-Scope: prefix", &prefix)?;
            }
        } else if flags.site {
            let url = if what.contains("://") { what.clone() } else { format!("http://{what}") };
            purge(flags, &url_argument::whole_url(&url)?, "Purge-Scope: site", what)?;
        } else {
            purge_url(flags, what)?;
        }
    }
    Ok(())
}

/// Purges a URL. If nothing was stored for it and it ends with `*`, prints how to purge by prefix.
fn purge_url(flags: &PurgeFlags, what: &str) -> Result<(), Failure> {
    let url = url_argument::whole_url(what)?;
    let is_stored = purge(flags, &url, "Purge-Scope: url", what)? != NOTHING_STORED;
    if let (false, Some(prefix)) = (is_stored, url.strip_suffix('*')) {
        tell!("larder: a * in a URL is an ordinary character; to purge what begins so: larder purge --prefix {prefix}");
    }
    Ok(())
}

/// Requests a purge, and prints the first line of the proxy's response followed by `shown`, the name of what was
/// purged. Returns that first line.
fn purge(flags: &PurgeFlags, target: &str, field: &str, shown: &str) -> Result<String, Failure> {
    let mode = if flags.soft { "soft" } else { "hard" };
    let fields = format!("{field}\r\nPurge-Mode: {mode}\r\n");
    let said = admin_client::ask(flags.admin, &format!("PURGE {target}"), &fields)?;
    let (said, notes) = said.split_once('\n').unwrap_or((&said, ""));
    print_line!("{said}: {shown}")?;
    notes.lines().try_for_each(|note| print_line!("{note}"))?;
    Ok(said.to_owned())
}

/// Returns the prefix itself if it has a scheme, otherwise the prefix with each of `http` and `https`.
fn whole_prefixes(prefix: &str) -> Vec<String> {
    match prefix.contains("://") {
        true => vec![prefix.to_owned()],
        false => ["http", "https"].map(|scheme| format!("{scheme}://{prefix}")).into(),
    }
}

fn check_tag(tag: &str) -> Result<(), Failure> {
    if ["http://", "https://"].iter().any(|scheme| tag.starts_with(scheme)) {
        let help = "use one command for URLs and one for tags: larder purge URL, and larder purge --tag TAG";
        return Err(Failure::usage(format!("a URL among the tags: `{tag}`"), help));
    }
    if !tag.is_empty() && tag.bytes().all(|octet| octet.is_ascii_graphic() && octet != b',') {
        return Ok(());
    }
    let help = "name each tag as an argument of its own, as in larder purge --tag product-17 product-18";
    Err(Failure::usage(format!("not a tag (one ASCII word without a comma): {tag}"), help))
}

/// The proxy's response if it had nothing to purge.
const NOTHING_STORED: &str = "nothing was stored";
/// The URL in a request to purge everything. The proxy ignores it, but the request needs one.
const ALL_TARGET: &str = "http://all.invalid/";
