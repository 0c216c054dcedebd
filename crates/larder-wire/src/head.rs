//! Parses the heads of responses, and the fields of all heads and trailers.
//!
//! Owns: the limits on a head, and whether the connection persists after it. `larder_http::fields` decides the framing
//! of the body. Memory: all values share one copy of the head, which
//! has exactly its length. Cost: one pass over the octets, one allocation for all values, and one for each unusual
//! name.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, header::CONNECTION};
use httparse::Status;
use larder_http::{
    fields::{NameFilter, has_token},
    octets, steps,
};

use crate::WireFault;

/// Maximum size of a message's head.
///
/// ```
/// use larder_wire::{HeadLimits, WireFault, parse_response};
///
/// let limits = HeadLimits { bytes_max: 1000, field_count_max: 1 };
/// let two_fields = b"HTTP/1.1 200 OK\r\nA: 1\r\nB: 2\r\n\r\n";
/// assert_eq!(parse_response(two_fields, 0, limits).unwrap_err(), WireFault::TooLarge);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Maximum length of the head, in octets.
    pub bytes_max: usize,
    /// Maximum number of fields.
    pub field_count_max: usize,
}

/// The head of a response.
///
/// ```
/// use larder_wire::{HeadLimits, parse_response};
///
/// let limits = HeadLimits { bytes_max: 1000, field_count_max: 10 };
/// let octets = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";
/// let (head, len) = parse_response(octets, 0, limits).expect("a valid head").expect("a whole head");
/// assert_eq!((head.status.as_u16(), &octets[len..]), (200, &b"body"[..]));
/// assert!(head.persists());
/// ```
#[derive(Debug)]
pub struct ResponseHead {
    /// The status code.
    pub status: StatusCode,
    /// HTTP/1.0 or HTTP/1.1. Later versions of HTTP/1 count as 1.1 (RFC 9110 2.5).
    pub version: Version,
    /// The header fields.
    pub fields: HeaderMap,
    /// The names in `fields`, to rule most lookups out.
    names: NameFilter,
}

impl ResponseHead {
    /// Returns whether the connection can carry another exchange after this one (RFC 9112 9.3).
    ///
    /// A connection to an HTTP/1.0 server is never reused: the server may have ignored the request to keep it open.
    pub fn persists(&self) -> bool {
        let says_close = || has_token(&self.fields, &CONNECTION, "close");
        self.version == Version::HTTP_11 && !(self.names.may_have(&CONNECTION) && says_close())
    }
}

/// Parses the response head at the start of `octets`. Returns the head and its length, or `None` if it is incomplete.
///
/// `examined` is how many octets an earlier call received and found incomplete, or 0. The head is parsed again only if
/// the octets after them can end it. So a head that arrives octet by octet is not parsed once per octet.
///
/// # Errors
/// The octets cannot become a response, or exceed a limit.
pub fn parse_response(
    octets: &[u8],
    examined: usize,
    limits: HeadLimits,
) -> Result<Option<(ResponseHead, usize)>, WireFault> {
    if examined > 0 && !may_end(octets, examined) {
        return incomplete(octets, limits);
    }
    steps::take(octets.len());
    if let Some(known) = as_http_1_1(octets) {
        return parse_known(&known, limits);
    }
    parse_known(octets, limits)
}

/// Returns a copy of `octets` that says HTTP/1.1 if they say HTTP/1.2 to 1.9, otherwise `None` (RFC 9110 2.5).
fn as_http_1_1(octets: &[u8]) -> Option<Vec<u8>> {
    let minor = octets.strip_prefix(b"HTTP/1.")?.first()?;
    if !matches!(minor, b'2'..=b'9') {
        return None;
    }
    let mut known = octets.to_vec();
    known["HTTP/1.".len()] = b'1';
    Some(known)
}

