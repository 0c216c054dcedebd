//! Parses the heads of requests strictly (RFC 9112 2.2, 3, 5, 6).
//!
//! Constructs that implementations read differently are refused, because attackers use them to give a message two
//! readings: lines that end in LF alone, a Content-Length together with a Transfer-Encoding, two equal Content-Lengths,
//! folded lines, a fragment in the target. `httparse` splits the fields; the request line and the ends of lines are
//! checked here.
//!
//! Invariant: a head that passes has one framing in every interpretation of the RFC. A refusal keeps as much of the
//! head as was understood, so that it can be logged. Cost: one search for line ends, and one copy of the head.

use std::sync::LazyLock;

use bytes::Bytes;
use http::{
    HeaderMap, Method, Uri, Version,
    header::{CONNECTION, CONTENT_LENGTH, HeaderName, TE, TRANSFER_ENCODING},
};
use httparse::Status;
use larder_http::{
    fields::{NameFilter, has_token},
    octets, steps,
};
use memchr::{memchr, memchr_iter, memchr2};

use crate::{
    BodyDecoder, HeadLimits, WireFault,
    head::{may_end, read_fields},
    target,
};

/// The head of a request.
///
/// ```
/// use larder_wire::{HeadLimits, parse_request};
///
/// let limits = HeadLimits { bytes_max: 1000, field_count_max: 10 };
/// let octets = b"GET /page HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n";
/// let (head, len) = parse_request(octets, 0, true, limits).expect("a valid head").expect("a whole head");
/// assert_eq!((head.target.path(), len), ("/page", octets.len()));
/// assert!(head.body.has_ended(), "a request without a body");
/// assert!(!head.persists());
/// ```
#[derive(Debug)]
pub struct RequestHead {
    /// The request method.
    pub method: Method,
    /// The request target, as a URI.
    pub target: Uri,
    /// HTTP/1.0 or HTTP/1.1. Later versions of HTTP/1 count as 1.1 (RFC 9110 2.5).
    pub version: Version,
    /// The header fields.
    pub fields: HeaderMap,
    /// The decoder for the request's body.
    pub body: BodyDecoder,
    /// The names in `fields`, to rule most lookups out.
    names: NameFilter,
}

/// A request that is refused, and what could be read of its head.
///
/// ```
/// use larder_wire::{HeadLimits, parse_request};
///
/// let limits = HeadLimits { bytes_max: 1000, field_count_max: 10 };
/// let octets = b"POST /form HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n";
/// let refused = parse_request(octets, 0, true, limits).unwrap_err();
/// assert_eq!(refused.fault.to_string(), "it has both content-length and transfer-encoding");
/// assert_eq!((refused.fault.status().as_u16(), refused.head.target.path()), (400, "/form"));
/// ```
#[derive(Debug)]
pub struct RefusedHead {
    /// The reason for the refusal.
    pub fault: WireFault,
    /// The part of the head that was understood before the fault. Other parts have default values.
    pub head: Box<RequestHead>,
}

impl RequestHead {
    /// Returns whether the client wants to send another request on the connection (RFC 9112 9.3).
    ///
    /// HTTP/1.0 clients may ask a proxy to keep the connection open with Proxy-Connection (RFC 9112 C.2.2).
    pub fn persists(&self) -> bool {
        if self.names.may_have(&CONNECTION) && has_token(&self.fields, &CONNECTION, "close") {
            return false;
        }
        let asks_proxy = || {
            let mut values = self.fields.get_all(PROXY_CONNECTION).iter();
            values.any(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"keep-alive"))
        };
        self.version == Version::HTTP_11 || has_token(&self.fields, &CONNECTION, "keep-alive") || asks_proxy()
    }

    /// Returns whether the client accepts trailers in the response (RFC 9110 6.5.1).
    pub fn takes_trailers(&self) -> bool {
        self.names.may_have(&TE) && has_token(&self.fields, &TE, "trailers")
    }

    fn unknown() -> Self {
        static UNKNOWN_METHOD: LazyLock<Method> = LazyLock::new(|| Method::from_bytes(b"-").expect("it is a token"));
        Self {
            method: UNKNOWN_METHOD.clone(),
            target: Uri::default(),
            version: Version::HTTP_11,
            fields: HeaderMap::new(),
            body: BodyDecoder::empty(),
            names: NameFilter::ANY,
        }
    }
}

