//! The octets of a request's head as they came, to see what the HTTP library resolves silently: a request
//! with both Content-Length and Transfer-Encoding (RFC 9112 6.1). The library takes the latter and drops
//! the former, as the RFC allows; we refuse, since whoever sends this means to be read in two ways.
//!
//! Owns: a copy of what was read since the connection was last idle, bounded by the limit for heads.
//! Cost: one short copy per request; it is looked at only when there is a Transfer-Encoding.

use http::Method;

/// What was read since the connection was last idle.
#[derive(Default)]
pub(crate) struct RawHead(Vec<u8>);

impl RawHead {
    /// Begins anew: a new request's first octets arrive.
    pub(crate) fn begin(&mut self, octets: &[u8], bytes_max: usize) {
        self.0.clear();
        self.0.shrink_to(KEPT_BYTES);
        self.push(octets, bytes_max);
    }

    /// Appends what arrived.
    pub(crate) fn push(&mut self, octets: &[u8], bytes_max: usize) {
        let room = bytes_max.saturating_sub(self.0.len());
        self.0.extend_from_slice(&octets[..octets.len().min(room)]);
    }

    /// Whether the head of a request with this method and a Transfer-Encoding has a Content-Length too.
    pub(crate) fn has_both_lengths(&self, method: &Method) -> bool {
        let mut rest = &self.0[..];
        while !rest.is_empty() {
            let (head, after) = split_head(rest);
            let lines = || head.split(|byte| *byte == b'\n');
            let has = |name: &[u8]| {
                lines().any(|line| {
                    let end = line.iter().position(|byte| *byte == b':').unwrap_or(0);
                    line[..end].eq_ignore_ascii_case(name)
                })
            };
            let is_ours = lines().any(|line| line.strip_prefix(method.as_str().as_bytes()).is_some());
            if is_ours && has(b"transfer-encoding") {
                return has(b"content-length");
            }
            rest = after;
        }
        false
    }
}

/// The octets up to the first empty line, and what follows it.
fn split_head(octets: &[u8]) -> (&[u8], &[u8]) {
    let mut start = 0;
    // Empty lines before a request are passed over (RFC 9112 2.2).
    while matches!(octets.get(start), Some(b'\r' | b'\n')) {
        start += 1;
    }
    let mut line = start;
    while let Some(length) = octets[line..].iter().position(|byte| *byte == b'\n') {
        let end = line + length + 1;
        if matches!(&octets[line..end], b"\n" | b"\r\n") {
            return (&octets[start..line], &octets[end..]);
        }
        line = end;
    }
    (&octets[start..], &[])
}

/// Memory a connection keeps for this between requests, in bytes.
const KEPT_BYTES: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn has_both(octets: &str) -> bool {
        let mut head = RawHead::default();
        head.begin(octets.as_bytes(), 1 << 16);
        head.has_both_lengths(&Method::POST)
    }

    #[test]
    fn both_lengths_are_seen_in_any_order_and_case() {
        assert!(has_both("POST / HTTP/1.1\r\nCONTENT-length: 1\r\nTransfer-encoding: chunked\r\n\r\n"));
        assert!(has_both("\r\nPOST / HTTP/1.1\nTransfer-Encoding: chunked\nContent-Length: 1\n\n0\n\n"));
        assert!(has_both("GET / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\nTransfer-Encoding: x\r\nContent-Length: 1\r\n\r\n"));
    }

    #[test]
    fn one_length_is_not_two_whatever_the_body_says() {
        assert!(!has_both("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nContent-Length: 5\r\n"));
        assert!(!has_both("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nX: content-length: 5\r\n\r\n"));
        assert!(!has_both(""));
    }

    #[test]
    fn copy_stays_within_its_bound() {
        let mut head = RawHead::default();
        head.begin(&[b'x'; 100], 150);
        head.push(&[b'x'; 100], 150);
        assert_eq!(head.0.len(), 150);
    }
}