/// Does the work of [`parse_response`] for a head of version 1.0 or 1.1.
fn parse_known(octets: &[u8], limits: HeadLimits) -> Result<Option<(ResponseHead, usize)>, WireFault> {
    let mut usual = [const { MaybeUninit::uninit() }; USUAL_FIELD_COUNT_MAX];
    let slot_count = limits.field_count_max.min(USUAL_FIELD_COUNT_MAX);
    match parse_into(&mut usual[..slot_count], octets, limits) {
        // Few heads have so many fields that parsing needs an allocation.
        Err(WireFault::TooLarge) if slot_count < limits.field_count_max => {
            let mut unusual = Vec::new();
            unusual.resize_with(limits.field_count_max, MaybeUninit::uninit);
            parse_into(&mut unusual, octets, limits)
        }
        parsed => parsed,
    }
}

/// Does the work of [`parse_response`] for a head with at most as many fields as `slots`.
fn parse_into<'a>(
    slots: &mut [MaybeUninit<httparse::Header<'a>>],
    octets: &'a [u8],
    limits: HeadLimits,
) -> Result<Option<(ResponseHead, usize)>, WireFault> {
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut response, octets, slots);
    let len = match parsed {
        Ok(Status::Complete(len)) if len > limits.bytes_max => return Err(WireFault::TooLarge),
        Ok(Status::Complete(len)) => len,
        Ok(Status::Partial) => return incomplete(octets, limits),
        Err(error) => return Err(error.into()),
    };
    let status = response.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or(WireFault::Malformed("its status code is below 100"))?;
    let version = if response.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    let fields = read_fields(&octets::copied(&octets[..len]), octets, response.headers)?;
    let names = response.headers.iter().map(|field| field.name).collect();
    Ok(Some((ResponseHead { status, version, fields, names }, len)))
}

/// Parses the trailer section of a chunked body: field lines, then an empty line.
///
/// # Errors
/// The octets are not valid field lines.
pub(crate) fn parse_trailers(octets: &[u8], field_count: usize) -> Result<HeaderMap, WireFault> {
    let mut slots = vec![httparse::EMPTY_HEADER; field_count];
    match httparse::parse_headers(octets, &mut slots) {
        Ok(Status::Complete((len, fields))) if len == octets.len() => {
            read_fields(&Bytes::copy_from_slice(octets), octets, fields)
        }
        Ok(_) => Err(WireFault::Malformed("the end of its trailers is ambiguous")),
        Err(error) => Err(error.into()),
    }
}

