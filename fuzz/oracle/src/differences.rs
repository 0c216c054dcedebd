//! Compares two readings of a stream, and explains their differences.
//!
//! Owns: the table of the differences that RFC 9110 and RFC 9112 allow. Invariant: two readers never give one message
//! two bodies, and no row of the table permits that. A row applies only if the stream contains what it is about.

use crate::{
    hyper_reading,
    transcript::{BodyEnd, Message, Transcript},
    wire::{self, Side, WireReading},
};

/// The result of a comparison.
pub(crate) enum Verdict {
    Equal,
    /// The clause by which the readers may differ.
    Explained(&'static str),
    Unexplained(String),
}

/// A difference that a clause allows.
struct AllowedDifference {
    /// Part of the reason with which a reader refuses the octets.
    reason: &'static str,
    /// The clause, and what it permits.
    clause: &'static str,
    /// Whether the octets from the beginning of the message contain what the clause is about.
    applies: fn(&[u8]) -> bool,
}

/// Compares the readings of a stream.
pub(crate) fn judge(side: Side, stream: &[u8], wire: &WireReading, hyper: &Transcript) -> Verdict {
    let ours = &wire.transcript;
    let mut verdict = Verdict::Equal;
    for position in 0.. {
        let octets = wire.starts.get(position).map_or(&[][..], |start| &stream[*start..]);
        let (one, other) = match (ours.messages.get(position), hyper.messages.get(position)) {
            (Some(one), Some(other)) => (one, other),
            (Some(_), None)
                if hyper.refusal.is_none() && asked_to_stay(ours.messages.get(position.wrapping_sub(1))) =>
            {
                return Verdict::Explained("RFC 9112 C.2.2: HTTP/1.0 may ask a proxy with Proxy-Connection to stay");
            }
            (Some(one), None) => return hyper_refuses(hyper.refusal.as_deref(), octets, &format!("{one:?}")),
            (None, Some(_)) if ours.refusal.is_none() && closes_in_obs_text(ours.messages.last()) => {
                return Verdict::Explained("RFC 9112 9.6: nothing is read after close, whatever stands beside it");
            }
            (None, Some(other)) => return wire_refuses(ours.fault(), octets, &format!("{other:?}")),
            (None, None) => {
                return match (&ours.refusal, &hyper.refusal) {
                    (Some(_), None) if asked_to_stay(ours.messages.last()) => verdict,
                    (Some(why), None) => refused_early(side, octets, why),
                    (None, Some(why)) => refused_late(side, octets, why),
                    _ => verdict,
                };
            }
        };
        match same_head(one, other) {
            Verdict::Equal => {}
            Verdict::Explained(clause) => verdict = Verdict::Explained(clause),
            unexplained @ Verdict::Unexplained(_) => return unexplained,
        }
        match (&one.end, &other.end) {
            (BodyEnd::Whole, BodyEnd::Whole) | (BodyEnd::Cut, BodyEnd::Cut) => {
                if (&one.body, &one.trailers) != (&other.body, &other.trailers) {
                    return Verdict::Unexplained("the bodies differ".to_owned());
                }
            }
            _ if !one.body.starts_with(&other.body) && !other.body.starts_with(&one.body) => {
                return Verdict::Unexplained("the beginnings of the bodies differ".to_owned());
            }
            (BodyEnd::Refused(_), BodyEnd::Refused(_)) => {}
            (BodyEnd::Refused(why), BodyEnd::Cut) => return refused_early(side, octets, why),
            (BodyEnd::Refused(why), BodyEnd::Whole) => return wire_refuses(Some(why), octets, "reads on"),
            (_, BodyEnd::Refused(why)) => return hyper_refuses(Some(why), octets, "reads on"),
            _ => return Verdict::Unexplained("the ends of the bodies differ".to_owned()),
        }
        if one.end != BodyEnd::Whole {
            return verdict;
        }
    }
    verdict
}

/// Returns whether a request of HTTP/1.0 asks by Proxy-Connection that its connection stays.
fn asked_to_stay(request: Option<&Message>) -> bool {
    let asks =
        |(name, value): &(String, Vec<u8>)| name == "proxy-connection" && value.eq_ignore_ascii_case(b"keep-alive");
    request.is_some_and(|request| request.version == "HTTP/1.0" && request.fields.iter().any(asks))
}

/// Returns whether a request asks to close in a value with obs-text, which hyper does not read.
fn closes_in_obs_text(request: Option<&Message>) -> bool {
    let closes = |(name, value): &(String, Vec<u8>)| {
        let mut options = value.split(|octet| *octet == b',');
        name == "connection"
            && !value.is_ascii()
            && options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
    };
    request.is_some_and(|request| request.fields.iter().any(closes))
}

fn same_head(one: &Message, other: &Message) -> Verdict {
    if (&one.subject, &one.version, &one.fields) != (&other.subject, &other.version, &other.fields) {
        return Verdict::Unexplained("the heads differ".to_owned());
    }
    if one.target == other.target {
        return Verdict::Equal;
    }
    if one.subject == "OPTIONS" && other.target.strip_suffix('/').is_some_and(|rest| one.target == format!("{rest}*")) {
        return Verdict::Explained("RFC 9112 3.2.4: an OPTIONS without a path is about the whole server");
    }
    Verdict::Unexplained("the targets differ".to_owned())
}

fn wire_refuses(why: Option<&str>, octets: &[u8], other: &str) -> Verdict {
    explain(WIRE_IS_STRICTER, why, octets, &format!("larder-wire refuses ({why:?}), hyper: {other}"))
}

fn hyper_refuses(why: Option<&str>, octets: &[u8], other: &str) -> Verdict {
    explain(HYPER_IS_STRICTER, why, octets, &format!("hyper refuses ({why:?}), larder-wire: {other}"))
}

/// Judges octets that larder-wire refuses while hyper waits for more. It must refuse them, too, once the head is whole.
fn refused_early(side: Side, octets: &[u8], why: &str) -> Verdict {
    let whole = [octets, b"\r\n\r\n"].concat();
    let later = hyper_reading::read(side, [&whole[..]]);
    if later.messages.len() <= 1 && later.fault().is_some() {
        return Verdict::Explained("RFC 9112 3: what can become no message is refused before it is whole");
    }
    wire_refuses(Some(why), octets, "waits")
}

/// Judges octets that hyper refuses while larder-wire waits for more. It must refuse them once the head is whole.
fn refused_late(side: Side, octets: &[u8], why: &str) -> Verdict {
    let later = wire::read(side, [octets, b"\r\n\r\n"]).transcript;
    if later.messages.is_empty() && later.refusal.is_some() {
        return Verdict::Explained("RFC 9112 3: what can become no message is refused once it is whole");
    }
    hyper_refuses(Some(why), octets, "waits")
}

fn explain(table: &[AllowedDifference], why: Option<&str>, octets: &[u8], otherwise: &str) -> Verdict {
    let row = table.iter().find(|row| why.is_some_and(|why| why.contains(row.reason)) && (row.applies)(octets));
    row.map_or_else(|| Verdict::Unexplained(otherwise.to_owned()), |row| Verdict::Explained(row.clause))
}

/// What larder-wire refuses, and hyper accepts.
const WIRE_IS_STRICTER: &[AllowedDifference] = &[
    AllowedDifference {
        reason: "ends with LF without CR",
        clause: "RFC 9112 2.2: a recipient MAY take a bare LF for the end of a line, and need not",
        applies: |octets| {
            octets.starts_with(b"\n") || head(octets).windows(2).any(|pair| pair[0] != b'\r' && pair[1] == b'\n')
        },
    },
    AllowedDifference {
        reason: "first line is not a request line",
        clause: "RFC 9112 2.2: an empty line before a request is a CR LF",
        applies: |octets| octets.starts_with(b"\n"),
    },
    AllowedDifference {
        reason: "has a fragment",
        clause: "RFC 9112 3.2: no form of a target has a fragment",
        applies: |octets| line(octets).contains(&b'#'),
    },
    AllowedDifference {
        reason: "more than one content-length",
        clause: "RFC 9112 6.3 (5): a list of equal lengths may be refused",
        applies: |octets| field_count(octets, b"content-length") > 1,
    },
    AllowedDifference {
        reason: "not a plain number",
        clause: "RFC 9110 8.6: a length is digits only, and one that is too large is refused",
        applies: |octets| field_count(octets, b"content-length") > 0,
    },
    AllowedDifference {
        reason: "both content-length and transfer-encoding",
        clause: "RFC 9112 6.1: a server MAY refuse a request with both",
        applies: |octets| field_count(octets, b"content-length") > 0 && field_count(octets, b"transfer-encoding") > 0,
    },
    AllowedDifference {
        reason: "transfer-encoding is not chunked",
        clause: "RFC 9112 6.1: a coding that is not understood is refused",
        applies: |octets| field_count(octets, b"transfer-encoding") > 0,
    },
    AllowedDifference {
        reason: "more than one transfer-encoding",
        clause: "RFC 9112 7.1: chunked is not applied twice, and other codings are not understood",
        applies: |octets| field_count(octets, b"transfer-encoding") > 1,
    },
    AllowedDifference {
        reason: "CONNECT request has a body",
        clause: "RFC 9110 9.3.6: content in a CONNECT has no defined meaning",
        applies: |octets| octets.starts_with(b"CONNECT "),
    },
    AllowedDifference {
        reason: "extension of a chunk",
        clause: "RFC 9112 7.1.1: extensions have a grammar",
        applies: |octets| octets.contains(&b';'),
    },
    AllowedDifference {
        reason: "a chunk of its body is malformed",
        clause: "RFC 9112 2.2, 7.1.2: lines of trailers end in CR LF, and a bare LF need not be taken",
        applies: |octets| octets[head(octets).len()..].windows(2).any(|pair| pair[0] != b'\r' && pair[1] == b'\n'),
    },
    AllowedDifference {
        reason: "end of its trailers is ambiguous",
        clause: "RFC 9112 2.2, 7.1.2: lines of trailers end in CR LF, and a bare LF need not be taken",
        applies: |octets| octets[head(octets).len()..].windows(2).any(|pair| pair[0] != b'\r' && pair[1] == b'\n'),
    },
    AllowedDifference {
        reason: "size of a chunk",
        clause: "RFC 9112 7.1: overflows of sizes are prevented: a size in a request has at most 15 digits",
        applies: |octets| octets.windows(16).any(|digits| digits.iter().all(u8::is_ascii_hexdigit)),
    },
    AllowedDifference {
        reason: "size of a chunk",
        clause: "RFC 9112 7.1.1: white space after a size comes before an extension only",
        applies: |octets| {
            let digit_then_space = |pair: &[u8]| pair[0].is_ascii_hexdigit() && matches!(pair[1], b' ' | b'\t');
            octets.split(|octet| *octet == b'\n').any(|line| line.windows(2).any(digit_then_space))
        },
    },
];

/// What hyper refuses, and larder-wire accepts.
const HYPER_IS_STRICTER: &[AllowedDifference] = &[
    AllowedDifference {
        reason: "invalid URI",
        clause: "RFC 9112 3.2: a target with octets that no URI has may be refused; those of browsers are encoded",
        applies: |octets| line(octets).iter().any(|octet| b"\"<>`".contains(octet)),
    },
    AllowedDifference {
        reason: "invalid HTTP version",
        clause: "RFC 9110 2.5: a later minor version is read as the highest known one",
        applies: |octets| {
            let line = line(octets);
            let version = line.strip_suffix(b"\r").unwrap_or(line);
            let of_request = version.rsplit(|octet| *octet == b' ').next().unwrap_or_default();
            let of_response = version.split(|octet| *octet == b' ').next().unwrap_or_default();
            [of_request, of_response]
                .iter()
                .any(|version| matches!(version, [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9']))
        },
    },
];

/// Returns the octets up to the empty line, which they include, without those before the first line.
fn head(octets: &[u8]) -> &[u8] {
    let start = octets.iter().position(|octet| !b"\r\n".contains(octet)).unwrap_or(0);
    let octets = &octets[start..];
    let is_end = |at: &usize| matches!(&octets[*at..], [b'\n', b'\n', ..] | [b'\n', b'\r', b'\n', ..]);
    let end = (0..octets.len()).find(is_end).map_or(octets.len(), |at| (at + 3).min(octets.len()));
    &octets[..end]
}

/// Returns the first line, without its LF.
fn line(octets: &[u8]) -> &[u8] {
    octets.split(|octet| *octet == b'\n').next().unwrap_or_default()
}

/// Returns how many fields of the head have this name.
fn field_count(octets: &[u8], name: &[u8]) -> usize {
    let is_field = |line: &&[u8]| {
        let at = line.iter().position(|octet| *octet == b':');
        at.is_some_and(|at| line[..at].trim_ascii().eq_ignore_ascii_case(name))
    };
    head(octets).split(|octet| *octet == b'\n').filter(is_field).count()
}
