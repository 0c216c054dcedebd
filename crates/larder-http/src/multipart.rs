//! Frames the body of a 206 with several parts: multipart/byteranges (RFC 9110 14.6, 15.3.7.2).
//!
//! It creates the text between the parts and computes the total length beforehand. The caller supplies the bytes of the
//! parts. Invariant: the announced length is the sum of all pieces.
//!
//! The caller draws the 128-bit boundary from an unpredictable generator. Nobody can then craft a body that contains
//! it, so bodies are not searched for it. Cost: one short allocation per part.

use bytes::Bytes;
use http::HeaderValue;

use crate::{range::content_range, span::Span};

/// The body of a 206 with several parts: the text around the parts, and the places of their bytes.
///
/// ```
/// use larder_http::{multipart::{Multipart, Piece}, span::Span};
///
/// let parts = [Span { first: 0, last: 99 }, Span { first: 500, last: 599 }];
/// // Take the boundary from a generator that nobody can predict.
/// let body = Multipart::new(&parts, 1000, None, 0x5eed);
/// let length: u64 = body.pieces().iter().map(Piece::len).sum();
/// assert_eq!(body.content_length(), length);
/// assert!(body.parts().eq(&parts));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multipart {
    boundary: String,
    pieces: Vec<Piece>,
}

/// One piece of a body of several parts: text between the parts, or the bytes of one part. Send the pieces in order.
///
/// ```
/// use larder_http::{multipart::{Multipart, Piece}, span::Span};
///
/// let body = b"0123456789";
/// let parts = [Span { first: 0, last: 1 }, Span { first: 8, last: 9 }];
/// let multipart = Multipart::new(&parts, 10, None, 0x5eed);
/// let mut sent = Vec::new();
/// for piece in multipart.pieces() {
///     match piece {
///         Piece::Text(text) => sent.extend_from_slice(text),
///         Piece::Part(span) => sent.extend_from_slice(&body[span.first as usize..=span.last as usize]),
///     }
/// }
/// assert_eq!(sent.len() as u64, multipart.content_length());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The head of a part, or the closing delimiter.
    Text(Bytes),
    /// A range of the representation. The caller sends the bytes of this range.
    Part(Span),
}

impl Multipart {
    /// Creates a body with these parts, in this order, of a representation of `total_len` bytes.
    pub fn new(parts: &[Span], total_len: u64, content_type: Option<&HeaderValue>, boundary: u128) -> Self {
        let boundary = format!("{boundary:032x}");
        let mut pieces = Vec::with_capacity(parts.len() * 2 + 1);
        for (index, part) in parts.iter().enumerate() {
            let text = part_head(index, part, total_len, content_type, &boundary);
            pieces.push(Piece::Text(text.into()));
            pieces.push(Piece::Part(*part));
        }
        pieces.push(Piece::Text(format!("\r\n--{boundary}--\r\n").into()));
        Self { boundary, pieces }
    }

    /// Returns the Content-Type of the response. The representation's own type is stated in each part.
    pub fn content_type(&self) -> HeaderValue {
        let value = format!("multipart/byteranges; boundary={}", self.boundary);
        HeaderValue::try_from(value).expect("hexadecimal digits are a token")
    }

    /// Returns the length of the whole body in bytes. Saturates at lengths that no response could have.
    pub fn content_length(&self) -> u64 {
        self.pieces.iter().fold(0u64, |len, piece| len.saturating_add(piece.len()))
    }

    /// Iterates over the parts, in order.
    pub fn parts(&self) -> impl Iterator<Item = &Span> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Part(span) => Some(span),
            Piece::Text(_) => None,
        })
    }

    /// Returns the pieces of the body, in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }
}

impl Piece {
    /// Returns the piece's length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Part(span) => span.len(),
        }
    }

    /// Returns false: every piece has bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn part_head(index: usize, part: &Span, total_len: u64, content_type: Option<&HeaderValue>, boundary: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(PART_HEAD_SIZE_USUAL);
    if index > 0 {
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"--");
    text.extend_from_slice(boundary.as_bytes());
    let mut field = |name: &str, value: &HeaderValue| {
        text.extend_from_slice(b"\r\n");
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
    };
    if let Some(content_type) = content_type {
        field("Content-Type", content_type);
    }
    field("Content-Range", &content_range(part.first, part.last, total_len));
    text.extend_from_slice(b"\r\n\r\n");
    text
}

/// Initial buffer size of a part's head, in bytes. Most heads fit without growing it.
const PART_HEAD_SIZE_USUAL: usize = 160;
