//! Encodes requests.
//!
//! Owns: the request line, the fields as they are sent, and the framing of a body that is present. Invariant: a request
//! has one framing, which matches its body (RFC 9112 6). Cost: one buffer of the right length, dropped once it is sent.

use std::io::Write as _;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Request,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};

/// An encoded request: a buffer with the head and possibly the body, and the body if it is in a separate buffer.
pub(super) struct EncodedRequest {
    pub(super) head: Vec<u8>,
    pub(super) body: Bytes,
}

/// Encodes a request with its whole body.
pub(super) fn encode(request: Request<Bytes>) -> EncodedRequest {
    let (mut parts, body) = request.into_parts();
    let is_chunked = settle_framing(&mut parts.headers, body.len());
    let fields_len: usize = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let copied_len = if body.len() <= COPIED_BODY_BYTES_MAX { body.len() + CHUNK_FRAME_BYTES_MAX } else { 0 };
    let target_len = parts.uri.path().len() + parts.uri.query().map_or(0, str::len);
    let mut head = Vec::with_capacity(LINE_BYTES + target_len + fields_len + copied_len);
    head.extend_from_slice(parts.method.as_str().as_bytes());
    head.push(b' ');
    if parts.uri.scheme().is_none() && parts.uri.authority().is_none() {
        head.extend_from_slice(parts.uri.path_and_query().map_or("/", |target| target.as_str()).as_bytes());
    } else {
        write!(head, "{}", parts.uri).expect("a buffer in memory takes all");
    }
    head.extend_from_slice(b" HTTP/1.1\r\n");
    for (name, value) in &parts.headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    if is_chunked {
        // A client's chunked body that has arrived in full is sent in one chunk.
        write!(head, "{:x}\r\n", body.len()).expect("a buffer in memory takes all");
        head.extend_from_slice(&body);
        head.extend_from_slice(b"\r\n0\r\n\r\n");
        return EncodedRequest { head, body: Bytes::new() };
    }
    if body.len() <= COPIED_BODY_BYTES_MAX {
        head.extend_from_slice(&body);
        return EncodedRequest { head, body: Bytes::new() };
    }
    EncodedRequest { head, body }
}

/// Sets the fields that frame a body of this length. Returns whether the body is sent in chunks.
fn settle_framing(fields: &mut HeaderMap, body_len: usize) -> bool {
    if body_len == 0 {
        fields.remove(TRANSFER_ENCODING);
        return false;
    }
    if fields.contains_key(TRANSFER_ENCODING) {
        fields.remove(CONTENT_LENGTH);
        return true;
    }
    fields.insert(CONTENT_LENGTH, HeaderValue::from(body_len));
    false
}

/// Longest body that is copied behind its head, so that both leave in one write.
const COPIED_BODY_BYTES_MAX: usize = 16 << 10;
/// Room for the method, the version, and the ends of the first and the last line.
const LINE_BYTES: usize = 64;
/// Room for the size of the only chunk, and for the last chunk.
const CHUNK_FRAME_BYTES_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(request: http::request::Builder, body: &'static str) -> String {
        let EncodedRequest { head, body } = encode(request.body(Bytes::from_static(body.as_bytes())).unwrap());
        String::from_utf8([&head[..], &body[..]].concat()).unwrap()
    }

    #[test]
    fn request_has_the_framing_of_its_body() {
        let get = || Request::get("/a?b").header("host", "site").header("x", "1");
        assert_eq!(encoded(get(), ""), "GET /a?b HTTP/1.1\r\nhost: site\r\nx: 1\r\n\r\n");
        let chunked = Request::post("/").header("transfer-encoding", "chunked");
        assert_eq!(encoded(chunked, ""), "POST / HTTP/1.1\r\n\r\n");
        let chunked = Request::post("/").header("transfer-encoding", "chunked");
        assert_eq!(
            encoded(chunked, "0123456789abcdef"),
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n"
        );
        let sized = Request::post("/").header("content-length", "2");
        assert_eq!(encoded(sized, "ab"), "POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\nab");
        assert_eq!(encoded(Request::post("/"), "ab"), "POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\nab");
        let empty = Request::post("/").header("content-length", "0");
        assert_eq!(encoded(empty, ""), "POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n");
    }

    #[test]
    fn target_is_sent_in_the_form_it_has() {
        for (target, line) in [
            ("/", "GET / HTTP/1.1\r\n"),
            ("*", "GET * HTTP/1.1\r\n"),
            ("http://site.example:80/a?b", "GET http://site.example:80/a?b HTTP/1.1\r\n"),
        ] {
            assert!(encoded(Request::get(target), "").starts_with(line), "{target}");
        }
    }

    #[test]
    fn long_body_is_not_copied() {
        let body = Bytes::from(vec![7; COPIED_BODY_BYTES_MAX + 1]);
        let sent = encode(Request::post("/").body(body.clone()).unwrap());
        assert_eq!(sent.body.as_ptr(), body.as_ptr());
    }
}
