//! A response of HTTP/1.1 on its way to the client.
//!
//! Owns: the framing of the body, the fields that a server adds, and the octets on their way out. Invariants: a
//! response has one framing, which matches its body (RFC 9112 6.3). A body that cannot be completed is broken off once
//! everything before the break is written, and never ended. Memory: the octets that the client does not take, at their
//! length; the next piece is taken once the last one is written. Cost: a head and a small body leave in one plain
//! write, which costs less than gathering in the kernel. Long pieces are not copied.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{
    HeaderMap, HeaderValue, Response, StatusCode, Version,
    header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING},
};
use http_body::Body as _;
use larder_http::{decimal::push_u64, fields::has_token};
use larder_wire::{BodyEncoder, OutgoingOctets, push_field, push_status_line};

use super::{Http1Door, SocketLink, exchange::ResponseTerms};
use crate::{
    ground::clock,
    road::client::{
        encoded::{EncodedResponse, give_back, scratch},
        response_body::ResponseBody,
    },
};

/// A response that is being sent.
pub(super) struct SendingResponse {
    out: OutgoingOctets,
    /// The body. Kept until everything is written, because dropping it ends the exchange.
    body: ResponseBody,
    encoder: BodyEncoder,
    /// Whether nothing more of the body is to come, because it ended or broke off.
    is_over: bool,
    is_broken: bool,
    /// Whether the connection closes after the response.
    pub(super) closes: bool,
    /// Whether the connection switches to another protocol after the response.
    pub(super) switches: bool,
}

impl SendingResponse {
    /// Encodes the head of a response.
    ///
    /// If the head came with encoded lines, only the missing fields are added.
    pub(super) fn new(response: Response<ResponseBody>, terms: ResponseTerms) -> Self {
        let (parts, mut body) = response.into_parts();
        let opens_tunnel = terms.is_connect && parts.status.is_success();
        let mut head = body.take_lines();
        let has_lines = !head.is_empty();
        if !has_lines {
            head = scratch();
            push_status_line(&mut head, terms.version, parts.status);
        }
        for (name, value) in &parts.headers {
            if *name != CONTENT_LENGTH && *name != TRANSFER_ENCODING {
                push_field(&mut head, name, value);
            }
        }
        let has_no_length = opens_tunnel || parts.status.is_informational() || parts.status == StatusCode::NO_CONTENT;
        let is_over = has_no_length || terms.is_head || parts.status == StatusCode::NOT_MODIFIED;
        let announced = parts.headers.get(CONTENT_LENGTH);
        let encoder = if is_over {
            push_length_of_other(&mut head, announced.filter(|_| !has_no_length), &body, terms);
            BodyEncoder::Length(0)
        } else {
            push_framing(&mut head, &parts.headers, &body, terms)
        };
        let switches = opens_tunnel || parts.status == StatusCode::SWITCHING_PROTOCOLS;
        let says_close = has_token(&parts.headers, &CONNECTION, "close");
        let closes = terms.closes || says_close || matches!(encoder, BodyEncoder::UntilClose);
        if !(switches || says_close) {
            push_persistence(&mut head, terms.version, closes);
        }
        // A stored head has a Date already.
        if !has_lines && !parts.headers.contains_key(DATE) {
            push_field(&mut head, &DATE, &clock::date());
        }
        head.extend_from_slice(b"\r\n");
        Self {
            out: OutgoingOctets::new(head, bytes::Bytes::new()),
            body,
            encoder,
            is_over,
            is_broken: false,
            closes,
            switches,
        }
    }

    /// Completes a head that is encoded already, with the fields that depend on the connection.
    pub(super) fn encoded(response: EncodedResponse, terms: ResponseTerms) -> Self {
        let EncodedResponse { mut head, body, .. } = response;
        let length = body.size_hint().exact().expect("a body in memory has a length");
        push_length(&mut head, length);
        push_persistence(&mut head, terms.version, terms.closes);
        head.extend_from_slice(b"\r\n");
        let out = OutgoingOctets::new(head, bytes::Bytes::new());
        let encoder = BodyEncoder::Length(length);
        Self { out, body, encoder, is_over: false, is_broken: false, closes: terms.closes, switches: false }
    }