/// Returns the length of the empty lines at the start of `octets`. Servers skip them before a request (RFC 9112 2.2).
pub fn empty_lines_len(octets: &[u8]) -> usize {
    octets.chunks_exact(2).take_while(|line| *line == b"\r\n").count() * 2
}

/// Parses the request head at the start of `octets`. Returns the head and its length, or `None` if it is incomplete.
///
/// The caller skips empty lines first, see [`empty_lines_len`]. `examined` is how many octets an earlier call received
/// and found incomplete, or 0; the head is parsed again only if the octets after them can end it. `is_first` says that
/// this is the connection's first request.
///
/// # Errors
/// The octets cannot become a request, are ambiguous, or exceed a limit.
pub fn parse_request(
    octets: &[u8],
    examined: usize,
    is_first: bool,
    limits: HeadLimits,
) -> Result<Option<(RequestHead, usize)>, RefusedHead> {
    let refused = |fault| Err(RefusedHead { fault, head: Box::new(RequestHead::unknown()) });
    if examined > 0 && memchr(b'\n', &octets[..examined]).is_some() && !may_end(octets, examined) {
        return if octets.len() >= limits.bytes_max { refused(WireFault::TooLarge) } else { Ok(None) };
    }
    let Some(line_end) = memchr(b'\n', octets) else {
        steps::take(octets.len() - examined);
        return match octets.len() >= limits.bytes_max {
            // The start of the line was judged when it arrived. Judging it again for each further octet would cost
            // quadratic time.
            false if examined >= JUDGED_BYTES_MAX || may_begin(octets) => Ok(None),
            true if memchr(b' ', octets).is_some() => refused(WireFault::TargetTooLong),
            _ => refused(WireFault::Malformed(BAD_LINE)),
        };
    };
    steps::take(octets.len());
    let line = &octets[..line_end];
    if is_first && is_foreign(line) {
        return refused(WireFault::NoRequest);
    }
    let mut has_bare_lf = false;
    let end = memchr_iter(b'\n', octets).find_map(|at| {
        has_bare_lf |= at == 0 || octets[at - 1] != b'\r';
        match &octets[at + 1..] {
            [b'\n', ..] => Some(at + 2),
            [b'\r', b'\n', ..] => Some(at + 3),
            _ => None,
        }
    });
    let mut head = RequestHead::unknown();
    let Some(end) = end else {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let of_line = read_line(&mut head, &Bytes::copy_from_slice(line), line);
        return match of_line {
            Ok(()) if octets.len() < limits.bytes_max => Ok(None),
            Ok(()) => Err(RefusedHead { fault: WireFault::TooLarge, head: Box::new(head) }),
            // A request of HTTP/0.9 consists of this line alone.
            Err(fault) => Err(RefusedHead { fault, head: Box::new(head) }),
        };
    };
    has_bare_lf |= octets[end - 2] != b'\r';
    let octets = &octets[..end];
    match read_head(&mut head, octets, line_end, limits) {
        _ if end > limits.bytes_max => Err(RefusedHead { fault: WireFault::TooLarge, head: Box::new(head) }),
        _ if has_bare_lf => {
            let fault = WireFault::Malformed("a line ends with LF without CR");
            Err(RefusedHead { fault, head: Box::new(head) })
        }
        Ok(()) => Ok(Some((head, end))),
        Err(fault) => Err(RefusedHead { fault, head: Box::new(head) }),
    }
}