/// Returns the parsed fields as a map. Their values share the memory of `copy`, which starts with a copy of `octets`.
///
/// The map has spare room for the fields that a proxy adds, because a map that grows hashes all names again.
pub(crate) fn read_fields(
    copy: &Bytes,
    octets: &[u8],
    parsed: &[httparse::Header<'_>],
) -> Result<HeaderMap, WireFault> {
    let base = octets.as_ptr() as usize;
    let mut fields = HeaderMap::with_capacity(parsed.len() + ADDED_FIELD_COUNT);
    for field in parsed {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let name = name.map_err(|_| WireFault::Malformed("a field name contains an invalid character"))?;
        let value = if field.value.is_empty() {
            HeaderValue::from_static("")
        } else {
            let at = field.value.as_ptr() as usize - base;
            let value = HeaderValue::from_maybe_shared(copy.slice(at..at + field.value.len()));
            value.map_err(|_| WireFault::Malformed("a field value contains a control character"))?
        };
        fields.append(name, value);
    }
    Ok(fields)
}

fn incomplete<T>(octets: &[u8], limits: HeadLimits) -> Result<Option<T>, WireFault> {
    if octets.len() >= limits.bytes_max { Err(WireFault::TooLarge) } else { Ok(None) }
}

/// Returns whether the head can end after its first `examined` octets. The blank line may have started in them.
pub(crate) fn may_end(octets: &[u8], examined: usize) -> bool {
    let rest = &octets[examined.saturating_sub(EMPTY_LINE_BYTES_MAX)..];
    steps::take(rest.len());
    memchr::memchr_iter(b'\n', rest).any(|at| matches!(rest[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
}

/// Number of fields for which parsing needs no allocation.
const USUAL_FIELD_COUNT_MAX: usize = 128;
/// Number of fields that a proxy usually adds to a message: Date, Via, Cache-Status, Connection.
const ADDED_FIELD_COUNT: usize = 4;
/// Maximum octets of the blank line that an earlier read may have received (`\r\n\r`). The search for the end of the
/// head begins that many octets before the new ones.
const EMPTY_LINE_BYTES_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits { bytes_max: 200, field_count_max: 4 };

    fn parse_all(text: &str) -> Result<Option<(ResponseHead, usize)>, WireFault> {
        parse_response(text.as_bytes(), 0, LIMITS)
    }

    #[test]
    fn head_is_found_however_it_is_split_and_without_the_octets_after_it() {
        let text = "HTTP/1.1 200 OK\r\nA: 1\r\nEmpty:\r\nA:  two words \r\n\r\nbody";
        for split in 1..text.len() - "body".len() {
            let first = parse_response(&text.as_bytes()[..split], 0, LIMITS);
            assert!(matches!(first, Ok(None)), "{split}: {first:?}");
            let (head, len) = parse_response(text.as_bytes(), split, LIMITS).unwrap().unwrap();
            assert_eq!((head.status, &text[len..]), (StatusCode::OK, "body"));
            let values: Vec<_> = head.fields.get_all("a").iter().collect();
            assert_eq!(values, ["1", "two words"]);
            assert_eq!(head.fields["empty"], "");
        }
    }

    #[test]
    fn what_is_no_head_or_too_large_is_refused() {
        for text in [
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 099 OK\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "ICY 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\n folded: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: 1\r\n folded\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA : 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\n: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: \0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: 1\rB: 2\r\n\r\n",
            "\0",
        ] {
            assert!(matches!(parse_all(text), Err(WireFault::Malformed(_))), "{text:?}");
        }
        let long = format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(200));
        assert_eq!(parse_all(&long).unwrap_err(), WireFault::TooLarge);
        assert_eq!(parse_all(&long[..200]).unwrap_err(), WireFault::TooLarge);
        assert!(parse_all(&long[..199]).unwrap().is_none());
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: 1\r\n".repeat(5));
        assert_eq!(parse_all(&many).unwrap_err(), WireFault::TooLarge);
    }

    #[test]
    fn later_minor_version_of_a_response_is_read_as_1_1() {
        for (line, version) in
            [("HTTP/1.2 200 OK", Some(Version::HTTP_11)), ("HTTP/1.9 404 No", Some(Version::HTTP_11))]
                .into_iter()
                .chain([
                    ("HTTP/1.0 200 OK", Some(Version::HTTP_10)),
                    ("HTTP/2.0 200 OK", None),
                    ("HTTP/1.20 200 OK", None),
                ])
        {
            let text = format!("{line}\r\nA: HTTP/1.2\r\n\r\n");
            for split in 1..text.len() {
                let first = parse_response(&text.as_bytes()[..split], 0, LIMITS);
                assert!(version.is_none() || matches!(first, Ok(None)), "{line}: {split}: {first:?}");
            }
            let parsed = parse_all(&text).ok().flatten();
            assert_eq!(parsed.as_ref().map(|(head, _)| head.version), version, "{line}");
            assert!(parsed.is_none_or(|(head, len)| head.fields["a"] == "HTTP/1.2" && len == text.len()));
        }
    }

    #[test]
    fn more_fields_than_usual_are_parsed_if_the_limit_allows() {
        let limits = HeadLimits { bytes_max: 10_000, field_count_max: 2 * USUAL_FIELD_COUNT_MAX };
        let text = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: 1\r\n".repeat(limits.field_count_max));
        let (head, _) = parse_response(text.as_bytes(), 0, limits).unwrap().unwrap();
        assert_eq!(head.fields.len(), limits.field_count_max);
    }

    #[test]
    fn connection_persists_unless_the_server_says_otherwise() {
        for (text, persists) in [
            ("HTTP/1.1 200 OK\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\nConnection: x, Close\r\nConnection: keep-alive\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", false),
        ] {
            let (head, _) = parse_all(text).unwrap().unwrap();
            assert_eq!(head.persists(), persists, "{text}");
        }
    }
}
