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
    body_fault: Option<Fault>,
    /// Requests the library has handed over.
    taken_count: u64,
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
    /// Takes what arrived; tells how much of it may go on. The rest is behind a fault in a body, where the connection
    /// ends. (A fault in a head is told with the request, see [`RawRequests::take`].)
    pub(crate) fn push(&mut self, received: &[u8], line_bytes_max: usize) -> usize {
        let mut octets = received;
        loop {
            match &mut self.place {
                Place::Off => return received.len(),
                Place::Head if octets.is_empty() => return received.len(),
                Place::Head => octets = self.push_to_head(octets, line_bytes_max),
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
                        (self.place, self.body_fault) = (Place::Off, Some(fault));
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

    /// Follows nothing any more: what comes is no longer requests.
    pub(crate) fn stop(&mut self) {
        *self = Self { place: Place::Off, ..Self::default() };
    }

    /// What was wrong with the body of a request, if anything was.
    pub(crate) fn body_fault(&self) -> Option<Fault> {
        self.body_fault
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
        let outcome = if self.partial.is_empty() {
            self.head.push_line(line)
        } else {
            self.partial.extend_from_slice(line);
            let outcome = self.head.push_line(&self.partial);
            self.partial = Vec::new();
            outcome
        };
        match outcome {
            Ok(None) => {}
            Ok(Some(framing)) => {
                self.good_count += 1;
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
        assert_eq!((requests.take(), requests.body_fault()), (None, None));
    }

    #[test]
    fn nothing_behind_a_malformed_chunk_goes_on() {
        let mut requests = RawRequests::default();
        let head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(requests.push(head, 1 << 16), head.len());
        assert_eq!(requests.push(b"5\nhello", 1 << 16), 1);
        assert_eq!((requests.take(), requests.body_fault().is_some()), (None, true));
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