/// Parses a complete head into `head`. If it is not valid, `head` has the parts that could be parsed, such as the
/// fields after a bad request line.
fn read_head(head: &mut RequestHead, octets: &[u8], line_end: usize, limits: HeadLimits) -> Result<(), WireFault> {
    let copy = octets::copied(octets);
    let line = octets[..line_end].strip_suffix(b"\r").unwrap_or(&octets[..line_end]);
    let of_line = read_line(head, &copy, line);
    let start = line_end + 1;
    let few = &mut [httparse::EMPTY_HEADER; USUAL_FIELD_COUNT_MAX];
    let few_count = limits.field_count_max.min(USUAL_FIELD_COUNT_MAX);
    let mut many = Vec::new();
    let parsed = match httparse::parse_headers(&octets[start..], &mut few[..few_count]) {
        // Few heads have so many fields that parsing needs an allocation.
        Err(httparse::Error::TooManyHeaders) if few_count < limits.field_count_max => {
            many.resize(limits.field_count_max, httparse::EMPTY_HEADER);
            httparse::parse_headers(&octets[start..], &mut many)
        }
        parsed => parsed,
    };
    let fields = match parsed {
        Ok(Status::Complete((_, fields))) => fields,
        Ok(Status::Partial) => return of_line.and(Err(WireFault::Malformed("the end of its head is ambiguous"))),
        Err(error) => return of_line.and(Err(fault_of_fields(error, &octets[start..]))),
    };
    head.names = fields.iter().map(|field| field.name).collect();
    head.fields = read_fields(&copy, octets, fields)?;
    of_line?;
    head.body = framing(head, limits)?;
    Ok(())
}

/// Parses a request line, given without its line end, into `head`.
fn read_line(head: &mut RequestHead, copy: &Bytes, line: &[u8]) -> Result<(), WireFault> {
    // One search looks for both octets, because a valid line contains neither.
    let odd = memchr2(b'\r', b'#', line);
    if odd.is_some() && memchr(b'\r', line).is_some() {
        return Err(WireFault::Malformed("a line contains a CR"));
    }
    let bad = WireFault::Malformed(BAD_LINE);
    // Methods are short, so a simple loop finds their end faster than memchr.
    let method_end = line.iter().position(|octet| *octet == b' ').ok_or(bad)?;
    head.method = Method::from_bytes(&line[..method_end]).map_err(|_| bad)?;
    let target_start = method_end + 1;
    let target_end = target_start + memchr(b' ', &line[target_start..]).ok_or(bad)?;
    let version = &line[target_end + 1..];
    let outcome = match version.strip_prefix(b"HTTP/").unwrap_or_default() {
        b"1.0" => {
            head.version = Version::HTTP_10;
            Ok(())
        }
        [b'1', b'.', b'1'..=b'9'] => Ok(()),
        [b'0' | b'2'..=b'9', b'.', b'0'..=b'9'] => Err(WireFault::OtherVersion),
        _ => Err(bad),
    };
    // The URI type would cut the fragment off, and the request would go to another target than the line names (RFC 9112
    // 3.2).
    if odd.is_some() {
        return Err(WireFault::Malformed("its target has a fragment"));
    }
    let target = target::parse(&head.method, copy.slice(target_start..target_end));
    outcome?;
    head.target = target?;
    Ok(())
}

/// Returns the decoder for a request's body (RFC 9112 6.3), or the fault of its framing fields.
fn framing(head: &RequestHead, limits: HeadLimits) -> Result<BodyDecoder, WireFault> {
    let fault = |why| Err(WireFault::Malformed(why));
    let mut length = None;
    if !head.names.may_have_any(NameFilter::FRAMING) {
        return Ok(BodyDecoder::empty());
    }
    for value in head.fields.get_all(CONTENT_LENGTH) {
        let value = value.as_bytes();
        if value.is_empty() || value.len() > LENGTH_DIGITS_MAX || !value.iter().all(u8::is_ascii_digit) {
            return fault("its content-length is not a plain number");
        }
        let number = value.iter().fold(0, |number: u64, digit| number * 10 + u64::from(digit - b'0'));
        if length.replace(number).is_some() {
            return fault("it has more than one content-length");
        }
    }
    let mut is_chunked = false;
    for value in head.fields.get_all(TRANSFER_ENCODING) {
        if !value.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return fault("its transfer-encoding is not chunked");
        }
        if std::mem::replace(&mut is_chunked, true) {
            return fault("it has more than one transfer-encoding");
        }
    }
    let has_body = is_chunked || length.is_some_and(|length| length > 0);
    match (is_chunked, length) {
        (true, Some(_)) => fault("it has both content-length and transfer-encoding"),
        (true, None) if head.version == Version::HTTP_10 => fault("its HTTP version does not allow transfer-encoding"),
        _ if head.method == Method::CONNECT && has_body => fault("a CONNECT request has a body"),
        (true, None) => Ok(BodyDecoder::chunked_request(limits)),
        (false, length) => Ok(BodyDecoder::Length(length.unwrap_or(0))),
    }
}

