//! Encodes requests, and sends them.
//!
//! Owns: the request line, the fields as they are sent, the framing of the body, and the octets on their way out.
//! Invariants: a request has one framing, which matches its body (RFC 9112 6). A body that breaks off is never ended by
//! its last chunk, nor by fewer octets than announced. Cost: one buffer of the right length for the head, and a few
//! octets for each piece of a chunked body; pieces are sent by reference. A buffer is dropped once it is sent.

use std::{
    io::{self, IoSlice, Write as _},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use http::{
    HeaderMap, HeaderName, HeaderValue, Request,
    header::{
        AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HOST,
        MAX_FORWARDS, SET_COOKIE, TRAILER, TRANSFER_ENCODING,
    },
};
use http_body::Body as _;
use larder_http::fields::{has_token, is_hop_by_hop};
use tokio::io::AsyncWrite;

use crate::origin::request_body::{BodyFault, RequestBody};

/// A request on its way out.
#[derive(Default)]
pub(super) struct OutgoingMessage {
    /// The octets that leave before `piece`: the head, or the framing between two pieces of the body.
    frame: Vec<u8>,
    /// Octets of `frame` that have left.
    sent_len: usize,
    /// A piece of the body.
    piece: Bytes,
    /// The body, until its end was reached.
    body: Option<Box<OutgoingBody>>,
}

/// A body that a client is still sending.
struct OutgoingBody {
    body: RequestBody,
    /// Octets that are still to be sent, if the length was announced. Otherwise the body is sent in chunks.
    left: Option<u64>,
    /// Whether a chunk was sent, whose last line is still to be ended.
    is_in_chunk: bool,
    /// The head's Trailer fields. No other trailers are sent.
    announced: HeaderMap,
}

/// Why a request was not sent whole.
#[derive(Debug)]
pub(super) enum SendFault {
    Socket(io::Error),
    /// The client's body did not arrive whole.
    Body(BodyFault),
}

/// Encodes a request.
pub(super) fn encode(request: Request<RequestBody>) -> OutgoingMessage {
    let (mut parts, mut body) = request.into_parts();
    let Some(whole) = body.take_whole() else {
        let left = body.size_hint().exact();
        match left {
            Some(len) => {
                parts.headers.remove(TRANSFER_ENCODING);
                parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
            }
            None => {
                parts.headers.remove(CONTENT_LENGTH);
                parts.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
        }
        let announced = parts.headers.get_all(TRAILER).iter().map(|names| (TRAILER, names.clone())).collect();
        let streamed = OutgoingBody { body, left, is_in_chunk: false, announced };
        let frame = encode_head(&parts, 0);
        return OutgoingMessage { frame, sent_len: 0, piece: Bytes::new(), body: Some(Box::new(streamed)) };
    };
    let is_chunked = settle_framing(&mut parts.headers, whole.len());
    let is_copied = is_chunked || whole.len() <= COPIED_BODY_BYTES_MAX;
    let mut frame = encode_head(&parts, if is_copied { whole.len() + CHUNK_FRAME_BYTES_MAX } else { 0 });
    if is_chunked {
        // A client's chunked body that has arrived in full is sent in one chunk.
        write!(frame, "{:x}\r\n", whole.len()).expect("a buffer in memory takes all");
    }
    let piece = if is_copied {
        frame.extend_from_slice(&whole);
        Bytes::new()
    } else {
        whole
    };
    if is_chunked {
        frame.extend_from_slice(b"\r\n0\r\n\r\n");
    }
    OutgoingMessage { frame, sent_len: 0, piece, body: None }
}

/// Encodes a request's head into a buffer with room for `more_len` further octets.
fn encode_head(parts: &http::request::Parts, more_len: usize) -> Vec<u8> {
    let fields_len: usize = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let target_len = parts.uri.path().len() + parts.uri.query().map_or(0, str::len);
    let mut head = Vec::with_capacity(LINE_BYTES + target_len + fields_len + more_len);
    head.extend_from_slice(parts.method.as_str().as_bytes());
    head.push(b' ');
    if parts.uri.scheme().is_none() && parts.uri.authority().is_none() {
        head.extend_from_slice(parts.uri.path_and_query().map_or("/", |target| target.as_str()).as_bytes());
    } else {
        write!(head, "{}", parts.uri).expect("a buffer in memory takes all");
    }
    head.extend_from_slice(b" HTTP/1.1\r\n");
    for (name, value) in &parts.headers {
        push_field(&mut head, name, value);
    }
    head.extend_from_slice(b"\r\n");
    head
}

fn push_field(line: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    line.extend_from_slice(name.as_str().as_bytes());
    line.extend_from_slice(b": ");
    line.extend_from_slice(value.as_bytes());
    line.extend_from_slice(b"\r\n");
}

impl OutgoingMessage {
    /// Sends what can be sent now. Ready once all of the request has left.
    pub(super) fn poll_send(
        &mut self,
        mut stream: Pin<&mut impl AsyncWrite>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), SendFault>> {
        loop {
            let is_waiting = match &mut self.body {
                // A piece leaves together with its framing, and the first one with the head.
                Some(body) if self.piece.is_empty() => match body.poll_piece(&mut self.frame, context) {
                    Poll::Ready(Ok(Some(piece))) => {
                        self.piece = piece;
                        false
                    }
                    Poll::Ready(Ok(None)) => {
                        self.body = None;
                        false
                    }
                    Poll::Ready(Err(fault)) => return Poll::Ready(Err(SendFault::Body(fault))),
                    Poll::Pending => true,
                },
                Some(_) | None => false,
            };
            ready!(self.poll_write(stream.as_mut(), context)).map_err(SendFault::Socket)?;
            if is_waiting || self.body.is_none() {
                ready!(stream.as_mut().poll_flush(context)).map_err(SendFault::Socket)?;
                return if is_waiting { Poll::Pending } else { Poll::Ready(Ok(())) };
            }
        }
    }

    /// Writes the frame and the piece.
    fn poll_write(&mut self, mut stream: Pin<&mut impl AsyncWrite>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !(self.frame.is_empty() && self.piece.is_empty()) {
            let slices = [IoSlice::new(&self.frame[self.sent_len..]), IoSlice::new(&self.piece)];
            let slices = match (self.frame.is_empty(), self.piece.is_empty()) {
                (_, true) => &slices[..1],
                (true, false) => &slices[1..],
                (false, false) => &slices[..],
            };
            let sent = ready!(stream.as_mut().poll_write_vectored(context, slices))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_frame = sent.min(self.frame.len() - self.sent_len);
            self.sent_len += of_frame;
            self.piece.advance(sent - of_frame);
            if self.sent_len == self.frame.len() {
                (self.frame, self.sent_len) = (Vec::new(), 0);
            }
        }
        self.piece = Bytes::new();
        Poll::Ready(Ok(()))
    }

    /// Returns whether all of the request has left.
    pub(super) fn is_sent(&self) -> bool {
        self.frame.is_empty() && self.piece.is_empty() && self.body.is_none()
    }
}

impl OutgoingBody {
    /// Waits for the next piece of the body, and appends the framing before it to `frame`. At the end, appends the
    /// framing at the end and returns `None`.
    fn poll_piece(&mut self, frame: &mut Vec<u8>, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyFault>> {
        loop {
            let Some(part) = ready!(Pin::new(&mut self.body).poll_frame(context)) else {
                return Poll::Ready(self.end(frame, &HeaderMap::new()).map(|()| None));
            };
            let data = match part?.into_data() {
                Ok(data) => data,
                Err(part) => {
                    let trailers = part.into_trailers().unwrap_or_default();
                    return Poll::Ready(self.end(frame, &trailers).map(|()| None));
                }
            };
            if data.is_empty() {
                continue;
            }
            match &mut self.left {
                Some(left) => *left = left.checked_sub(data.len() as u64).ok_or(BodyFault::BrokenOff)?,
                None => {
                    self.end_chunk(frame);
                    write!(frame, "{:x}\r\n", data.len()).expect("a buffer in memory takes all");
                    self.is_in_chunk = true;
                }
            }
            return Poll::Ready(Ok(Some(data)));
        }
    }

    fn end_chunk(&mut self, frame: &mut Vec<u8>) {
        if std::mem::take(&mut self.is_in_chunk) {
            frame.extend_from_slice(b"\r\n");
        }
    }

    fn end(&mut self, frame: &mut Vec<u8>, trailers: &HeaderMap) -> Result<(), BodyFault> {
        if let Some(left) = self.left {
            return if left == 0 { Ok(()) } else { Err(BodyFault::BrokenOff) };
        }
        self.end_chunk(frame);
        frame.extend_from_slice(b"0\r\n");
        let is_announced = |name: &HeaderName| has_token(&self.announced, &TRAILER, name.as_str());
        for (name, value) in trailers.iter().filter(|(name, _)| may_be_trailer(name) && is_announced(name)) {
            push_field(frame, name, value);
        }
        frame.extend_from_slice(b"\r\n");
        Ok(())
    }
}

/// Returns whether a field may be sent as a trailer: whether it neither frames, routes nor describes the message, nor
/// names the user (RFC 9110 6.5.1).
fn may_be_trailer(name: &HeaderName) -> bool {
    let is_of_head = matches!(
        *name,
        AUTHORIZATION
            | CACHE_CONTROL
            | CONTENT_ENCODING
            | CONTENT_LENGTH
            | CONTENT_RANGE
            | CONTENT_TYPE
            | HOST
            | MAX_FORWARDS
            | SET_COOKIE
            | TRAILER
    );
    !is_of_head && !is_hop_by_hop(name)
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
        let body = RequestBody::whole(Bytes::from_static(body.as_bytes()));
        let OutgoingMessage { frame, piece, .. } = encode(request.body(body).unwrap());
        String::from_utf8([&frame[..], &piece[..]].concat()).unwrap()
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
        let sent = encode(Request::post("/").body(RequestBody::whole(body.clone())).unwrap());
        assert_eq!(sent.piece.as_ptr(), body.as_ptr());
    }
}
