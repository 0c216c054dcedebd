//! A connection's requests as octets, followed from head to head beside the HTTP library.
//!
//! Owns: where the octets have come to, and which request is the first with a fault. Does not: judge a head or a
//! chunk, see `raw_head` and `raw_chunks`. Invariant: the library and this count requests alike, since where they might
//! not there is a fault, and nothing behind a fault is followed or answered. Memory: the line that is not
//! complete yet. Cost: one pass over heads, none over bodies with a length.

use memchr::memchr;

use crate::client::{
    raw_chunks::RawChunks,
    raw_head::{Fault, Framing, RawHead},
};

/// What a connection's octets have been so far.
#[derive(Debug, Default)]
pub(crate) struct RawRequests {
    place: Place,
    /// The octets of a line that has not ended yet.
    partial: Vec<u8>,
    head: RawHead,
    /// Heads that ended without a fault.
    good_count: u64,
    head_fault: Option<Fault>,
    fatal_fault: Option<Fault>,
    /// Requests the library has handed over.
    taken_count: u64,
    /// Which of those that it may still hand over ask about a server as a whole, counted from 1.
    server_wide: Vec<u64>,
}

#[derive(Debug, Default)]
enum Place {
    #[default]
    Head,
    Length(u64),
    Chunks(RawChunks),
    /// Nothing is followed any more.
    Off,
}

impl RawRequests {
    /// Takes what arrived; tells how much of it may go on. The rest is behind a fault in a body, or is no HTTP/1.1 to begin with;
    /// there the connection ends. (A fault in a head is told with the request, see [`RawRequests::take`].)
    pub(crate) fn push(&mut self, received: &[u8], line_bytes_max: usize) -> usize {
        let mut octets = received;
        loop {
            match &mut self.place {
                Place::Off => return received.len(),
                Place::Head if octets.is_empty() => return received.len(),
                Place::Head => {
                    octets = self.push_to_head(octets, line_bytes_max);
                    if self.fatal_fault.is_some() {
                        return 0;
                    }
                }
                Place::Length(left) => {
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(octets.len());
                    octets = &octets[count..];
                    *left -= count as u64;
                    if *left > 0 {
                        return received.len();
                    }
                    self.place = Place::Head;
                }
                Place::Chunks(chunks) => match chunks.skip(octets) {
                    Ok(Some(rest)) => (octets, self.place) = (rest, Place::Head),
                    Ok(None) => return received.len(),
                    Err((fault, rest)) => {
                        (self.place, self.fatal_fault) = (Place::Off, Some(fault));
                        return received.len() - rest.len();
                    }
                },
            }
        }
    }

    /// The library hands over the next request: what is wrong with its head, if anything is.
    pub(crate) fn take(&mut self) -> Option<Fault> {
        self.taken_count += 1;
        self.head_fault.filter(|_| self.taken_count > self.good_count)
    }

    /// Whether the request that was handed over last asks about a server as a whole, by a URI that the library reads as that of
    /// its root.
    pub(crate) fn asks_server(&self) -> bool {
        self.server_wide.contains(&self.taken_count)
    }

    /// Follows nothing any more: what comes is no longer requests.
    pub(crate) fn stop(&mut self) {
        *self = Self { place: Place::Off, ..Self::default() };
    }

    /// Why nothing more is to be read, if that is so.
    pub(crate) fn fatal_fault(&self) -> Option<Fault> {
        self.fatal_fault
    }