/// Returns the fault to report for header lines that `httparse` refuses.
fn fault_of_fields(error: httparse::Error, lines: &[u8]) -> WireFault {
    let mut lines = lines.split(|octet| *octet == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    if lines.clone().any(|line| memchr(b'\r', line).is_some()) {
        WireFault::Malformed("a line contains a CR")
    } else if lines.any(|line| !line.is_empty() && memchr(b':', line).is_none()) {
        WireFault::Malformed("a line of its head is not a field")
    } else {
        error.into()
    }
}

/// Returns whether `part`, the start of a line, can become a request line.
fn may_begin(part: &[u8]) -> bool {
    let method = part.split(|octet| *octet == b' ').next().unwrap_or_default();
    let is_whole = method.len() < part.len();
    let method = if is_whole { method } else { method.strip_suffix(b"\r").unwrap_or(method) };
    (method.is_empty() && !is_whole) || Method::from_bytes(method).is_ok()
}

/// Returns whether a connection's first line is not meant as HTTP: it has neither a possible target nor a version (RFC
/// 9112 3).
fn is_foreign(line: &[u8]) -> bool {
    let mut words = line.trim_ascii_end().split(|octet| *octet == b' ');
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return false };
    let is_target = target.is_empty() || target == b"*" || target.starts_with(b"/") || target.contains(&b':');
    let mut rest = words.peekable();
    !method.is_empty() && !is_target && rest.peek().is_some() && !rest.any(|word| word.starts_with(b"HTTP/"))
}

