//! Encodes heads, and the framing of bodies, for both sides.
//!
//! Invariants: a message has one framing, which matches its body (RFC 9112 6). A body that breaks off is never ended by
//! its last chunk, nor by fewer octets than announced. Cost: a few octets for each piece of a chunked body; pieces are
//! sent by reference.

use std::io::{IoSlice, Write as _};

use bytes::{Buf as _, Bytes};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version,
    header::{
        AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HOST,
        MAX_FORWARDS, SET_COOKIE, TRAILER,
    },
};
use larder_http::fields::{has_token, is_hop_by_hop};

/// Writes the framing of one message's body, which is sent in pieces.
///
/// ```
/// use larder_wire::BodyEncoder;
///
/// let mut encoder = BodyEncoder::chunked(&http::HeaderMap::new());
/// let mut octets = Vec::new();
/// encoder.begin_piece(4, &mut octets)?;
/// octets.extend_from_slice(b"body");
/// encoder.end(None, &mut octets)?;
/// assert_eq!(octets, b"4\r\nbody\r\n0\r\n\r\n");
/// # Ok::<(), larder_wire::WrongLength>(())
/// ```
#[derive(Debug)]
pub enum BodyEncoder {
    /// The head announced the body's length. The number is how many octets are still to be sent.
    Length(u64),
    /// The body is sent in chunks.
    Chunked {
        /// Whether the last chunk written still lacks the CRLF after its data.
        is_in_chunk: bool,
        /// The Trailer fields of the head. [`BodyEncoder::end`] sends only trailers that they name.
        announced: HeaderMap,
    },
    /// The body ends when the connection is closed.
    UntilClose,
}

/// Error: a body is longer or shorter than its head announced.
///
/// ```
/// use larder_wire::{BodyEncoder, WrongLength};
///
/// let mut encoder = BodyEncoder::Length(3);
/// assert_eq!(encoder.begin_piece(4, &mut Vec::new()), Err(WrongLength));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongLength;

impl BodyEncoder {
    /// Returns the encoder for a chunked body. `fields` are those of the head, whose Trailer field names the permitted
    /// trailers.
    pub fn chunked(fields: &HeaderMap) -> Self {
        let announced = fields.get_all(TRAILER).iter().map(|names| (TRAILER, names.clone())).collect();
        Self::Chunked { is_in_chunk: false, announced }
    }

    /// Appends to `frame` the octets that precede the next piece of the body. `len` is the piece's length, at least 1.
    ///
    /// # Errors
    /// The body is longer than its head announced.
    pub fn begin_piece(&mut self, len: usize, frame: &mut Vec<u8>) -> Result<(), WrongLength> {
        match self {
            Self::Length(left) => *left = left.checked_sub(len as u64).ok_or(WrongLength)?,
            Self::Chunked { is_in_chunk, .. } => {
                end_chunk(is_in_chunk, frame);
                write!(frame, "{len:x}\r\n").expect("a buffer in memory takes all");
                *is_in_chunk = true;
            }
            Self::UntilClose => {}
        }
        Ok(())
    }

    /// Appends to `frame` the octets that end the body: for a chunked body the last chunk and the permitted trailers.
    ///
    /// # Errors
    /// The body is shorter than its head announced.
    pub fn end(&mut self, trailers: Option<&HeaderMap>, frame: &mut Vec<u8>) -> Result<(), WrongLength> {
        match self {
            Self::Length(0) | Self::UntilClose => {}
            Self::Length(_) => return Err(WrongLength),
            Self::Chunked { is_in_chunk, announced } => {
                end_chunk(is_in_chunk, frame);
                frame.extend_from_slice(b"0\r\n");
                let is_announced = |name: &HeaderName| has_token(announced, &TRAILER, name.as_str());
                for (name, value) in trailers.into_iter().flatten() {
                    if may_be_trailer(name) && is_announced(name) {
                        push_field(frame, name, value);
                    }
                }
                frame.extend_from_slice(b"\r\n");
            }
        }
        Ok(())
    }
}

fn end_chunk(is_in_chunk: &mut bool, frame: &mut Vec<u8>) {
    if std::mem::take(is_in_chunk) {
        frame.extend_from_slice(b"\r\n");
    }
}

/// Octets that wait to be written to a connection: a head or framing, then a piece of a body.
///
/// ```
/// use larder_wire::OutgoingOctets;
/// use std::io::Write;
///
/// let mut outgoing = OutgoingOctets::new(b"4\r\n".to_vec(), "body".into());
/// let mut connection = Vec::new();
/// while !outgoing.is_empty() {
///     let sent = connection.write_vectored(&outgoing.slices())?;
///     outgoing.advance(sent);
/// }
/// assert_eq!(connection, b"4\r\nbody");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct OutgoingOctets {
    /// The head of a message, or the framing before `piece`.
    pub frame: Vec<u8>,
    /// Number of octets of `frame` that were written.
    sent_len: usize,
    /// The piece of the body that follows `frame`. Its written octets are removed from its start.
    pub piece: Bytes,
}

impl OutgoingOctets {
    /// Creates the octets `frame` and `piece`, of which none was written yet.
    pub fn new(frame: Vec<u8>, piece: Bytes) -> Self {
        Self { frame, sent_len: 0, piece }
    }

