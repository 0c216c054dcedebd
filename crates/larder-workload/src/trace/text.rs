//! Traces of text lines: Squid's native log, the common and combined log formats, columns.
//!
//! Only requests that a cache can answer count: GET that was not denied. All other valid lines are left out and
//! counted.

use super::{
    Step,
    fields::{hashed, host, log_date, milliseconds, number, words},
    published::Collection,
};
use crate::Request;

/// A format of text lines, which converts a line to a request.
pub(super) trait Line: Send {
    fn step(&mut self, line: &[u8]) -> Step;
}

/// Squid's native log: `time elapsed client result/status bytes method URL user hierarchy/peer type`.
pub(super) struct SquidLog;

impl Line for SquidLog {
    fn step(&mut self, line: &[u8]) -> Step {
        if line.is_empty() {
            return Step::Nothing;
        }
        let mut fields = words(line);
        let mut next = || fields.next().unwrap_or_default();
        let time = next();
        let _elapsed = next();
        let client = next();
        let result = next();
        let size = next();
        let method = next();
        let url = next();
        let Some(time_ms) = milliseconds(time) else { return Step::Damaged("the time is no number") };
        let Some(size_bytes) = number(size) else { return Step::Damaged("the size is no number") };
        if url.is_empty() {
            return Step::Damaged("the line ends before the URL");
        }
        if method != b"GET" || result.starts_with(b"TCP_DENIED") || result.starts_with(b"NONE") {
            return Step::LeftOut;
        }
        let site = hashed(host(url));
        let client = hashed(client);
        Step::Request(Request { time_ms, key: hashed(url), size_bytes, site, client })
    }
}

/// The common log format: `host ident user [date] "request" status bytes`. More fields may follow.
#[derive(Default)]
pub(super) struct CommonLog {
    site: u64,
}

impl Line for CommonLog {
    fn step(&mut self, line: &[u8]) -> Step {
        if line.is_empty() {
            return Step::Nothing;
        }
        let between = |open: u8, close: u8, text: &'_ [u8]| {
            let start = text.iter().position(|&byte| byte == open)? + 1;
            let end = start + text[start..].iter().position(|&byte| byte == close)?;
            Some((start, end))
        };
        let Some((date_start, date_end)) = between(b'[', b']', line) else {
            return Step::Damaged("there is no date in brackets");
        };
        let Some(time_ms) = log_date(&line[date_start..date_end]) else { return Step::Damaged("the date is none") };
        let rest = &line[date_end..];
        let Some((request_start, request_end)) = between(b'"', b'"', rest) else {
            return Step::Damaged("there is no request in quotes");
        };
        let mut request = words(&rest[request_start..request_end]);
        let method = request.next().unwrap_or_default();
        let url = request.next().unwrap_or_default();
        let mut after = words(&rest[request_end + 1..]);
        let status = after.next().unwrap_or_default();
        let size = after.next().unwrap_or_default();
        if number(status).is_none() {
            return Step::Damaged("the status is no number");
        }
        let size_bytes = match number(size) {
            Some(size_bytes) => size_bytes,
            None if size == b"-" => 0,
            None => return Step::Damaged("the size is no number"),
        };
        if method != b"GET" || url.is_empty() {
            return Step::LeftOut;
        }
        let client = hashed(words(line).next().unwrap_or_default());
        Step::Request(Request { time_ms, key: hashed(url), size_bytes, site: self.site, client })
    }
}

/// A table of columns. The first line decides what separates them, and may contain their names.
#[derive(Default)]
pub(super) struct Csv {
    columns: Option<Columns>,
    published: Option<Collection>,
    separator: u8,
    /// Whether each line is only a key, and the first line has no column names. Such keys must be single words, because
    /// otherwise any text would pass for a trace.
    has_words: bool,
}

#[derive(Clone, Copy)]
struct Columns {
    time: Option<usize>,
    key: usize,
    size: Option<usize>,
}

const SEPARATORS: [u8; 4] = [b',', b';', b'\t', b' '];
const KEY_NAMES: [&str; 9] =
    ["key", "id", "obj_id", "object_id", "obj", "object", "url", "hashed_path_query", "hashed_host_path_query"];
