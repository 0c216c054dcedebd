//! Decides whether a body is complete (RFC 9112 6.3, 8; RFC 9113 8.1).
//!
//! A body that breaks off must be neither stored nor served as the whole. A [`BodyMeter`] counts the received bytes.
//! For a body that has ended it returns a [`CompletedBody`], but only if this is the end that the message announced. A
//! body is stored as complete only with this proof.
//!
//! Invariant: nothing else creates a [`CompletedBody`]. The end of a body that an HTTP library reports is not enough:
//! some libraries report an HTTP/2 stream that was reset without an error as if it had ended.

use std::fmt;

use http::{HeaderMap, Version, header::TRANSFER_ENCODING};

use crate::fields::BodyLength;

/// A count of the received bytes of one body, with the end that its message announced.
///
/// ```
/// use larder_http::framing::{BodyMeter, EndMark};
///
/// let mut meter = BodyMeter::of_len(10);
/// meter.take(6);
/// assert_eq!(meter.remaining(), Some(4));
/// assert!(meter.end(EndMark::Length).is_err());
/// meter.take(4);
/// assert_eq!(meter.end(EndMark::Length).expect("all bytes").len(), 10);
/// ```
#[derive(Clone, Debug)]
pub struct BodyMeter {
    end: AnnouncedEnd,
    len: Option<u64>,
    received: u64,
}

/// The way in which a message announces the end of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnnouncedEnd {
    Length,
    LastChunk,
    Close,
    EndStream,
}

/// The way in which a body has ended, as its connection reports it to a [`BodyMeter`].
///
/// ```
/// use larder_http::{fields::BodyLength, framing::{BodyMeter, EndMark}};
///
/// // A body in chunks is complete after its last chunk, not when its connection is closed.
/// let mut meter = BodyMeter::http1(BodyLength::Chunked);
/// meter.take(1000);
/// assert!(meter.end(EndMark::Close).is_err());
/// assert!(meter.end(EndMark::LastChunk).is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndMark {
    /// A frame with END_STREAM was received (RFC 9113 8.1).
    EndStream,
    /// The last chunk was received, with the trailers after it (RFC 9112 7.1).
    LastChunk,
    /// The connection reported no end. The body is complete if all bytes of its announced length were received.
    Length,
    /// The connection was closed in an orderly way, over TLS after a close_notify (RFC 9112 8, 9.8).
    Close,
}

/// The proof that a body was received as a whole. Code that stores a body as complete takes this proof, so that no path
/// can store a truncated one.
///
/// Only a [`BodyMeter`] creates it.
///
/// ```
/// use larder_http::framing::{BodyMeter, CompletedBody, EndMark};
///
/// fn store(body: &[u8], proof: &CompletedBody) {
///     assert_eq!(body.len() as u64, proof.len());
/// }
///
/// let mut meter = BodyMeter::of_len(5);
/// meter.take(5);
/// store(b"hello", &meter.end(EndMark::Length).expect("all bytes"));
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct CompletedBody {
    len: u64,
}

/// The report that a body has ended before it was complete. Its text says how much of the body has arrived.
///
/// ```
/// use larder_http::framing::{BodyMeter, EndMark};
///
/// let mut meter = BodyMeter::of_len(10);
/// meter.take(6);
/// let report = meter.end(EndMark::Length).unwrap_err();
/// assert_eq!(report.to_string(), "the body ended after 6 of 10 bytes");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncompleteBody {
    len: Option<u64>,
    received: u64,
}

impl BodyMeter {
    /// Creates the meter of an HTTP/1 body with this framing.
    pub fn http1(framing: BodyLength) -> Self {
        match framing {
            BodyLength::Length(len) => Self::of_len(len),
            BodyLength::Chunked => Self { end: AnnouncedEnd::LastChunk, len: None, received: 0 },
            BodyLength::Unstated => Self { end: AnnouncedEnd::Close, len: None, received: 0 },
        }
    }

    /// Creates the meter of a body in a stream of HTTP/2 or HTTP/3. `len` is its Content-Length, if it has one.
    pub fn stream(len: Option<u64>) -> Self {
        Self { end: AnnouncedEnd::EndStream, len, received: 0 }
    }

    /// Creates the meter of a body that an HTTP library receives with a message of this version and with these fields.
    /// `len` is its length, if the message announces it.
    pub fn of_message(version: Version, fields: &HeaderMap, len: Option<u64>) -> Self {
        match len {
            _ if version >= Version::HTTP_2 => Self::stream(len),
            Some(len) => Self::of_len(len),
            None if fields.contains_key(TRANSFER_ENCODING) => Self::http1(BodyLength::Chunked),
            None => Self::http1(BodyLength::Unstated),
        }
    }

    /// Creates the meter of a body whose length is known, such as that of a record in a file.
    pub fn of_len(len: u64) -> Self {
        Self { end: AnnouncedEnd::Length, len: Some(len), received: 0 }
    }

    /// Counts received bytes.
    pub fn take(&mut self, bytes: u64) {
        self.received = self.received.saturating_add(bytes);
    }

    /// Returns the number of bytes received so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns the number of bytes still to come, if the message announced a length.
    pub fn remaining(&self) -> Option<u64> {
        self.len.map(|len| len.saturating_sub(self.received))
    }

    /// Returns the proof that the body is complete, if `mark` is the end that the message announced.
    ///
    /// # Errors
    /// The message announced another end, or another length.
    pub fn end(&self, mark: EndMark) -> Result<CompletedBody, IncompleteBody> {
        let is_announced = match (mark, self.end) {
            (EndMark::Length, _) => self.len.is_some(),
            (EndMark::LastChunk, AnnouncedEnd::LastChunk)
            | (EndMark::Close, AnnouncedEnd::Close)
            | (EndMark::EndStream, AnnouncedEnd::EndStream) => true,
            (EndMark::LastChunk | EndMark::Close | EndMark::EndStream, _) => false,
        };
        if is_announced && self.len.is_none_or(|len| len == self.received) {
            Ok(CompletedBody { len: self.received })
        } else {
            Err(self.break_off())
        }
    }

    /// Returns the proof that the body is complete, after an HTTP library has reported its end.
    ///
    /// Over HTTP/1, a library reports the end only where the message announced it, and an error elsewhere. Over HTTP/2,
    /// some libraries also report the end of a stream that was reset; `has_end_stream` says whether the library has
    /// seen END_STREAM.
    ///
    /// # Errors
    /// The message announced another end, or another length.
    pub fn end_reported(&self, has_end_stream: bool) -> Result<CompletedBody, IncompleteBody> {
        self.end(match self.end {
            AnnouncedEnd::EndStream if has_end_stream => EndMark::EndStream,
            AnnouncedEnd::EndStream | AnnouncedEnd::Length => EndMark::Length,
            AnnouncedEnd::LastChunk => EndMark::LastChunk,
            AnnouncedEnd::Close => EndMark::Close,
        })
    }

    /// Returns the report that the body has ended before its announced end.
    pub fn break_off(&self) -> IncompleteBody {
        IncompleteBody { len: self.len, received: self.received }
    }
}

impl CompletedBody {
    /// Returns the length of the body in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the body is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Display for IncompleteBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.len {
            Some(len) if len != self.received => write!(f, "the body ended after {} of {len} bytes", self.received),
            _ => write!(f, "the body ended without its end mark after {} bytes", self.received),
        }
    }
}

impl std::error::Error for IncompleteBody {}
