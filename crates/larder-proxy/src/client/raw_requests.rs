//! Tracks the requests in a connection's octets, in parallel with the HTTP library.
//!
//! Owns: the position in the octets, and the first request that has a fault. `raw_head` and `raw_chunks` check heads
//! and chunks. Invariant: the library and this module count requests alike. Wherever they might not, there is a fault,
//! and octets after a fault are neither parsed nor answered. Memory: the incomplete line. Cost: one pass over heads,
//! none over bodies with a length.

use std::borrow::Cow;

use memchr::memchr;

use crate::client::{
    raw_chunks::RawChunks,
    raw_head::{BodyFraming, HeadFault, RawHead},
    raw_target::{EscapedOctet, STAND_IN, TargetOctets},
};

/// The parser's state after the octets so far.
#[derive(Debug, Default)]
pub(crate) struct RawRequests {
    place: ParsePlace,
    /// The octets of an incomplete line.
    partial: Vec<u8>,
    head: RawHead,
    /// Heads without a fault.
    good_count: u64,
    head_fault: Option<HeadFault>,
    fatal_fault: Option<HeadFault>,
    /// Requests that the library has handed over.
    taken_count: u64,
    /// Positions in the octets just received, and the bytes to write there.
    rewrites: Vec<(usize, &'static [u8])>,
    /// Requests for the server as a whole that the library has not handed over yet, counted from 1.
    server_wide: Vec<u64>,
    /// The octets of the present head's target that no URI has.
    target: TargetOctets,
    /// Those of complete heads that the library has not handed over yet, each with the request's number.
    targets: Vec<(u64, Vec<EscapedOctet>)>,
}

#[derive(Debug, Default)]
enum ParsePlace {
    #[default]
    Head,
    Length(u64),
    Chunks(RawChunks),
    /// The octets are no longer parsed.
    Off,
}

impl RawRequests {
    /// Processes received octets. Returns how many of them may be passed on to the library.
    ///
    /// The rest follow a fault in a body, or are not HTTP/1.1 at all; the connection ends there. A fault in a head is
    /// reported with its request, see [`RawRequests::take`].
    ///
    /// Three constructs are rewritten because the library does not know them. A later minor version of HTTP/1 becomes
    /// 1.1 (RFC 9110 2.5). `Proxy-Connection: keep-alive` of an HTTP/1.0 client becomes `Connection: keep-alive` (RFC
    /// 9112 C.2.2). Octets in a target that no URI has get a stand-in, see [`RawRequests::take_target`].
    pub(crate) fn push(&mut self, received: &mut [u8], line_bytes_max: usize) -> usize {
        let accepted = self.follow(received, line_bytes_max);
        for (at, octets) in self.rewrites.drain(..) {
            received[at..at + octets.len()].copy_from_slice(octets);
        }
        accepted
    }

    fn follow(&mut self, received: &[u8], line_bytes_max: usize) -> usize {
        let mut octets = received;
        loop {
            match &mut self.place {
                ParsePlace::Off => return received.len(),
                ParsePlace::Head if octets.is_empty() => return received.len(),
                ParsePlace::Head => {
                    let start = received.len() - octets.len();
                    octets = self.push_to_head(start, octets, line_bytes_max);
                    if self.fatal_fault.is_some() {
                        return 0;
                    }
                }
                ParsePlace::Length(left) => {
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(octets.len());
                    octets = &octets[count..];
                    *left -= count as u64;
                    if *left > 0 {
                        return received.len();
                    }
                    self.place = ParsePlace::Head;
                }
                ParsePlace::Chunks(chunks) => match chunks.skip(octets) {
                    Ok(Some(rest)) => (octets, self.place) = (rest, ParsePlace::Head),
                    Ok(None) => return received.len(),
                    Err((fault, rest)) => {
                        (self.place, self.fatal_fault) = (ParsePlace::Off, Some(fault));
                        return received.len() - rest.len();
                    }
                },
            }
        }
    }

    /// Returns the fault in the head of the next request that the library hands over, if there is one.
    pub(crate) fn take(&mut self) -> Option<HeadFault> {
        self.taken_count += 1;
        self.head_fault.filter(|_| self.taken_count > self.good_count)
    }

