//! Encodes requests, and sends them.
//!
//! Owns: the framing of the body, and the octets on their way out. `larder_wire` encodes. Invariant: a body that breaks
//! off is never ended. Cost: one buffer of the right length for the head.

use std::{
    io::{self, Write as _},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Request,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};
use http_body::Body as _;
use larder_wire::{BodyEncoder, OutgoingOctets, WrongLength, push_fields, push_request_line};
use tokio::io::AsyncWrite;

use crate::origins::request_body::{BodyFault, RequestBody};

/// A request that is being sent.
#[derive(Default)]
pub(super) struct OutgoingMessage {
    out: OutgoingOctets,
    /// The body, as long as some of it must still be read and sent. `None` otherwise.
    body: Option<Box<OutgoingBody>>,
}

/// A body that is forwarded while the client sends it.
struct OutgoingBody {
    body: RequestBody,
    encoder: BodyEncoder,
}

/// Why a request was not sent completely.
#[derive(Debug)]
pub(super) enum SendFault {
    Socket(io::Error),
    /// The body of the client's request did not arrive completely.
    Body(BodyFault),
}

/// Encodes a request's head, and prepares its body for sending.
pub(super) fn encode(request: Request<RequestBody>) -> OutgoingMessage {
    let (mut parts, mut body) = request.into_parts();
    let Some(whole) = body.take_whole() else {
        let encoder = match body.size_hint().exact() {
            Some(len) => {
                parts.headers.remove(TRANSFER_ENCODING);
                parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
                BodyEncoder::Length(len)
            }
            None => {
                parts.headers.remove(CONTENT_LENGTH);
                parts.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
                BodyEncoder::chunked(&parts.headers)
            }
        };
        let out = OutgoingOctets::new(encode_head(&parts, 0), Bytes::new());
        return OutgoingMessage { out, body: Some(Box::new(OutgoingBody { body, encoder })) };
    };
    let is_chunked = settle_framing(&mut parts.headers, whole.len());
    let is_copied = is_chunked || whole.len() <= COPIED_BODY_BYTES_MAX;
    let mut frame = encode_head(&parts, if is_copied { whole.len() + CHUNK_FRAME_BYTES_MAX } else { 0 });
    if is_chunked {
        // A chunked body that has arrived completely is sent as one chunk.
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
    OutgoingMessage { out: OutgoingOctets::new(frame, piece), body: None }
}

/// Encodes a request's head into a buffer with room for `more_len` further octets.
fn encode_head(parts: &http::request::Parts, more_len: usize) -> Vec<u8> {
    let fields_len: usize = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let target_len = parts.uri.path().len() + parts.uri.query().map_or(0, str::len);
    let mut head = Vec::with_capacity(LINE_BYTES + target_len + fields_len + more_len);
    push_request_line(&mut head, &parts.method, &parts.uri);
    push_fields(&mut head, &parts.headers);
    head.extend_from_slice(b"\r\n");
    head
}

impl OutgoingMessage {
    /// Sends as much as the socket accepts now. Ready when the whole request was sent.
    pub(super) fn poll_send(
        &mut self,
        mut stream: Pin<&mut impl AsyncWrite>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), SendFault>> {
        loop {
            let is_waiting = match &mut self.body {
                // A piece is sent together with its framing, and the first piece together with the head.
                Some(body) if self.out.piece.is_empty() => match body.poll_piece(&mut self.out.frame, context) {
                    Poll::Ready(Ok(Some(piece))) => {
                        self.out.piece = piece;
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

    /// Writes the queued framing and the queued piece of the body.
    fn poll_write(&mut self, mut stream: Pin<&mut impl AsyncWrite>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            let slices = self.out.slices();
            let slices = match (slices[0].is_empty(), slices[1].is_empty()) {
                (_, true) => &slices[..1],
                (true, false) => &slices[1..],
                (false, false) => &slices[..],
            };
            let sent = ready!(stream.as_mut().poll_write_vectored(context, slices))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            // The buffer of a written frame is freed.
            drop(self.out.advance(sent));
        }
        Poll::Ready(Ok(()))
    }

    /// Returns whether the whole request was sent.
    pub(super) fn is_sent(&self) -> bool {
        self.out.is_empty() && self.body.is_none()
    }
}

impl OutgoingBody {
    /// Waits for the next piece of the body, and appends the framing that precedes it to `frame`.
    ///
    /// At the end of the body, appends the framing that ends it and returns `None`.
    fn poll_piece(&mut self, frame: &mut Vec<u8>, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyFault>> {
        let broken_off = |WrongLength| BodyFault::BrokenOff;
        loop {
            let trailers = match ready!(Pin::new(&mut self.body).poll_frame(context)).transpose()? {
                Some(part) => match part.into_data() {
                    Ok(data) if data.is_empty() => continue,
                    Ok(data) => {
                        self.encoder.begin_piece(data.len(), frame).map_err(broken_off)?;
                        return Poll::Ready(Ok(Some(data)));
                    }
                    Err(part) => part.into_trailers().unwrap_or_default(),
                },
                None => HeaderMap::new(),
            };
            return Poll::Ready(self.encoder.end(Some(&trailers), frame).map_err(broken_off).map(|()| None));
        }
    }
}

/// Sets the fields that frame a body of this length. Returns whether the body is sent as a chunk.
fn settle_framing(fields: &mut HeaderMap, body_len: usize) -> bool {
    let is_chunked = fields.keys().any(|name| *name == TRANSFER_ENCODING);
    if body_len == 0 {
        if is_chunked {
            fields.remove(TRANSFER_ENCODING);
        }
        return false;
    }
    if is_chunked {
        fields.remove(CONTENT_LENGTH);
        return true;
    }
    fields.insert(CONTENT_LENGTH, HeaderValue::from(body_len));
    false
}

/// Maximum length of a body that is copied behind its head, so that both leave in one write.
const COPIED_BODY_BYTES_MAX: usize = 16 << 10;
/// Room for the parts of a head other than target and fields: the method, the version and the line ends, in bytes.
const LINE_BYTES: usize = 64;
/// Room for the framing of a body that is sent as one chunk, in bytes.
const CHUNK_FRAME_BYTES_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(request: http::request::Builder, body: &'static str) -> String {
        let body = RequestBody::whole(Bytes::from_static(body.as_bytes()));
        let OutgoingOctets { frame, piece, .. } = encode(request.body(body).unwrap()).out;
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
        assert_eq!(sent.out.piece.as_ptr(), body.as_ptr());
    }
}
