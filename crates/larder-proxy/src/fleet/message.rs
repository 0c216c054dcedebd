//! The messages in which one node reads another's log of purges: the target of the request, and the body of the
//! response.
//!
//! Owns: both formats, and the checks of what another node sent. Invariants: a part of a log is accepted only if it
//! begins after the reader's position, its numbers never fall, and its stated end is right. Otherwise the whole part is
//! refused.
//!
//! ```text
//! GET /-/purges?log=0123456789abcdef&after=7&wait=10000
//!
//! larder purges 1
//! log 0123456789abcdef        or: reset 0123456789abcdef, if the position is not in the log
//! position 9 of 12
//! 8 hard 1764041481000 tag product-17
//! 9 soft 1764041482000 url http://www.example.com/
//! ```

use std::{fmt::Write as _, time::Duration};

use http::Uri;
use larder_http::tags::TAG_SIZE_MAX;

use crate::ground::cache::purges::{LogSlice, Purge, PurgeMode, PurgeScope, parse_purge, purge_line};

/// The path under which a node sends its purges.
pub(crate) const PATH: &str = "/-/purges";

/// A request of one node for the purges in the log of another node that come after a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogQuery {
    /// The identity of the log, or 0 if the reader does not know it yet.
    pub(crate) log: u64,
    pub(crate) after: u64,
    /// Maximum time that the response may wait for a purge.
    pub(crate) wait: Duration,
}

impl LogQuery {
    /// Returns the query as a request target.
    pub(crate) fn target(self) -> String {
        let Self { log, after, wait } = self;
        format!("{PATH}?log={log:016x}&after={after}&wait={}", wait.as_millis())
    }

    /// Parses a request target. Returns `None` if it is malformed.
    pub(crate) fn parse(uri: &Uri) -> Option<Self> {
        let mut query = Self { log: 0, after: 0, wait: Duration::ZERO };
        for part in uri.query()?.split('&') {
            match part.split_once('=')? {
                ("log", value) => query.log = u64::from_str_radix(value, 16).ok()?,
                ("after", value) => query.after = value.parse().ok()?,
                ("wait", value) => query.wait = Duration::from_millis(value.parse().ok()?).min(WAIT_MAX),
                _ => return None,
            }
        }
        Some(query)
    }
}

/// Formats a part of a log as the body of a response.
pub(crate) fn encode(slice: &LogSlice) -> String {
    let LogSlice { log, is_reset, purges, position, end, .. } = slice;
    let word = if *is_reset { "reset" } else { "log" };
    let mut text = format!("{TITLE}\n{word} {log:016x}\nposition {position} of {end}\n");
    for purge in purges {
        writeln!(text, "{}", purge_line(purge)).expect("a string takes what is written to it");
    }
    text
}

/// Parses the body of the response to `query`.
///
/// # Errors
/// The text is not a part of the log after the reader's position. The error says why.
pub(crate) fn decode(text: &str, query: LogQuery) -> Result<LogSlice, String> {
    let mut lines = text.strip_suffix('\n').ok_or("its text is cut off")?.split('\n');
    if lines.next() != Some(TITLE) {
        return Err("it is of another version, or no log of purges".to_owned());
    }
    let (word, log) = lines.next().and_then(|line| line.split_once(' ')).ok_or("it has no identity")?;
    let log = u64::from_str_radix(log, 16).ok().filter(|log| *log != 0).ok_or("it has no identity")?;
    let is_reset = match word {
        "reset" => true,
        "log" if log == query.log => false,
        _ => return Err("it has another identity than before".to_owned()),
    };
    let position = lines.next().and_then(|line| line.strip_prefix("position ")?.split_once(" of "));
    let position = position.and_then(|(position, end)| Some((position.parse().ok()?, end.parse().ok()?)));
    let (position, end): (u64, u64) = position.filter(|(position, end)| position <= end).ok_or("it has no position")?;
    let mut purges = Vec::new();
    let mut last = query.after;
    for line in lines {
        let purge = parse_purge(line).filter(is_possible).ok_or("a line is no purge")?;
        let is_in_order = if purges.is_empty() { purge.number > last } else { purge.number >= last };
        if !is_in_order {
            return Err(format!("its purges are not in order: {} after {last}", purge.number));
        }
        last = purge.number;
        purges.push(purge);
    }
    let is_whole = if is_reset { purges.is_empty() && position == end } else { position == last };
    if !is_whole {
        return Err(format!("its purges end at {last}, and its position is {position} of {end}"));
    }
    Ok(LogSlice { log, is_reset, purges, position, end, sent: 0 })
}