    /// Returns the octets to put back into the target of the last request handed over.
    pub(crate) fn take_target(&mut self) -> Vec<EscapedOctet> {
        if self.targets.is_empty() {
            return Vec::new();
        }
        let taken = self.taken_count;
        self.targets.retain(|(number, _)| *number >= taken);
        match self.targets.first() {
            Some((number, _)) if *number == taken => self.targets.remove(0).1,
            _ => Vec::new(),
        }
    }

    /// Returns whether the last request handed over concerns the server as a whole. The library reports its URI as that
    /// of the root.
    pub(crate) fn asks_server(&self) -> bool {
        self.server_wide.contains(&self.taken_count)
    }

    /// Stops parsing, because the following bytes are not requests.
    pub(crate) fn stop(&mut self) {
        *self = Self { place: ParsePlace::Off, ..Self::default() };
    }

    /// Returns whether the next octet is the first of a request.
    pub(crate) fn is_at_start(&self) -> bool {
        let has_fault = self.head_fault.is_some() || self.fatal_fault.is_some();
        matches!(self.place, ParsePlace::Head) && self.partial.is_empty() && self.head.is_at_start() && !has_fault
    }

    /// Returns whether requests have arrived that the library has not handed over.
    pub(crate) fn has_waiting(&self) -> bool {
        self.good_count > self.taken_count
    }

    /// Returns the reason why nothing more may be read, if there is one.
    pub(crate) fn fatal_fault(&self) -> Option<HeadFault> {
        self.fatal_fault
    }

    /// Records the position of the version digit, if a head's first line ends here with a later version.
    fn note_version(&mut self, start: usize, piece: &[u8]) {
        if !self.head.is_at_start() || self.partial.len() + piece.len() > VERSION_LINE_BYTES_MAX {
            return;
        }
        let known = self.partial.len();
        let whole = if known == 0 { Cow::Borrowed(piece) } else { Cow::Owned([&self.partial, piece].concat()) };
        let at = later_version(&whole).and_then(|at| at.checked_sub(known));
        self.rewrites.extend(at.map(|at| (start + at, &b"1"[..])));
    }

    /// Processes one line, or the part of it that has arrived, from position `start` of the received octets. Returns
    /// the octets after it.
    fn push_to_head<'a>(&mut self, start: usize, octets: &'a [u8], line_bytes_max: usize) -> &'a [u8] {
        let line_end = memchr(b'\n', octets);
        let piece = &octets[..line_end.unwrap_or(octets.len())];
        self.note_version(start, piece);
        if self.head.is_at_start() {
            let Self { target, partial, rewrites, .. } = self;
            target.follow(partial, piece, |at| rewrites.push((start + at, STAND_IN)));
        }
        let Some(line_end) = line_end else {
            // The library refuses a head this long, but only later. Until then this buffer must not grow.
            if self.partial.len() + octets.len() <= line_bytes_max {
                self.partial.extend_from_slice(octets);
            } else {
                self.fail("its head is too long");
            }
            return &[];
        };
        let line = &octets[..line_end];
        let rest = &octets[line_end + 1..];
        // If the line came in pieces, part of it has already been passed on and cannot be rewritten.
        if self.partial.is_empty() && self.head.is_http10() && asks_proxy_to_stay(line) {
            self.rewrites.push((start, CONNECTION));
        }
        let is_first = self.good_count == 0 && self.head.is_at_start();
        let (outcome, is_foreign) = if self.partial.is_empty() {
            (self.head.push_line(line), is_first && is_foreign(line))
        } else {
            self.partial.extend_from_slice(line);
            let whole = std::mem::take(&mut self.partial);
            (self.head.push_line(&whole), is_first && is_foreign(&whole))
        };
        match outcome {
            _ if is_foreign => {
                (self.place, self.fatal_fault) =
                    (ParsePlace::Off, Some("the connection does not begin with a request"));
            }
            Ok(None) => {}
            Ok(Some(framing)) => {
                self.good_count += 1;
                let target = self.target.take();
                if !target.is_empty() {
                    self.targets.push((self.good_count, target));
                }
                if self.head.asks_server() {
                    self.server_wide.retain(|number| *number >= self.taken_count);
                    self.server_wide.push(self.good_count);
                }
                self.head = RawHead::default();
                self.place = match framing {
                    BodyFraming::Length(0) => ParsePlace::Head,
                    BodyFraming::Length(length) => ParsePlace::Length(length),
                    BodyFraming::Chunked => ParsePlace::Chunks(RawChunks::default()),
                    BodyFraming::Opaque => ParsePlace::Off,
                };
            }
            Err(fault) => self.fail(fault),
        }
        rest
    }

    fn fail(&mut self, fault: HeadFault) {
        self.place = ParsePlace::Off;
        self.head_fault = Some(fault);
        self.partial = Vec::new();
    }
}