    /// Takes one line, or what there is of it; returns what follows.
    fn push_to_head<'a>(&mut self, octets: &'a [u8], line_bytes_max: usize) -> &'a [u8] {
        let Some(line_end) = memchr(b'\n', octets) else {
            // The library refuses a head this long; until it does, this must not grow.
            if self.partial.len() + octets.len() <= line_bytes_max {
                self.partial.extend_from_slice(octets);
            } else {
                self.fail("its head is too long");
            }
            return &[];
        };
        let (line, rest) = (&octets[..line_end], &octets[line_end + 1..]);
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
                (self.place, self.fatal_fault) = (Place::Off, Some("the connection begins with no request"));
            }
            Ok(None) => {}
            Ok(Some(framing)) => {
                self.good_count += 1;
                if self.head.asks_server() {
                    self.server_wide.retain(|number| *number >= self.taken_count);
                    self.server_wide.push(self.good_count);
                }
                self.head = RawHead::default();
                self.place = match framing {
                    Framing::Length(0) => Place::Head,
                    Framing::Length(length) => Place::Length(length),
                    Framing::Chunked => Place::Chunks(RawChunks::default()),
                    Framing::Opaque => Place::Off,
                };
            }
            Err(fault) => self.fail(fault),
        }
        rest
    }

    fn fail(&mut self, fault: Fault) {
        self.place = Place::Off;
        self.head_fault = Some(fault);
        self.partial = Vec::new();
    }
}

/// Whether a connection's first line is no request line at all, not even a bad one: neither what stands for its target nor
/// anything behind that looks like one's (RFC 9112 3).
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

    /// What the library is told of each of `count` requests, in pieces of every length.
    fn taken(text: &str, count: usize) -> Vec<bool> {
        let mut outcomes = (1..=text.len()).map(|piece_len| {
            let mut requests = RawRequests::default();
            for piece in text.as_bytes().chunks(piece_len) {
                assert_eq!(requests.push(piece, 1 << 16), piece.len());
            }
            (0..count).map(|_| requests.take().is_some()).collect::<Vec<_>>()
        });
        let first = outcomes.next().unwrap();
        assert!(outcomes.all(|outcome| outcome == first), "{text:?}");
        first
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
        requests.push(b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 1 << 16);
        assert_eq!(requests.take(), None);
        requests.stop();
        requests.push(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nno chunk", 1 << 16);
        assert_eq!((requests.take(), requests.fatal_fault()), (None, None));
    }

    #[test]
    fn request_about_a_server_is_known_by_its_number() {
        let mut requests = RawRequests::default();
        for target in ["http://a", "http://a/", "*", "http://a?", "http://a:80"] {
            requests.push(format!("OPTIONS {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes(), 1 << 16);
        }
        requests.push(b"GET http://a HTTP/1.1\r\nHost: a\r\n\r\n", 1 << 16);
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
        assert_eq!(requests.push(head, 1 << 16), head.len());
        assert_eq!(requests.push(b"5\nhello", 1 << 16), 1);
        assert_eq!((requests.take(), requests.fatal_fault().is_some()), (None, true));
    }

    /// RFC 9113 3.4: what is no preface of HTTP/2 may be closed without a word; what was meant for HTTP/1.1 is answered.
    #[test]
    fn connection_that_begins_with_no_request_goes_no_further() {
        for line in
            ["INVALID CONNECTION PREFACE", "\r\nINVALID CONNECTION PREFACE", "a b c", "a b c d", "PRI X HTTQ/2.0"]
        {
            let (text, mut requests) = (format!("{line}\r\n\r\n"), RawRequests::default());
            assert_eq!(requests.push(text.as_bytes(), 1 << 16), 0, "{line:?}");
            assert!(requests.fatal_fault().is_some(), "{line:?}");
            let mut slow = RawRequests::default();
            assert!(text.bytes().any(|octet| slow.push(&[octet], 1 << 16) == 0), "{line:?}");
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
            let (text, mut requests) = (format!("{line}\r\n\r\n"), RawRequests::default());
            assert_eq!(requests.push(text.as_bytes(), 1 << 16), text.len(), "{line:?}");
            assert_eq!(requests.fatal_fault(), None, "{line:?}");
        }
        let mut later = RawRequests::default();
        assert_eq!(later.push(format!("{GOOD}a b c\r\n\r\n").as_bytes(), 1 << 16), GOOD.len() + 9);
    }

    #[test]
    fn line_that_never_ends_is_a_fault_before_it_is_long() {
        let mut requests = RawRequests::default();
        for _ in 0..100 {
            requests.push(&[b'x'; 100], 1000);
        }
        assert!(requests.partial.capacity() <= 2000 && requests.take().is_some());
    }
}