/// Returns whether an operator could have made this purge: its scope has a name of valid length, and its mode is not
/// `Validate`.
pub(super) fn is_possible(purge: &Purge) -> bool {
    let name = purge.scope.name();
    let is_named = match purge.scope {
        PurgeScope::All => true,
        PurgeScope::Tag(_) => (1..=TAG_SIZE_MAX).contains(&name.len()),
        PurgeScope::Site(_) | PurgeScope::Prefix(_) | PurgeScope::Url(_) => (1..=NAME_SIZE_MAX).contains(&name.len()),
    };
    purge.mode != PurgeMode::Validate && is_named
}

const TITLE: &str = "larder purges 1";
/// Maximum length of the URL, prefix or host of a purge, in bytes: the longest that fits in a request's head.
const NAME_SIZE_MAX: usize = 1 << 20;
/// Maximum time that a response waits for a purge, whatever the reader requests.
const WAIT_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    const QUERY: LogQuery = LogQuery { log: 0xab, after: 7, wait: Duration::from_secs(10) };
    const HEAD: &str = "larder purges 1\nlog 00000000000000ab\n";

    fn purge(number: u64, scope: PurgeScope) -> Purge {
        Purge { number, mode: PurgeMode::Soft, at_ms: -3, scope }
    }

    #[test]
    fn parts_and_queries_arrive_as_they_were_sent() {
        let purges = vec![
            purge(8, PurgeScope::Tag("t".into())),
            purge(9, PurgeScope::All),
            purge(9, PurgeScope::Prefix("http://a.example/x y".into())),
        ];
        for slice in [
            LogSlice { log: 0xab, is_reset: false, purges, position: 9, end: 12, sent: 0 },
            LogSlice { log: 0xab, is_reset: false, purges: Vec::new(), position: 7, end: 7, sent: 0 },
            LogSlice { log: 0xcd, is_reset: true, purges: Vec::new(), position: 3, end: 3, sent: 0 },
        ] {
            assert_eq!(decode(&encode(&slice), QUERY), Ok(slice));
        }
        assert_eq!(LogQuery::parse(&QUERY.target().parse().unwrap()), Some(QUERY));
        for bad in ["/-/purges", "/-/purges?", "/-/purges?log=x&after=1", "/-/purges?after=-1", "/-/purges?more=1"] {
            assert_eq!(LogQuery::parse(&bad.parse().unwrap()), None, "{bad}");
        }
    }

    /// Guards against a node that accepts a forged part of a log, and so skips purges or purges what no operator named.
    #[test]
    fn what_no_log_can_have_sent_is_refused() {
        for (text, why) in [
            ("", "cut off"),
            ("larder purges 2\n", "another version"),
            ("larder purges 1\n", "no identity"),
            ("larder purges 1\nlog 0\nposition 7 of 7\n", "no identity"),
            ("larder purges 1\nlog 00000000000000ac\nposition 7 of 7\n", "another identity"),
            ("larder purges 1\nreset 00000000000000ac\nposition 7 of 9\n", "its position is 7 of 9"),
            ("larder purges 1\nreset 00000000000000ac\nposition 8 of 8\n8 hard 0 tag t\n", "its position"),
            (&format!("{HEAD}position 8 of 7\n"), "no position"),
            (&format!("{HEAD}position 99999999999999999999 of 7\n"), "no position"),
            (&format!("{HEAD}position 8 of 8\n"), "end at 7"),
            (&format!("{HEAD}position 9 of 9\n8 hard 0 tag t\n"), "end at 8"),
            (&format!("{HEAD}position 7 of 7\n7 hard 0 tag t\n"), "not in order: 7 after 7"),
            (&format!("{HEAD}position 8 of 9\n9 hard 0 tag t\n8 hard 0 tag t\n"), "not in order: 8 after 9"),
            (&format!("{HEAD}position 8 of 8\n8 hard 0 tag t"), "cut off"),
            (&format!("{HEAD}position 8 of 8\n8 hard 0 tag \n"), "no purge"),
            (&format!("{HEAD}position 8 of 8\n8 hard 0 prefix \n"), "no purge"),
            (&format!("{HEAD}position 8 of 8\n8 validate 0 all -\n"), "no purge"),
            (&format!("{HEAD}position 8 of 8\n8 hard x tag t\n"), "no purge"),
            (&format!("{HEAD}position 8 of 8\n8 hard 0 tag {}\n", "t".repeat(TAG_SIZE_MAX + 1)), "no purge"),
            (&format!("{HEAD}position 8 of 8\n\n"), "no purge"),
        ] {
            let told = decode(text, QUERY).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
    }
}
