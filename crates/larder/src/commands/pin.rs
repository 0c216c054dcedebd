//! `larder pin` and `larder unpin`: protect stored responses of a running proxy from eviction.
//!
//! Owns: the flags, the lists, and the output. The proxy pins. Invariant: a response is reported as pinned only if the
//! proxy confirmed it.

use crate::{
    commands::{
        admin_client::{self, AdminFlags, ProgressEvent, SentBody},
        url_list::{self, ListSource},
    },
    ground::{failure::Failure, output::print_line, progress::ProgressLine, size},
};
use clap::Args;
use larder_http::UrlPattern;
use serde_json::Value;

const PIN_EXAMPLES: &str = "\
Examples:
  larder pin 'http://deb.debian.org/*'      all of a site; * is any characters
  larder pin https://example.com/map.png    one URL
  larder pin docs.example.com wanted.txt    a host; a file of patterns
  larder pin                                list pins and their space

A pinned entry is not evicted for space, now or later, also after a restart. A purge removes it all the \
same. Pinned entries use at most a quarter of the store (store.tuning.pin_share); a pin beyond that is \
refused with figures. The policies log (the default) and log-clock support pins. Exit codes: 0 done, 1 \
refused, 2 not a pattern.";

const UNPIN_EXAMPLES: &str = "\
Examples:
  larder unpin 'http://deb.debian.org/*'
  larder unpin --all

An unpinned entry stays stored until its space is needed.";

/// The flags of `larder pin`.
#[derive(Debug, Args)]
#[command(after_help = PIN_EXAMPLES)]
pub(crate) struct PinFlags {
    /// Patterns of URLs, and files that list them; `-` is standard input; without any, list the pins
    #[arg(value_name = "PATTERN|LIST")]
    sources: Vec<String>,

    /// Print JSON: an object for each pattern, and one for the total
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    admin: AdminFlags,
}

/// The flags of `larder unpin`.
#[derive(Debug, Args)]
#[command(after_help = UNPIN_EXAMPLES)]
pub(crate) struct UnpinFlags {
    /// Patterns as they were pinned, and files that list them
    #[arg(value_name = "PATTERN|LIST", required_unless_present = "all")]
    sources: Vec<String>,

    /// Unpin everything
    #[arg(long, conflicts_with = "sources")]
    all: bool,

    #[command(flatten)]
    admin: AdminFlags,
}

/// Runs `larder pin`.
///
/// # Errors
/// An argument is neither a pattern nor a list, or the proxy is unreachable or refuses.
pub(crate) fn pin(flags: &PinFlags) -> Result<(), Failure> {
    let patterns = patterns(&flags.sources)?;
    let shown = ProgressLine::new("reading the store");
    let mut before = 0;
    let mut tell = |told: ProgressEvent<'_>| {
        match told {
            ProgressEvent::Progress { done, of } => {
                shown.advance(done.saturating_sub(before), of);
                before = done;
            }
            ProgressEvent::Line(line) => print_pattern(line, flags.json)?,
            ProgressEvent::Data(_) => {}
        }
        Ok(())
    };
    let done = ask(flags.admin, "PIN /", &patterns, &mut tell)?;
    shown.finish();
    if flags.json {
        print_line!("{done}")?;
        return check_recorded(&done);
    }
    let all = share(&done["all"]);
    let count = number(&done["responses"]);
    let bytes = number(&done["bytes"]);
    match (patterns.is_empty(), count) {
        (true, _) => print_line!("{all}"),
        (false, 0) => print_line!("pinned, but no stored response matches yet; {all}"),
        (false, _) => {
            let responses = size::show_things(count, "response", "responses");
            print_line!("pinned {responses}, {}; {all}", size::show(bytes))
        }
    }?;
    check_recorded(&done)
}

/// Returns an error if the proxy could not record a change to the pins, because the change is lost when the proxy ends.
///
/// # Errors
/// The change was not recorded. The failure contains the proxy's reason.
fn check_recorded(done: &Value) -> Result<(), Failure> {
    let Some(why) = done["unrecorded"].as_str() else { return Ok(()) };
    let help = "make room next to the store, and check that larder may write there; then repeat the command";
    Err(Failure::runtime(format!("the change lasts until the proxy stops, because it cannot be recorded: {why}"), help))
}

/// Runs `larder unpin`.
///
/// # Errors
/// The same as for [`pin`], or a pattern was not pinned.
pub(crate) fn unpin(flags: &UnpinFlags) -> Result<(), Failure> {
    let patterns = patterns(&flags.sources)?;
    let request = if flags.all { "UNPIN /all" } else { "UNPIN /" };
    let done = ask(flags.admin, request, &patterns, &mut |_| Ok(()))?;
    let unknown: Vec<&str> = done["unknown"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    print_line!("{}", share(&done["all"]))?;
    check_recorded(&done)?;
    match unknown[..] {
        [] => Ok(()),
        [..] => Err(Failure::runtime(
            format!("not pinned: {}", unknown.join(", ")),
            "larder pin lists the pins; name one as it is listed",
        )),
    }
}

fn ask(
    admin: AdminFlags,
    request: &str,
    patterns: &[UrlPattern],
    tell: &mut dyn FnMut(ProgressEvent<'_>) -> Result<(), Failure>,
) -> Result<Value, Failure> {
    let text: String = patterns.iter().map(|pattern| format!("{pattern}\n")).collect();
    admin_client::converse(
        admin,
        request,
        SentBody { len_bytes: text.len() as u64, reader: &mut text.as_bytes() },
        tell,
    )
}

/// Returns the patterns that the arguments contain, directly or in the lists that they name.
///
/// # Errors
/// An argument is neither a pattern nor a list, or there is no pattern.
pub(crate) fn patterns(sources: &[String]) -> Result<Vec<UrlPattern>, Failure> {
    let mut all = Vec::new();
    for source in sources {
        match ListSource::of(source) {
            ListSource::Word(word) => all.push(url_list::pattern(word)?),
            ListSource::List(path) => all.extend(url_list::listed(path, url_list::pattern)?),
        }
    }
    match (sources.is_empty(), all.is_empty()) {
        (false, true) => Err(Failure::usage(
            "the file contains no pattern",
            "write one pattern per line, such as http://a.example/*",
        )),
        _ => Ok(all),
    }
}

fn print_pattern(line: &Value, is_json: bool) -> Result<(), Failure> {
    if is_json {
        return print_line!("{line}");
    }
    let count = number(&line["responses"]);
    let bytes = number(&line["bytes"]);
    let pattern = line["pattern"].as_str().unwrap_or_default();
    print_line!("{:>9}  {:>9}  {pattern}", size::show_count(count), size::show(bytes))
}

/// Returns a phrase that says how many bytes are pinned, and how many may be.
fn share(all: &Value) -> String {
    let bytes = number(&all["bytes"]);
    let bytes_max = number(&all["bytes_max"]);
    format!("{} of at most {} are pinned", size::show(bytes), size::show(bytes_max))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}