/// Returns the position of the minor version's digit in a line that ends with a version later than 1.1.
fn later_version(line: &[u8]) -> Option<usize> {
    let (digit, before) = line.strip_suffix(b"\r").unwrap_or(line).split_last()?;
    (matches!(digit, b'2'..=b'9') && before.ends_with(b" HTTP/1.")).then_some(before.len())
}

/// Returns whether a line is `Proxy-Connection: keep-alive`.
fn asks_proxy_to_stay(line: &[u8]) -> bool {
    let Some((name, value)) = line.split_at_checked(PROXY_CONNECTION.len()) else { return false };
    name.eq_ignore_ascii_case(PROXY_CONNECTION) && value.trim_ascii().eq_ignore_ascii_case(b"keep-alive")
}

/// A field name, and a replacement of the same length.
const PROXY_CONNECTION: &[u8] = b"Proxy-Connection:";
const CONNECTION: &[u8] = b"Connection:      ";

/// Longest first line that is searched for a version, in bytes. The line is assembled again with each piece that
/// arrives.
const VERSION_LINE_BYTES_MAX: usize = 16 << 10;

/// Returns whether a connection's first line is not a request line at all: it contains neither a possible target nor a
/// version (RFC 9112 3).
fn is_foreign(line: &[u8]) -> bool {
    let mut words = line.trim_ascii_end().split(|octet| *octet == b' ');
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return false };
    let is_target = target.is_empty() || target == b"*" || target.starts_with(b"/") || target.contains(&b':');
    let mut rest = words.peekable();
    !method.is_empty() && !is_target && rest.peek().is_some() && !rest.any(|word| word.starts_with(b"HTTP/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether each of `count` requests is reported as faulty. The input is fed in pieces of every length.
    fn taken(text: &str, count: usize) -> Vec<bool> {
        let mut outcomes = (1..=text.len()).map(|piece_len| {
            let mut requests = RawRequests::default();
            for piece in text.as_bytes().chunks(piece_len) {
                assert_eq!(push(&mut requests, piece), piece.len());
            }
            (0..count).map(|_| requests.take().is_some()).collect::<Vec<_>>()
        });
        let first = outcomes.next().unwrap();
        assert!(outcomes.all(|outcome| outcome == first), "{text:?}");
        first
    }

    fn push(requests: &mut RawRequests, bytes: impl AsRef<[u8]>) -> usize {
        requests.push(&mut bytes.as_ref().to_vec(), 1 << 16)
    }

    #[test]
    fn later_minor_version_becomes_1_1_however_it_arrives() {
        let text = "GET / HTTP/1.2\r\nA: HTTP/1.3\r\n\r\nPUT /HTTP/1.4 HTTP/1.9\r\nContent-Length: 9\r\n\r\n HTTP/1.5\
                    GET / HTTP/1.0\r\n\r\nGET / HTTP/2.0\r\n\r\n";
        let expected = text.replacen("1.2", "1.1", 1).replacen("1.9", "1.1", 1);
        for piece_len in 1..=text.len() {
            let mut requests = RawRequests::default();
            let mut bytes = text.as_bytes().to_vec();
            for piece in bytes.chunks_mut(piece_len) {
                requests.push(piece, 1 << 16);
            }
            assert_eq!(String::from_utf8(bytes).unwrap(), expected, "{piece_len}");
        }
    }

    #[test]
    fn client_of_http10_that_asks_a_proxy_to_stay_is_understood() {
        let text = "GET / HTTP/1.0\r\nproxy-connection: Keep-Alive\r\nA: Proxy-Connection: keep-alive\r\n\r\n\
                    GET / HTTP/1.0\r\nProxy-Connection: close\r\n\r\nGET / HTTP/1.1\r\nProxy-Connection: keep-alive\r\n\r\n";
        let mut bytes = text.as_bytes().to_vec();
        RawRequests::default().push(&mut bytes, 1 << 16);
        let expected = text.replacen("proxy-connection:", "Connection:      ", 1);
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }

    const GOOD: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const BOTH: &str = "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";

    #[test]
    fn fault_is_told_with_its_own_request_wherever_that_stands() {
        assert_eq!(taken(&format!("{GOOD}{GOOD}"), 2), [false, false]);
        assert_eq!(taken(&format!("{GOOD}{BOTH}{GOOD}"), 3), [false, true, true]);
        let body = "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody";
        assert_eq!(taken(&format!("{body}{body}{BOTH}"), 3), [false, false, true]);
        let chunks = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n";
        assert_eq!(taken(&format!("{chunks}{GOOD}{BOTH}"), 3), [false, false, true]);
    }

    #[test]
    fn what_a_body_or_a_tunnel_says_is_no_head() {
        let body = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{BOTH}{GOOD}", BOTH.len());
        assert_eq!(taken(&body, 2), [false, false]);
        let mut requests = RawRequests::default();
        push(&mut requests, b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(requests.take(), None);
        requests.stop();
        push(&mut requests, b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nno chunk");
        assert_eq!((requests.take(), requests.fatal_fault()), (None, None));
    }

    #[test]
    fn request_about_a_server_is_known_by_its_number() {
        let mut requests = RawRequests::default();
        for target in ["http://a", "http://a/", "*", "http://a?", "http://a:80"] {
            push(&mut requests, format!("OPTIONS {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        }
        push(&mut requests, b"GET http://a HTTP/1.1\r\nHost: a\r\n\r\n");
        let asks = [(); 6].map(|()| {
            requests.take();
            requests.asks_server()
        });
        assert_eq!(asks, [true, false, false, false, true, false]);
    }

    #[test]
    fn nothing_behind_a_malformed_chunk_goes_on() {
        let mut requests = RawRequests::default();
        let head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(push(&mut requests, head), head.len());
        assert_eq!(push(&mut requests, b"5\nhello"), 1);
        assert_eq!((requests.take(), requests.fatal_fault().is_some()), (None, true));
    }

    /// RFC 9113 3.4: after an invalid HTTP/2 preface the connection may close without a response. Malformed HTTP/1.1
    /// gets a response.
    #[test]
    fn connection_that_begins_with_no_request_goes_no_further() {
        for line in
            ["INVALID CONNECTION PREFACE", "\r\nINVALID CONNECTION PREFACE", "a b c", "a b c d", "PRI X HTTQ/2.0"]
        {
            let text = format!("{line}\r\n\r\n");
            let mut requests = RawRequests::default();
            assert_eq!(push(&mut requests, &text), 0, "{line:?}");
            assert!(requests.fatal_fault().is_some(), "{line:?}");
            let mut slow = RawRequests::default();
            assert!(text.bytes().any(|octet| push(&mut slow, [octet]) == 0), "{line:?}");
        }
        for line in [
            "GET / HTTQ/1.1",
            "GET / ",
            "GET /",
            "GET",
            "GET x HTTP/1.1",
            "GET  x HTTP/1.1",
            " GET / HTTP/1.1",
            "GET x y HTTP/1.1",
            "GET * XTTP/1.1",
            "GET http://a/ XTTP/1.1",
            "CONNECT a:443 XTTP/1.1",
            "",
        ] {
            let text = format!("{line}\r\n\r\n");
            let mut requests = RawRequests::default();
            assert_eq!(push(&mut requests, &text), text.len(), "{line:?}");
            assert_eq!(requests.fatal_fault(), None, "{line:?}");
        }
        let mut later = RawRequests::default();
        assert_eq!(push(&mut later, format!("{GOOD}a b c\r\n\r\n").as_bytes()), GOOD.len() + 9);
    }

    #[test]
    fn line_that_never_ends_is_a_fault_before_it_is_long() {
        let mut requests = RawRequests::default();
        for _ in 0..100 {
            requests.push(&mut [b'x'; 100], 1000);
        }
        assert!(requests.partial.capacity() <= 2000 && requests.take().is_some());
    }
}