    /// Returns whether all octets were written.
    pub fn is_empty(&self) -> bool {
        self.frame.is_empty() && self.piece.is_empty()
    }

    /// Returns the unwritten octets of frame and piece, for one vectored write.
    pub fn slices(&self) -> [IoSlice<'_>; 2] {
        [IoSlice::new(&self.frame[self.sent_len..]), IoSlice::new(&self.piece)]
    }

    /// Returns whether some, but not all, of the frame was written.
    pub fn is_partly_sent(&self) -> bool {
        self.sent_len > 0
    }

    /// Removes the next `sent` octets, which were written. Once the frame is written, returns its buffer for reuse;
    /// until then returns an empty one.
    pub fn advance(&mut self, sent: usize) -> Vec<u8> {
        let of_frame = sent.min(self.frame.len() - self.sent_len);
        self.sent_len += of_frame;
        self.piece.advance(sent - of_frame);
        if self.piece.is_empty() {
            self.piece = Bytes::new();
        }
        if self.sent_len < self.frame.len() {
            return Vec::new();
        }
        self.sent_len = 0;
        std::mem::take(&mut self.frame)
    }
}

/// Appends a request line for HTTP/1.1. A target without scheme and authority is sent in origin form, others unchanged.
pub fn push_request_line(head: &mut Vec<u8>, method: &Method, target: &Uri) {
    head.extend_from_slice(method.as_str().as_bytes());
    head.push(b' ');
    if target.scheme().is_none() && target.authority().is_none() {
        head.extend_from_slice(target.path_and_query().map_or("/", |target| target.as_str()).as_bytes());
    } else {
        write!(head, "{target}").expect("a buffer in memory takes all");
    }
    head.extend_from_slice(b" HTTP/1.1\r\n");
}

/// Appends a status line.
pub fn push_status_line(head: &mut Vec<u8>, version: Version, status: StatusCode) {
    head.extend_from_slice(if version == Version::HTTP_10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    head.extend_from_slice(status.as_str().as_bytes());
    head.push(b' ');
    head.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    head.extend_from_slice(b"\r\n");
}

/// Appends the head of an interim response (1xx) without Content-Length, which it must not have (RFC 9110 8.6).
pub fn push_interim_head(head: &mut Vec<u8>, status: StatusCode, fields: &HeaderMap) {
    push_status_line(head, Version::HTTP_11, status);
    for (name, value) in fields.iter().filter(|(name, _)| **name != CONTENT_LENGTH) {
        push_field(head, name, value);
    }
    head.extend_from_slice(b"\r\n");
}

/// Appends a line for each field.
pub fn push_fields(head: &mut Vec<u8>, fields: &HeaderMap) {
    for (name, value) in fields {
        push_field(head, name, value);
    }
}

/// Appends the line of one field.
pub fn push_field(line: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    line.extend_from_slice(name.as_str().as_bytes());
    line.extend_from_slice(b": ");
    line.extend_from_slice(value.as_bytes());
    line.extend_from_slice(b"\r\n");
}

/// Returns whether RFC 9110 6.5.1 permits a field as a trailer.
///
/// Fields that frame, route or describe the message, or that identify the user, belong in its head.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_ended_once_and_only_announced_trailers_are_sent() {
        let value = HeaderValue::from_static;
        let mut encoder = BodyEncoder::chunked(&[(TRAILER, value("x-sum, host"))].into_iter().collect());
        let mut frame = Vec::new();
        encoder.begin_piece(16, &mut frame).unwrap();
        frame.extend_from_slice(b"0123456789abcdef");
        encoder.begin_piece(1, &mut frame).unwrap();
        frame.push(b'x');
        let x_sum = HeaderName::from_static("x-sum");
        let x_other = HeaderName::from_static("x-other");
        let trailers = [(x_sum, value("1")), (x_other, value("2")), (HOST, value("a"))].into_iter().collect();
        encoder.end(Some(&trailers), &mut frame).unwrap();
        assert_eq!(frame, b"10\r\n0123456789abcdef\r\n1\r\nx\r\n0\r\nx-sum: 1\r\n\r\n");
    }

    #[test]
    fn body_of_another_length_than_announced_is_never_ended() {
        let mut frame = Vec::new();
        let mut encoder = BodyEncoder::Length(3);
        assert_eq!(encoder.begin_piece(2, &mut frame), Ok(()));
        assert_eq!(encoder.end(None, &mut frame), Err(WrongLength));
        assert_eq!(encoder.begin_piece(2, &mut frame), Err(WrongLength));
        assert!(frame.is_empty());
    }

    #[test]
    fn what_has_left_is_not_sent_again() {
        let mut outgoing = OutgoingOctets::new(b"head".to_vec(), Bytes::from_static(b"piece"));
        let mut sent = Vec::new();
        while !outgoing.is_empty() {
            let first: Vec<u8> = outgoing.slices().iter().flat_map(|slice| slice.to_vec()).take(2).collect();
            outgoing.advance(first.len());
            sent.extend_from_slice(&first);
        }
        assert_eq!(sent, b"headpiece");
    }
}