const SIZE_NAMES: [&str; 7] = ["size", "obj_size", "object_size", "size_bytes", "bytes", "length", "response_size"];
const TIME_NAMES: [&str; 6] = ["time", "timestamp", "ts", "clock_time", "time_s", "relative_unix"];

impl Columns {
    /// Parses the first line as names of columns. Returns `None` if no column is named as the key.
    fn named(fields: &[&[u8]]) -> Option<Self> {
        let at = |names: &[&str]| {
            fields.iter().position(|field| names.iter().any(|name| field.eq_ignore_ascii_case(name.as_bytes())))
        };
        Some(Self { time: at(&TIME_NAMES), key: at(&KEY_NAMES)?, size: at(&SIZE_NAMES) })
    }

    /// Returns the order of `count` columns without names. Returns `None` for more than three, because it would be a
    /// guess which of them is the key and which the size.
    fn unnamed(count: usize) -> Option<Self> {
        match count {
            0 | 1 => Some(Self { time: None, key: 0, size: None }),
            2 => Some(Self { time: None, key: 0, size: Some(1) }),
            3 => Some(Self { time: Some(0), key: 1, size: Some(2) }),
            _ => None,
        }
    }
}

impl Line for Csv {
    fn step(&mut self, line: &[u8]) -> Step {
        if line.is_empty() || line[0] == b'#' {
            return Step::Nothing;
        }
        if self.columns.is_none() {
            // The first separator in the line counts, because keys may contain the others.
            self.separator = *outside_quotes(line).find(|byte| SEPARATORS.contains(byte)).unwrap_or(&b',');
        }
        let fields = split(line, self.separator);
        if self.columns.is_none() {
            self.published = self.published.or_else(|| Collection::of(&fields, self.separator));
        }
        if let Some(published) = self.published {
            return published.step(&fields);
        }
        let columns = match self.columns {
            Some(columns) => columns,
            None => {
                if let Some(named) = Columns::named(&fields) {
                    self.columns = Some(named);
                    return Step::Nothing;
                }
                let Some(unnamed) = Columns::unnamed(fields.len()) else {
                    return Step::Damaged("there are more than three columns, and no first line names them");
                };
                let columns = *self.columns.insert(unnamed);
                self.has_words = columns.size.is_none();
                if columns.time.is_some() && !fields.iter().any(|field| milliseconds(field).is_some()) {
                    return Step::Damaged("the first line names no column of keys");
                }
                columns
            }
        };
        let field = |at: usize| fields.get(at).copied();
        let Some(key) = field(columns.key).filter(|key| !key.is_empty()) else {
            return Step::Damaged("the line has no key");
        };
        if self.has_words && key.iter().any(u8::is_ascii_whitespace) {
            return Step::Damaged("the key has spaces");
        }
        let size = columns.size.map_or(Some(1), |at| number(field(at)?));
        let Some(size_bytes) = size else { return Step::Damaged("the size is no number") };
        let time = columns.time.map_or(Some(0), |at| milliseconds(field(at)?));
        let Some(time_ms) = time else { return Step::Damaged("the time is no number") };
        let key = number(key).unwrap_or_else(|| hashed(key));
        Step::Request(Request { time_ms, key, size_bytes, site: 0, client: 0 })
    }
}

/// Returns the bytes of a line that are not within quotes.
fn outside_quotes(line: &[u8]) -> impl Iterator<Item = &u8> {
    let mut is_quoted = false;
    line.iter().filter(move |&&byte| {
        is_quoted ^= byte == b'"';
        !is_quoted
    })
}

/// Splits a line into its fields, without the surrounding spaces and quotes. Several spaces count as one separator.
fn split(line: &[u8], separator: u8) -> Vec<&[u8]> {
    let mut is_quoted = false;
    let fields = line.split(move |&byte| {
        is_quoted ^= byte == b'"';
        byte == separator && !is_quoted
    });
    fields.map(unquoted).filter(|field| separator != b' ' || !field.is_empty()).collect()
}

fn unquoted(field: &[u8]) -> &[u8] {
    let field = field.trim_ascii();
    field.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(field)
}
