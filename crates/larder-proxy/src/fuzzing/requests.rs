//! Fuzzes the reading of requests as they arrive: heads, and bodies in chunks or with a length.

use bytes::Bytes;
use larder_wire::{DecodedPart, HeadLimits, empty_lines_len, parse_request};

/// Parses these bytes as consecutive requests: first as a whole, then in two pieces.
///
/// # Panics
/// If the parsed requests depend on where the bytes are split.
pub(super) fn read(bytes: &[u8]) {
    let whole = read_in_two(bytes, bytes.len());
    let split = bytes.iter().fold(0, |sum: usize, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
    for split in [1, split % (bytes.len() + 1), bytes.len().saturating_sub(1)] {
        let split = split.min(bytes.len());
        assert_eq!(read_in_two(bytes, split), whole, "split at {split}: {}", bytes.escape_ascii());
    }
}

/// Parses consecutive requests that arrive in two pieces. Returns the complete ones, each with its body, up to the
/// first fault.
fn read_in_two(bytes: &[u8], split: usize) -> Vec<(String, Vec<u8>)> {
    let limits = HeadLimits { bytes_max: 64 << 10, field_count_max: 100 };
    let mut requests = Vec::new();
    let mut at = 0;
    while requests.len() < REQUESTS_MAX {
        at += empty_lines_len(&bytes[at..]);
        let first = bytes.get(at..split).unwrap_or_default();
        let parsed = match parse_request(first, 0, requests.is_empty(), limits) {
            Ok(None) => parse_request(&bytes[at..], first.len(), requests.is_empty(), limits),
            parsed => parsed,
        };
        let Ok(Some((head, len))) = parsed else { break };
        at += len;
        let mut decoder = head.body;
        let mut body = Vec::new();
        for end in [split.max(at), bytes.len()] {
            let mut received = Bytes::copy_from_slice(&bytes[at..end]);
            while !decoder.is_exhausted() {
                match decoder.next(&mut received) {
                    Ok(DecodedPart::Data(data)) => body.extend_from_slice(&data),
                    Ok(DecodedPart::Trailers(_) | DecodedPart::End) => {}
                    Ok(DecodedPart::More) => break,
                    Err(_) => return requests,
                }
            }
            at = end - received.len();
        }
        if !decoder.is_exhausted() {
            break;
        }
        requests.push((format!("{} {} {:?} {:?}", head.method, head.target, head.version, head.fields), body));
    }
    requests
}

/// Returns sample requests: one for each kind of body framing, and one that is refused.
pub(super) fn samples() -> Vec<Vec<u8>> {
    let requests: [&[u8]; 4] = [
        b"GET /a?b=\"<c> HTTP/1.1\r\nHost: a.example\r\nX: y\r\n\r\n\r\nGET * HTTP/1.0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloOPTIONS http://a HTTP/1.2\r\n\r\n",
        b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;x=\"y\"\r\nhello\r\n0\r\nT: 1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        b"CONNECT a:443 HTTP/1.1\r\nContent-Length: 1\r\n\r\n",
    ];
    requests.map(<[u8]>::to_vec).into()
}

/// Maximum number of requests that are parsed per input, so that the cost stays proportional to the input's length.
const REQUESTS_MAX: usize = 16;
