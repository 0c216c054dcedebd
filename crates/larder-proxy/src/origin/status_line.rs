//! Rewrites the version in an origin's status lines. RFC 9110 2.5 treats a later minor version of HTTP/1 as 1.1, but
//! the HTTP library refuses it.
//!
//! Owns: the position in a connection's octets, as far as needed to find the next status line. Heads are not checked,
//! and bodies are not parsed. Invariant: only the digit after `HTTP/1.` at the very beginning of a response's head is
//! changed, never an octet of a body. After a final head, nothing is examined until the next request has begun. Cost:
//! twelve octets per response; the whole heads of interim responses.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

/// Number of requests begun on a connection, counted by the sender. Wraps.
#[derive(Default)]
pub(crate) struct RequestCount(AtomicU32);

/// The position in the octets of a connection's responses.
pub(crate) struct StatusLines {
    requests: Arc<RequestCount>,
    /// Number of requests whose response has been examined.
    seen: u32,
    place: StatusLinePlace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatusLinePlace {
    /// In a status line, after this many octets.
    Line { octets: usize, is_interim: bool },
    /// In the fields of an interim response. `is_line_empty`: no octet of the present line has arrived.
    Fields { is_line_empty: bool },
    /// After the examined part of the response.
    Behind,
}

impl RequestCount {
    /// Counts a request that is about to be sent.
    pub(crate) fn note(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

impl StatusLines {
    /// Creates the state of a connection on which nothing has been sent.
    pub(crate) fn new(requests: Arc<RequestCount>) -> Self {
        let seen = requests.0.load(Relaxed);
        Self { requests, seen, place: StatusLinePlace::Behind }
    }

    /// Processes arrived octets, and rewrites versions in them.
    pub(crate) fn follow(&mut self, received: &mut [u8]) {
        if self.place == StatusLinePlace::Behind {
            let requests = self.requests.0.load(Relaxed);
            if self.seen == requests {
                return;
            }
            self.seen = requests;
            self.place = StatusLinePlace::BEGIN;
        }
        for octet in received {
            self.place = self.place.after(octet);
            if self.place == StatusLinePlace::Behind {
                return;
            }
        }
    }
}

impl StatusLinePlace {
    const BEGIN: Self = Self::Line { octets: 0, is_interim: false };

    /// Returns the position after this octet, and changes the octet if it is the digit of a later version.
    fn after(self, octet: &mut u8) -> Self {
        match self {
            Self::Line { octets: at, .. } if at < PROTOCOL.len() => {
                if *octet == PROTOCOL[at] {
                    Self::Line { octets: at + 1, is_interim: false }
                } else {
                    Self::Behind
                }
            }
            Self::Line { octets, is_interim } => match (octets - PROTOCOL.len(), *octet) {
                (0, b'0'..=b'9') => {
                    if matches!(*octet, b'2'..=b'9') {
                        *octet = b'1';
                    }
                    Self::Line { octets: octets + 1, is_interim }
                }
                (1, b' ') => Self::Line { octets: octets + 1, is_interim },
                (2, b'1') => Self::Line { octets: octets + 1, is_interim: true },
                (3, _) => Self::Line { octets: octets + 1, is_interim },
                // After a 101, another protocol follows.
                (4, last) if is_interim && last != b'1' => Self::Fields { is_line_empty: false },
                _ => Self::Behind,
            },
            Self::Fields { is_line_empty } => match *octet {
                b'\n' if is_line_empty => Self::BEGIN,
                b'\n' => Self::Fields { is_line_empty: true },
                b'\r' => self,
                _ => Self::Fields { is_line_empty: false },
            },
            Self::Behind => self,
        }
    }
}

const PROTOCOL: &[u8] = b"HTTP/1.";

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the result of `responses`, each to a request of its own, in pieces of every length.
    fn check(responses: &[(&str, &str)]) {
        for piece_len in 1..=responses.iter().map(|(sent, _)| sent.len()).max().unwrap() {
            let requests = Arc::<RequestCount>::default();
            let mut lines = StatusLines::new(Arc::clone(&requests));
            for (sent, expected) in responses {
                requests.note();
                let mut octets = sent.as_bytes().to_vec();
                octets.chunks_mut(piece_len).for_each(|piece| lines.follow(piece));
                assert_eq!(String::from_utf8(octets).unwrap(), *expected, "{piece_len}");
            }
        }
    }

    #[test]
    fn later_minor_version_of_a_response_becomes_1_1_and_nothing_else_changes() {
        check(&[
            ("HTTP/1.2 200 OK\r\n\r\nHTTP/1.2 200 OK", "HTTP/1.1 200 OK\r\n\r\nHTTP/1.2 200 OK"),
            ("HTTP/1.0 200 OK\r\n\r\nHTTP/1.9 ", "HTTP/1.0 200 OK\r\n\r\nHTTP/1.9 "),
            (
                "HTTP/1.3 103 Early\r\nA: HTTP/1.2\r\n\r\nHTTP/1.9 404 No\r\n\r\nHTTP/1.2 200",
                "HTTP/1.1 103 Early\r\nA: HTTP/1.2\r\n\r\nHTTP/1.1 404 No\r\n\r\nHTTP/1.2 200",
            ),
            ("HTTP/2.0 200 OK\r\n", "HTTP/2.0 200 OK\r\n"),
            ("HTTP/1.5 101 OK\r\n\r\nHTTP/1.5 100 ", "HTTP/1.1 101 OK\r\n\r\nHTTP/1.5 100 "),
            ("http/1.5 200 OK\r\n", "http/1.5 200 OK\r\n"),
        ]);
    }

    #[test]
    fn what_comes_without_a_request_is_left_as_it_is() {
        let mut octets = *b"HTTP/1.2 200 OK\r\n\r\n";
        StatusLines::new(Arc::default()).follow(&mut octets);
        assert_eq!(octets, *b"HTTP/1.2 200 OK\r\n\r\n");
    }
}
