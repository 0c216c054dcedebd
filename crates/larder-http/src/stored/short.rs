//! The short form of stored lines, for memory: a byte instead of a common name, and five instead of a date.
//!
//! Invariant: the lines that [`expand`] returns are, octet for octet, those that [`push`] was given. A date is
//! shortened only if formatting its moment gives the same octets. Cost: the lines of a usual head take a third of their
//! length, and a hit formats its one or two dates.

use super::reader::PackedReader;
use crate::{
    Timestamp,
    codec::{code_of_name, common_name, push_bytes},
    date::{http_date, parse_imf_fixdate},
};

/// Appends the short form of a line.
pub(super) fn push(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    match (code_of_name(name), date_secs(value)) {
        (Some(code), Some(secs)) => {
            out.push(code | IS_DATE);
            out.extend_from_slice(&secs.to_le_bytes()[..DATE_BYTES]);
        }
        (Some(code), None) => {
            out.push(code);
            push_bytes(out, value);
        }
        (None, _) => {
            out.push(LITERAL_NAME);
            push_bytes(out, name);
            push_bytes(out, value);
        }
    }
}

/// Appends the lines of which `short` is the short form.
pub(super) fn expand(short: &[u8], lines: &mut Vec<u8>) {
    let mut reader = PackedReader { rest: short };
    while let Some(code) = reader.byte() {
        match code & !IS_DATE {
            LITERAL_NAME => lines.extend_from_slice(reader.bytes()),
            name => lines.extend_from_slice(common_name(name).as_bytes()),
        }
        lines.extend_from_slice(b": ");
        if code & IS_DATE != 0 {
            lines.extend_from_slice(&http_date(Timestamp::from_secs(reader.fixed::<DATE_BYTES>().cast_signed())));
        } else {
            lines.extend_from_slice(reader.bytes());
        }
        lines.extend_from_slice(b"\r\n");
    }
}

/// Returns the seconds since the Unix epoch of a date in the form in which dates are sent.
fn date_secs(value: &[u8]) -> Option<u64> {
    let moment = value.ends_with(b" GMT").then(|| parse_imf_fixdate(value))??;
    u64::try_from(moment.as_secs()).ok().filter(|_| http_date(moment) == value)
}

/// The code of a line whose name has no code.
const LITERAL_NAME: u8 = 0;
/// The bit of a line's code that says that the value is a date.
const IS_DATE: u8 = 0x80;
/// Length of a date's seconds, which suffice until the year 9999.
const DATE_BYTES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_expanded_octet_for_octet() {
        let lines = [
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("expires", "Fri, 31 Dec 9999 23:59:59 GMT"),
            ("last-modified", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("last-modified", "Wed, 31 Dec 1969 23:59:59 GMT"),
            ("expires", "Mon, 06 Nov 1994 08:49:37 GMT"),
            ("expires", "sun, 06 Nov 1994 08:49:37 gmt"),
            ("expires", "Sun, 06 Nov 1994 08:49:60 GMT"),
            ("expires", "Mon, 01 Jan 0001 00:00:00 GMT"),
            ("x-own-date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("etag", ""),
            ("cdn-cache-control", "max-age=60"),
            ("content-security-policy", &"a".repeat(300)),
        ];
        let mut short = Vec::new();
        let mut text = Vec::new();
        for (name, value) in lines {
            push(&mut short, name.as_bytes(), value.as_bytes());
            text.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        let mut expanded = Vec::new();
        expand(&short, &mut expanded);
        assert_eq!(String::from_utf8_lossy(&expanded), String::from_utf8_lossy(&text));
        let mut date = Vec::new();
        push(&mut date, b"date", lines[0].1.as_bytes());
        assert_eq!(date.len(), 1 + DATE_BYTES);
    }
}
