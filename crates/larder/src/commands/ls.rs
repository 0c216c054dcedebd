//! `larder ls`: lists the responses that a running proxy has stored.
//!
//! Owns: the flags, and the output. The proxy scans its store. Invariant: every listed response can be served, possibly
//! after validation.

use crate::{
    commands::{
        admin_client::{self, AdminFlags, ProgressEvent, SentBody},
        url_list,
    },
    ground::{
        failure::Failure,
        output::{print_line, tell},
        progress::ProgressLine,
        size, value,
    },
};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

const EXAMPLES: &str = "\
Examples:
  larder ls                                     100 stored responses
  larder ls example.com --sort size             the largest responses of a host
  larder ls https://example.com/img/ --limit 0  all URLs with this prefix
  larder ls --sort hits --json                  one JSON object per response

Columns: size of the body, age, remaining time as fresh (- if stale), hits since it was loaded into \
memory (- if it is on disk only), status, URL, and the request fields that select the variant. The \
command reads all that is stored, while the proxy continues to serve.";

/// The flags of `larder ls`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LsFlags {
    /// A host, the beginning of URLs, or a pattern in which * stands for any characters
    #[arg(value_name = "SITE|PREFIX")]
    what: Option<String>,

    /// Sort by size, age or hits, the largest first
    #[arg(long, value_enum)]
    sort: Option<Sort>,

    /// Number of responses listed; 0 means all, or 100,000 if they are sorted
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = value::limit)]
    limit: u64,

    /// Print JSON: an object for each response, and one for the total
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    admin: AdminFlags,
}

/// The property by which the list is sorted.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sort {
    Size,
    Age,
    Hits,
}

/// Runs `larder ls`.
///
/// # Errors
/// A usage failure for an invalid host, prefix or pattern; a runtime failure if the proxy is unreachable or refuses.
pub(crate) fn run(flags: &LsFlags) -> Result<(), Failure> {
    let sort = flags.sort.map(|sort| match sort {
        Sort::Size => "size",
        Sort::Age => "age",
        Sort::Hits => "hits",
    });
    let mut text = json!({ "sort": sort, "limit": flags.limit }).to_string();
    if let Some(what) = &flags.what {
        text = format!("{text}\n{}", url_list::pattern(&whole(what))?);
    }
    let shown = ProgressLine::new("reading the store");
    let mut before = 0;
    let mut listed_count = 0;
    let mut tell = |told: ProgressEvent<'_>| {
        match told {
            ProgressEvent::Progress { done, of } => {
                shown.advance(done.saturating_sub(before), of);
                before = done;
            }
            ProgressEvent::Line(line) => {
                if listed_count == 0 && !flags.json {
                    print_row(["size", "age", "fresh", "hits", "status"], "URL")?;
                }
                listed_count += 1;
                if flags.json { print_line!("{line}")? } else { print_response(line)? }
            }
            ProgressEvent::Data(_) => {}
        }
        Ok(())
    };
    let sent = SentBody { len_bytes: text.len() as u64, reader: &mut text.as_bytes() };
    let done = admin_client::converse(flags.admin, "LIST /", sent, &mut tell)?;
    shown.finish();
    let count = number(&done["responses"]);
    let bytes = number(&done["body_bytes"]);
    if listed_count < count {
        let more = match flags.limit {
            0 => "--sort sorts at most 100,000 responses; name a host or prefix to list fewer",
            _ => "--limit 0 lists all of them",
        };
        tell!("larder: listed {} of {}; {more}", size::show_count(listed_count), size::show_count(count));
    }
    if flags.json {
        return print_line!("{done}");
    }
    print_line!("{}, {}", size::show_things(count, "response", "responses"), size::show(bytes))
}

/// Turns the argument into a pattern. A prefix that contains a path gets a `*` at its end; a host alone already matches
/// all its URLs.
fn whole(what: &str) -> String {
    let rest = what.split_once("://").map_or(what, |(_, rest)| rest);
    if rest.contains('/') && !what.contains('*') { format!("{what}*") } else { what.to_owned() }
}

fn print_response(line: &Value) -> Result<(), Failure> {
    let left_secs = line["ttl_secs"].as_i64().unwrap_or(0);
    let left = if left_secs > 0 { show_secs(left_secs.unsigned_abs()) } else { "-".to_owned() };
    let hits = line["hits"].as_u64().map_or("-".to_owned(), |hits| hits.to_string());
    let variant: Vec<&str> = line["variant"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let variant = if variant.is_empty() { String::new() } else { format!("  ({})", variant.join("; ")) };
    let size = size::show(number(&line["bytes"]));
    let age = show_secs(number(&line["age_secs"]));
    let status = number(&line["status"]).to_string();
    let url = line["url"].as_str().unwrap_or_default();
    print_row([&size, &age, &left, &hits, &status], &format!("{url}{variant}"))
}

/// Prints a row of the table.
fn print_row([size, age, fresh, hits, status]: [&str; 5], url: &str) -> Result<(), Failure> {
    print_line!("{size:>9}  {age:>6}  {fresh:>6}  {hits:>6}  {status:>6}  {url}")
}

/// Formats a duration as a whole number in seconds, minutes, hours or days.
fn show_secs(secs: u64) -> String {
    match secs {
        0..120 => format!("{secs} s"),
        120..7200 => format!("{} min", secs / 60),
        7200..172_800 => format!("{} h", secs / 3600),
        _ => format!("{} d", secs / 86_400),
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_is_all_that_begins_so_and_a_host_or_pattern_is_itself() {
        for (what, pattern) in [
            ("a.example", "a.example"),
            ("https://a.example", "https://a.example"),
            ("https://a.example/x", "https://a.example/x*"),
            ("a.example/", "a.example/*"),
            ("a.example/*.png", "a.example/*.png"),
        ] {
            assert_eq!(whole(what), pattern);
        }
    }

    #[test]
    fn times_are_shown_in_their_largest_unit() {
        let shown = [0, 119, 120, 7200, 172_800].map(show_secs);
        assert_eq!(shown, ["0 s", "119 s", "2 min", "2 h", "2 d"]);
    }
}