/// Number of octets of an incomplete request line that are checked. All usual methods are shorter.
const JUDGED_BYTES_MAX: usize = 64;
const BAD_LINE: &str = "its first line is not a request line";
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
/// Number of fields for which parsing needs no allocation.
const USUAL_FIELD_COUNT_MAX: usize = 32;
/// Maximum digits of a Content-Length. No body needs more, and 19 digits could overflow a signed 64-bit number.
const LENGTH_DIGITS_MAX: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits { bytes_max: 400, field_count_max: 40 };

    /// Parses a request that arrives in two pieces. Returns the head and its length.
    fn parse_split(octets: &[u8], split: usize) -> Result<Option<(RequestHead, usize)>, RefusedHead> {
        match parse_request(&octets[..split], 0, true, LIMITS)? {
            Some(parsed) => Ok(Some(parsed)),
            None => parse_request(octets, split, true, LIMITS),
        }
    }

    fn judge(text: &str) -> Result<(String, usize), WireFault> {
        let outcome = |split| match parse_split(text.as_bytes(), split) {
            Ok(parsed) => {
                let (head, len) = parsed.expect("the head is whole");
                Ok((format!("{} {} {:?}", head.method, head.target, head.body), len))
            }
            Err(refused) => Err(refused.fault),
        };
        let whole = outcome(text.len());
        for split in 1..text.len() {
            assert_eq!(outcome(split), whole, "{text:?} split at {split}");
        }
        whole
    }

    fn fault(text: &str) -> &'static str {
        match judge(text) {
            Err(WireFault::Malformed(why)) => why,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn plain_heads_have_one_framing_however_they_arrive() {
        for (text, summary) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / Length(0)"),
            ("POST /a?b HTTP/1.1\r\ncontent-LENGTH:  12 \r\n\r\n", "POST /a?b Length(12)"),
            ("POST / HTTP/1.1\r\nX: transfer-encoding: x\r\nX-Content-Length: 1\r\n\r\n", "POST / Length(0)"),
            ("CONNECT a:443 HTTP/1.1\r\nContent-Length: 0\r\n\r\n", "CONNECT a:443 Length(0)"),
            ("OPTIONS * HTTP/1.1\r\n\r\n", "OPTIONS * Length(0)"),
        ] {
            assert_eq!(judge(text), Ok((summary.to_owned(), text.len())), "{text:?}");
        }
        let chunked = judge("POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n").unwrap();
        assert!(chunked.0.starts_with("POST / Chunked"));
    }

    #[test]
    fn heads_that_can_be_read_in_two_ways_are_faulty() {
        for (fields, why) in [
            ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", "it has both content-length and transfer-encoding"),
            ("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n", "it has both content-length and transfer-encoding"),
            ("Content-Length: 1\r\nContent-Length: 1\r\n", "it has more than one content-length"),
            ("Content-Length: +1\r\n", "its content-length is not a plain number"),
            ("Content-Length: 1,1\r\n", "its content-length is not a plain number"),
            ("Content-Length:\r\n", "its content-length is not a plain number"),
            ("Content-Length: 9223372036854775808\r\n", "its content-length is not a plain number"),
            ("Transfer-Encoding: gzip, chunked\r\n", "its transfer-encoding is not chunked"),
            ("Transfer-Encoding: \r\n", "its transfer-encoding is not chunked"),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "it has more than one transfer-encoding"),
            ("X: 1\n", "a line ends with LF without CR"),
            ("X: 1\rY: 2\r\n", "a line contains a CR"),
            ("Content-Length\r\n", "a line of its head is not a field"),
            ("X : 1\r\n", "a field name contains an invalid character"),
            (" X: 1\r\n", "a field name contains an invalid character"),
            ("X: 1\r\n folded\r\n", "a line of its head is not a field"),
            ("X: 1\r\n folded: 1\r\n", "a field name contains an invalid character"),
            ("X: \0\r\n", "a field value contains a control character"),
        ] {
            assert_eq!(fault(&format!("POST / HTTP/1.1\r\n{fields}\r\n")), why, "{fields:?}");
        }
        for (text, why) in [
            (
                "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
                "its HTTP version does not allow transfer-encoding",
            ),
            ("CONNECT a:443 HTTP/1.1\r\nContent-Length: 1\r\n\r\n", "a CONNECT request has a body"),
            ("GET / HTTP/1.1\nHost: a\r\n\r\n", "a line ends with LF without CR"),
            ("GET / HTTP/1.1\r\nHost: a\n\n", "a line ends with LF without CR"),
            ("GET /a#b HTTP/1.1\r\n\r\n", "its target has a fragment"),
            ("GET /a\rb HTTP/1.1\r\n\r\n", "a line contains a CR"),
        ] {
            assert_eq!(fault(text), why, "{text:?}");
        }
    }

    #[test]
    fn later_minor_version_is_read_as_1_1_and_another_major_one_is_refused() {
        let version = |line: &str| {
            let text = format!("{line}\r\nA: HTTP/1.3\r\n\r\n");
            parse_request(text.as_bytes(), 0, true, LIMITS).map(|parsed| parsed.unwrap().0.version)
        };
        assert_eq!(version("GET / HTTP/1.2").unwrap(), Version::HTTP_11);
        assert_eq!(version("PUT /HTTP/1.4 HTTP/1.9").unwrap(), Version::HTTP_11);
        assert_eq!(version("GET / HTTP/1.0").unwrap(), Version::HTTP_10);
        assert_eq!(version("GET / HTTP/2.0").unwrap_err().fault, WireFault::OtherVersion);
        assert_eq!(version("PRI * HTTP/2.0").unwrap_err().fault, WireFault::OtherVersion);
        for line in ["GET / HTTP/1.20", "GET / HTTQ/1.1", "GET / http/1.1", "GET /", "GET / ", "GET  / HTTP/1.1"] {
            assert_eq!(version(line).unwrap_err().fault, WireFault::Malformed(BAD_LINE), "{line:?}");
        }
    }

    #[test]
    fn client_of_http10_that_asks_a_proxy_to_stay_is_understood() {
        for (text, persists) in [
            ("GET / HTTP/1.0\r\nproxy-connection: Keep-Alive\r\n\r\n", true),
            ("GET / HTTP/1.0\r\nconnection: Keep-Alive\r\n\r\n", true),
            ("GET / HTTP/1.0\r\nA: Proxy-Connection: keep-alive\r\n\r\n", false),
            ("GET / HTTP/1.0\r\nProxy-Connection: close\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nProxy-Connection: close\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nConnection: x, Close\r\n\r\n", false),
        ] {
            let (head, _) = parse_request(text.as_bytes(), 0, true, LIMITS).unwrap().unwrap();
            assert_eq!(head.persists(), persists, "{text:?}");
        }
    }

    /// RFC 9113 3.4: after an invalid HTTP/2 preface the connection may close without a response. Malformed HTTP/1.1
    /// gets a response.
    #[test]
    fn connection_that_begins_with_no_request_goes_no_further() {
        for line in ["INVALID CONNECTION PREFACE", "a b c", "a b c d", "PRI X HTTQ/2.0"] {
            let text = format!("{line}\r\n\r\n");
            assert_eq!(judge(&text), Err(WireFault::NoRequest), "{line:?}");
            let later = parse_request(text.as_bytes(), 0, false, LIMITS);
            assert_eq!(later.unwrap_err().fault, WireFault::Malformed(BAD_LINE), "{line:?}");
        }
        for line in
            ["GET / HTTQ/1.1", "GET", "GET  x HTTP/1.1", " GET / HTTP/1.1", "GET x y HTTP/1.1", "GET * XTTP/1.1"]
        {
            assert_eq!(judge(&format!("{line}\r\n\r\n")), Err(WireFault::Malformed(BAD_LINE)), "{line:?}");
        }
    }

    #[test]
    fn what_exceeds_a_limit_is_refused_before_it_has_ended() {
        let parse_all = |text: &str| parse_request(text.as_bytes(), 0, true, LIMITS).map(|parsed| parsed.is_some());
        let endless_line = format!("GET /{}", "x".repeat(400));
        assert_eq!(parse_all(&endless_line).unwrap_err().fault, WireFault::TargetTooLong);
        assert!(!parse_all(&endless_line[..399]).unwrap());
        assert_eq!(parse_all(&"x".repeat(400)).unwrap_err().fault, WireFault::Malformed(BAD_LINE));
        let endless_head = format!("GET / HTTP/1.1\r\nA: {}", "x".repeat(400));
        assert_eq!(parse_all(&endless_head).unwrap_err().fault, WireFault::TooLarge);
        assert_eq!(parse_all(&format!("{endless_head}\r\n\r\n")).unwrap_err().fault, WireFault::TooLarge);
        let many = |count| format!("GET / HTTP/1.1\r\n{}\r\n", "A: 1\r\n".repeat(count));
        assert!(parse_all(&many(40)).unwrap());
        assert_eq!(parse_all(&many(41)).unwrap_err().fault, WireFault::TooLarge);
    }

    /// Guards against a client that sends a line octet by octet, and so makes each octet cost as much as all before it.
    #[test]
    fn long_line_that_arrives_by_octets_costs_as_much_as_at_once() {
        let limits = HeadLimits { bytes_max: 40_000, field_count_max: 40 };
        for line in [format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(30_000)), "x".repeat(30_000)] {
            steps::bounded(line.len(), || {
                for len in 1..line.len() {
                    let parsed = parse_request(&line.as_bytes()[..len], len - 1, false, limits);
                    assert!(parsed.unwrap().is_none(), "{len}");
                }
            });
        }
    }

    #[test]
    fn octets_that_cannot_begin_a_request_are_refused_at_once() {
        for (text, is_possible) in [
            ("GE", true),
            ("GET /", true),
            ("\r", true),
            ("\x16\x03\x01\x02\x01", false),
            ("G\"T /", false),
            (" GET", false),
        ] {
            assert_eq!(parse_request(text.as_bytes(), 0, true, LIMITS).is_ok(), is_possible, "{text:?}");
        }
    }

    #[test]
    fn refused_head_is_kept_as_far_as_it_was_understood() {
        let text = "POST /a HTTP/1.1\r\nAccept: b\r\nContent-Length: x\r\n\r\n";
        let RefusedHead { head, .. } = parse_request(text.as_bytes(), 0, true, LIMITS).unwrap_err();
        assert_eq!((head.method, head.target.path(), head.fields.len()), (Method::POST, "/a", 2));
    }
}