    /// Sends as much as the client accepts now. Ready when everything is written.
    ///
    /// # Errors
    /// The client has left, or the body breaks off.
    pub(super) fn poll(
        &mut self,
        link: &mut SocketLink<impl Http1Door>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(link.poll_interim(context))?;
        loop {
            self.fill(context);
            if self.out.is_empty() {
                ready!(link.poll_flush(context))?;
                return match (self.is_over, self.is_broken) {
                    (false, _) => Poll::Pending,
                    (true, false) => Poll::Ready(Ok(())),
                    (true, true) => Poll::Ready(Err(io::Error::other("its response breaks off"))),
                };
            }
            match link.poll_write(&mut self.out, context) {
                Poll::Ready(emptied) => give_back(emptied?),
                Poll::Pending => {
                    self.out.frame.shrink_to_fit();
                    return Poll::Pending;
                }
            }
        }
    }

    /// Collects available pieces of the body to write them together, up to and including the first long one.
    fn fill(&mut self, context: &mut Context<'_>) {
        if self.is_over || !self.out.piece.is_empty() || self.out.is_partly_sent() {
            return;
        }
        if self.out.frame.capacity() == 0 {
            self.out.frame = scratch();
        }
        while !self.is_over && self.out.piece.is_empty() && self.out.frame.len() < GATHER_BYTES_MAX {
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else { break };
            // Taking the end of a body in memory right away saves another poll.
            let is_last = matches!(self.encoder, BodyEncoder::Length(_)) && self.body.is_end_stream();
            let is_sound = match frame {
                None => self.end(None),
                Some(Err(_)) => false,
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.is_empty() => true,
                    Ok(data) => {
                        let is_short = self.out.frame.len() + data.len() <= GATHER_BYTES_MAX;
                        let is_sound = self.encoder.begin_piece(data.len(), &mut self.out.frame).is_ok();
                        if is_short {
                            self.out.frame.extend_from_slice(&data);
                        } else {
                            self.out.piece = data;
                        }
                        if is_sound && is_last { self.end(None) } else { is_sound }
                    }
                    Err(frame) => self.end(frame.into_trailers().ok().as_ref()),
                },
            };
            if !is_sound {
                (self.is_over, self.is_broken) = (true, true);
            }
        }
        if self.out.is_empty() {
            give_back(std::mem::take(&mut self.out.frame));
        }
    }

    /// Ends the body. Returns false if it is shorter than its head announced.
    fn end(&mut self, trailers: Option<&HeaderMap>) -> bool {
        self.is_over = true;
        self.encoder.end(trailers, &mut self.out.frame).is_ok()
    }
}

/// Appends the Content-Length of a response to HEAD, or of a 304, if it is known: the one that a GET would have
/// received.
fn push_length_of_other(
    head: &mut Vec<u8>,
    announced: Option<&HeaderValue>,
    body: &ResponseBody,
    terms: ResponseTerms,
) {
    match (announced, body.size_hint().exact()) {
        (Some(length), _) => push_field(head, &CONTENT_LENGTH, length),
        (None, Some(length)) if terms.is_head && length > 0 => push_length(head, length),
        (None, _) => {}
    }
}

/// Appends the fields that frame the body. Returns the encoder for this framing.
fn push_framing(head: &mut Vec<u8>, fields: &HeaderMap, body: &ResponseBody, terms: ResponseTerms) -> BodyEncoder {
    let announced = || fields.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    match body.size_hint().exact().or_else(announced) {
        Some(length) => {
            push_length(head, length);
            BodyEncoder::Length(length)
        }
        None if terms.version == Version::HTTP_10 => BodyEncoder::UntilClose,
        None => {
            head.extend_from_slice(b"transfer-encoding: chunked\r\n");
            // Only clients that accept trailers receive them (RFC 9110 6.5.1).
            if terms.takes_trailers { BodyEncoder::chunked(fields) } else { BodyEncoder::chunked(&HeaderMap::new()) }
        }
    }
}

fn push_length(head: &mut Vec<u8>, length: u64) {
    head.extend_from_slice(b"content-length: ");
    push_u64(head, length);
    head.extend_from_slice(b"\r\n");
}

/// Appends a Connection field if the connection departs from the default of its HTTP version, such as closing in
/// HTTP/1.1.
fn push_persistence(head: &mut Vec<u8>, version: Version, closes: bool) {
    match version {
        Version::HTTP_10 if !closes => head.extend_from_slice(b"connection: keep-alive\r\n"),
        Version::HTTP_10 => {}
        _ if closes => head.extend_from_slice(b"connection: close\r\n"),
        _ => {}
    }
}

/// Maximum octets that are collected before they are written.
const GATHER_BYTES_MAX: usize = 16 << 10;
