//! Separates the octets of a body from its framing.
//!
//! Owns: the position in the body, for each of the three framings (RFC 9112 6.3). No I/O. Invariant: the end is
//! reported only where the framing announces it, and never at the end of a connection that broke off. Chunks are read
//! strictly (RFC 9112 7.1): sizes are plain hexadecimal digits, lines end in CRLF. Those of requests are read more
//! strictly still, because attackers choose them: no white space ends a size, and extensions follow their grammar.
//! Memory: the trailers, until they are complete. Cost: bodies are passed on by reference.

use bytes::{Buf as _, Bytes};
use http::{HeaderMap, Method, StatusCode};
use larder_http::{
    fields::{BodyLength, check_response},
    framing::{BodyMeter, EndMark},
    steps,
};

use crate::{HeadLimits, ResponseHead, WireFault, chunk_extension::ExtensionPart, head::parse_trailers};

/// Decodes the body of one message from the octets of its connection, in any of HTTP/1.1's three framings.
///
/// ```
/// use larder_wire::{BodyDecoder, DecodedPart, HeadLimits, parse_response};
///
/// let limits = HeadLimits { bytes_max: 1000, field_count_max: 10 };
/// let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
/// let (head, _) = parse_response(head, 0, limits)?.expect("a whole head");
/// let mut decoder = BodyDecoder::of_response(&head, &http::Method::GET, limits)?;
/// let mut received = bytes::Bytes::from("4\r\nbody\r\n0\r\n\r\n");
/// assert!(matches!(decoder.next(&mut received)?, DecodedPart::Data(bytes) if bytes == "body"));
/// assert!(matches!(decoder.next(&mut received)?, DecodedPart::End));
/// # Ok::<(), larder_wire::WireFault>(())
/// ```
#[derive(Debug)]
pub enum BodyDecoder {
    /// The body has a known length. The number is how many of its octets are still to come.
    Length(u64),
    /// The body is sent in chunks.
    Chunked(Box<ChunkDecoder>),
    /// The body ends when the peer closes the connection (RFC 9112 6.3, rule 8). Only responses may have this framing.
    UntilClose,
    /// The body ended when the peer closed the connection in an orderly way.
    Closed,
}

/// One part of a body, as [`BodyDecoder::next`] returns it.
///
/// ```
/// use larder_wire::{BodyDecoder, DecodedPart};
///
/// let mut decoder = BodyDecoder::Length(10);
/// let mut received = bytes::Bytes::from("hello");
/// let mut body = Vec::new();
/// let has_ended = loop {
///     match decoder.next(&mut received)? {
///         DecodedPart::Data(bytes) => body.extend_from_slice(&bytes),
///         DecodedPart::Trailers(_) | DecodedPart::End => break true,
///         DecodedPart::More => break false,
///     }
/// };
/// assert!(body == b"hello" && !has_ended, "five more are to come");
/// # Ok::<(), larder_wire::WireFault>(())
/// ```
#[derive(Debug)]
pub enum DecodedPart {
    /// Octets of the body.
    Data(Bytes),
    /// The trailers after a chunked body. The body has ended.
    Trailers(HeaderMap),
    /// The body has ended, as its framing announced.
    End,
    /// The octets received so far contain no further part. Call again when more have arrived.
    More,
}

/// Decodes a chunked body (RFC 9112 7.1), and checks its syntax.
#[derive(Debug)]
pub struct ChunkDecoder {
    place: ChunkPlace,
    /// Whether the body belongs to a request, whose chunks are checked more strictly than a response's.
    is_request: bool,
    /// Number of digits read so far of the current chunk's size.
    digit_count: usize,
    /// Length of the current chunk's extensions so far, in octets, and the parser's position in their grammar.
    extension: (usize, ExtensionPart),
    /// Octets of the current chunk's data that are still to come.
    chunk_bytes: u64,
    /// Total length of the extensions of all chunks so far, in octets.
    extension_bytes: usize,
    /// Octets of the trailer section, which follows the last chunk, as far as it has arrived.
    trailers: Vec<u8>,
    trailer_count: usize,
    limits: HeadLimits,
}

/// Position of the parser in a chunked body (RFC 9112 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkPlace {
    /// Before the first digit of a chunk's size.
    Start,
    Size,
    /// In white space between a chunk's size and its extensions.
    Space,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// At the start of a trailer field's line, or of the empty line that ends the body.
    Line,
    TrailerField,
    TrailerLf,
    EndLf,
    End,
}

impl BodyDecoder {
    /// Returns the decoder for the body of a response. `method` is that of the request: a response to HEAD has no body.
    ///
    /// # Errors
    /// The head leaves the length of the body ambiguous.
    pub fn of_response(head: &ResponseHead, method: &Method, limits: HeadLimits) -> Result<Self, WireFault> {
        if has_no_body(head.status, method) {
            return Ok(Self::empty());
        }
        let length = check_response(&head.fields, head.version).map_err(WireFault::Framing)?;
        Ok(Self::of_length(length, head.status, method, limits))
    }

    /// Returns the decoder for the body of a response whose framing has been checked.
    pub fn of_length(length: BodyLength, status: StatusCode, method: &Method, limits: HeadLimits) -> Self {
        match length {
            _ if has_no_body(status, method) => Self::empty(),
            BodyLength::Length(length) => Self::Length(length),
            BodyLength::Chunked => Self::Chunked(Box::new(ChunkDecoder::new(false, limits))),
            BodyLength::Unstated => Self::UntilClose,
        }
    }

    /// Returns the decoder for a message without a body. It reports the end at once.
    pub fn empty() -> Self {
        Self::Length(0)
    }

    /// Returns the decoder for a chunked request body.
    pub(crate) fn chunked_request(limits: HeadLimits) -> Self {
        Self::Chunked(Box::new(ChunkDecoder::new(true, limits)))
    }

    /// Takes the next part of the body out of `received`, and leaves the remaining octets there.
    ///
    /// # Errors
    /// The octets violate the framing.
    pub fn next(&mut self, received: &mut Bytes) -> Result<DecodedPart, WireFault> {
        match self {
            Self::Length(0) | Self::Closed => Ok(DecodedPart::End),
            Self::Chunked(chunks) => chunks.next(received),
            _ if received.is_empty() => Ok(DecodedPart::More),
            Self::Length(left) => {
                let data = received.split_to(usize::try_from(*left).unwrap_or(usize::MAX).min(received.len()));
                *left -= data.len() as u64;
                Ok(DecodedPart::Data(data))
            }
            Self::UntilClose => Ok(DecodedPart::Data(received.split_off(0))),
        }
    }

    /// Returns whether the whole body was decoded. Trailers may still be waiting to be taken.
    pub fn has_ended(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunks) => chunks.place == ChunkPlace::End,
            Self::UntilClose => false,
            Self::Closed => true,
        }
    }

    /// Returns whether the whole body was decoded and its trailers, if any, were taken.
    pub fn is_exhausted(&self) -> bool {
        let has_trailers = matches!(self, Self::Chunked(chunks) if !chunks.trailers.is_empty());
        self.has_ended() && !has_trailers
    }

    /// Returns a meter that checks whether this body is complete. Call it before decoding anything.
    pub fn meter(&self) -> BodyMeter {
        BodyMeter::http1(match self {
            Self::Length(left) => BodyLength::Length(*left),
            Self::Chunked(_) => BodyLength::Chunked,
            Self::UntilClose | Self::Closed => BodyLength::Unstated,
        })
    }

    /// Returns what marked the end of the body (its length, the last chunk or the close), or `None` before the end.
    pub fn end_mark(&self) -> Option<EndMark> {
        let mark = match self {
            Self::Length(_) => EndMark::Length,
            Self::Chunked(_) => EndMark::LastChunk,
            Self::UntilClose | Self::Closed => EndMark::Close,
        };
        self.has_ended().then_some(mark)
    }

    /// Returns the number of octets still to come, or `None` if the framing does not announce it.
    pub fn remaining(&self) -> Option<u64> {
        match self {
            Self::Length(left) => Some(*left),
            Self::Closed => Some(0),
            Self::Chunked(_) | Self::UntilClose => None,
        }
    }
}

impl ChunkDecoder {
    fn new(is_request: bool, limits: HeadLimits) -> Self {
        Self {
            place: ChunkPlace::Start,
            is_request,
            digit_count: 0,
            extension: (0, ExtensionPart::NameStart),
            chunk_bytes: 0,
            extension_bytes: 0,
            trailers: Vec::new(),
            trailer_count: 0,
            limits,
        }
    }

    fn next(&mut self, received: &mut Bytes) -> Result<DecodedPart, WireFault> {
        loop {
            if self.place == ChunkPlace::End {
                let trailers = std::mem::take(&mut self.trailers);
                return if trailers.is_empty() {
                    Ok(DecodedPart::End)
                } else {
                    steps::take(trailers.len());
                    parse_trailers(&trailers, self.trailer_count).map(DecodedPart::Trailers)
                };
            }
            let Some(&octet) = received.first() else { return Ok(DecodedPart::More) };
            if self.place == ChunkPlace::Data {
                let len = usize::try_from(self.chunk_bytes).unwrap_or(usize::MAX).min(received.len());
                self.chunk_bytes -= len as u64;
                if self.chunk_bytes == 0 {
                    self.place = ChunkPlace::DataCr;
                }
                return Ok(DecodedPart::Data(received.split_to(len)));
            }
            received.advance(1);
            steps::take(1);
            self.place = self.after(octet)?;
        }
    }

    /// Returns the parser's position after `octet`, which belongs to the framing and not to a chunk's data.
    fn after(&mut self, octet: u8) -> Result<ChunkPlace, WireFault> {
        match (self.place, octet) {
            (ChunkPlace::Start | ChunkPlace::Size, digit) if digit.is_ascii_hexdigit() => self.take_digit(digit),
            (ChunkPlace::Size | ChunkPlace::Space, b' ' | b'\t') => Ok(ChunkPlace::Space),
            (ChunkPlace::Size | ChunkPlace::Space, b';') => {
                self.extension = (0, ExtensionPart::NameStart);
                Ok(ChunkPlace::Extension)
            }
            (ChunkPlace::Size, b'\r') => Ok(ChunkPlace::SizeLf),
            // Some implementations pad the size with white space. In a request, only an extension may follow it (RFC
            // 9112 7.1.1).
            (ChunkPlace::Space, b'\r') if !self.is_request => Ok(ChunkPlace::SizeLf),
            (ChunkPlace::Start | ChunkPlace::Size | ChunkPlace::Space, _) => {
                Err(WireFault::Malformed("the size of a chunk of its body is malformed"))
            }
            (ChunkPlace::Extension, b'\r') if !self.is_request || self.extension.1.may_end() => Ok(ChunkPlace::SizeLf),
            (ChunkPlace::Extension, b'\n') => {
                Err(WireFault::Malformed("a line of its chunked body does not end in CR LF"))
            }
            (ChunkPlace::Extension, _) => self.take_extension(octet),
            (ChunkPlace::SizeLf, b'\n') if self.chunk_bytes == 0 => Ok(ChunkPlace::Line),
            (ChunkPlace::SizeLf, b'\n') => Ok(ChunkPlace::Data),
            (ChunkPlace::DataCr, b'\r') => Ok(ChunkPlace::DataLf),
            (ChunkPlace::DataLf, b'\n') => {
                self.digit_count = 0;
                Ok(ChunkPlace::Start)
            }
            (ChunkPlace::Line, b'\r') => Ok(ChunkPlace::EndLf),
            (ChunkPlace::Line | ChunkPlace::TrailerField, _) => self.take_trailer(octet),
            (ChunkPlace::TrailerLf, b'\n') => self.take_trailer(octet),
            (ChunkPlace::EndLf, b'\n') => {
                if !self.trailers.is_empty() {
                    self.trailers.extend_from_slice(b"\r\n");
                }
                Ok(ChunkPlace::End)
            }
            _ => Err(WireFault::Malformed("a chunk of its body is malformed")),
        }
    }

    fn take_digit(&mut self, digit: u8) -> Result<ChunkPlace, WireFault> {
        let value = char::from(digit).to_digit(16).expect("a hexadecimal digit is one");
        self.digit_count += 1;
        let size = self.chunk_bytes.checked_mul(16).and_then(|size| size.checked_add(u64::from(value)));
        match size {
            Some(size) if !self.is_request || self.digit_count <= SIZE_DIGITS_MAX => {
                self.chunk_bytes = size;
                Ok(ChunkPlace::Size)
            }
            _ => Err(WireFault::Malformed("the size of a chunk of its body is malformed")),
        }
    }

    fn take_extension(&mut self, octet: u8) -> Result<ChunkPlace, WireFault> {
        self.extension_bytes += 1;
        if self.extension_bytes >= EXTENSION_BYTES_MAX {
            return Err(WireFault::TooLarge);
        }
        if self.is_request {
            let malformed = WireFault::Malformed("the extension of a chunk of its body is malformed");
            let (len, part) = &mut self.extension;
            *len += 1;
            if *len > CHUNK_EXTENSION_BYTES_MAX {
                return Err(malformed);
            }
            *part = part.step(octet).ok_or(malformed)?;
        }
        Ok(ChunkPlace::Extension)
    }

    fn take_trailer(&mut self, octet: u8) -> Result<ChunkPlace, WireFault> {
        let is_line_end = matches!(octet, b'\r' | b'\n');
        if self.is_request && !is_line_end && !matches!(octet, b'\t' | b' '..=b'~' | 0x80..) {
            return Err(WireFault::Malformed("a chunk of its body is malformed"));
        }
        self.trailers.push(octet);
        let len_max = if self.is_request { TRAILERS_BYTES_MAX } else { usize::MAX };
        if self.trailers.len() >= self.limits.bytes_max.min(len_max) {
            return Err(WireFault::TooLarge);
        }
        Ok(match octet {
            b'\r' => ChunkPlace::TrailerLf,
            b'\n' if self.place == ChunkPlace::TrailerLf => {
                self.trailer_count += 1;
                if self.trailer_count > self.limits.field_count_max {
                    return Err(WireFault::TooLarge);
                }
                ChunkPlace::Line
            }
            b'\n' if self.is_request => return Err(WireFault::Malformed("a chunk of its body is malformed")),
            _ => ChunkPlace::TrailerField,
        })
    }
}

/// Maximum digits of a chunk's size in a request. More would overflow the signed 64-bit sizes of other implementations.
const SIZE_DIGITS_MAX: usize = 15;
/// Maximum length of one chunk's extensions in a request, in octets. Larder drops extensions (RFC 9112 7.1.1).
const CHUNK_EXTENSION_BYTES_MAX: usize = 1 << 10;
/// Maximum length of a request's trailer section, in octets.
const TRAILERS_BYTES_MAX: usize = 16 << 10;
/// Maximum total length of the extensions of all chunks in one body, in octets.
const EXTENSION_BYTES_MAX: usize = 16 << 10;

/// Returns whether a response has no body, whatever its fields say (RFC 9112 6.3).
fn has_no_body(status: StatusCode, method: &Method) -> bool {
    let has_none =
        matches!(status, StatusCode::SWITCHING_PROTOCOLS | StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    has_none || *method == Method::HEAD
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const LIMITS: HeadLimits = HeadLimits { bytes_max: 64, field_count_max: 2 };

    /// A decoded body, its trailers, and the octets after it.
    #[derive(Debug, Default)]
    struct DecodedBody {
        body: Vec<u8>,
        trailers: HeaderMap,
        after: Vec<u8>,
    }

    /// Decodes a chunked body that arrives in two pieces. Returns `None` if it is incomplete.
    fn decode(octets: &[u8], split: usize) -> Result<Option<DecodedBody>, WireFault> {
        let mut decoder = BodyDecoder::Chunked(Box::new(ChunkDecoder::new(false, LIMITS)));
        let mut decoded = DecodedBody::default();
        for piece in [&octets[..split], &octets[split..]] {
            let mut received = Bytes::copy_from_slice(piece);
            loop {
                match decoder.next(&mut received)? {
                    DecodedPart::Data(data) => decoded.body.extend_from_slice(&data),
                    DecodedPart::Trailers(fields) => decoded.trailers = fields,
                    DecodedPart::End | DecodedPart::More => break,
                }
            }
            decoded.after.extend_from_slice(&received);
        }
        Ok(decoder.has_ended().then_some(decoded))
    }

    #[test]
    fn chunks_are_joined_however_they_are_split() {
        let octets = b"5\r\nhello\r\n00A ;x=\"y\"\r\n0123456789\r\n0\r\nA: 1\r\nB: 2\r\n\r\nafter";
        for split in 0..=octets.len() {
            let decoded = decode(octets, split).unwrap().unwrap();
            assert_eq!((&decoded.body[..], &decoded.after[..]), (&b"hello0123456789"[..], &b"after"[..]), "{split}");
            assert_eq!((&decoded.trailers["a"], decoded.trailers.len()), (&"1".parse::<HeaderValue>().unwrap(), 2));
        }
    }

    #[test]
    fn every_fault_of_the_framing_is_found_however_it_is_split() {
        let too_long = format!("0\r\nA: {}\r\n\r\n", "x".repeat(64));
        let extended = format!("1;{}\r\n", "x".repeat(EXTENSION_BYTES_MAX));
        for octets in [
            "\r\n",
            " 1\r\n",
            "+1\r\nx\r\n",
            "0x1\r\nx\r\n",
            "1\nx\r\n",
            "1\r\r\n",
            "1;a\nx\r\n",
            "1 1\r\n",
            "1\r\nxy\r\n",
            "1\r\nx\n",
            "1\r\nx\r\r",
            "10000000000000000\r\n",
            "0\r\nA\r\n\r\n",
            "0\r\nA : 1\r\n\r\n",
            "0\r\nA: 1\n\r\n\r\n",
            "0\r\nA: 1\rB",
            "0\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n",
            "0\r\n\rx",
            &too_long,
            &extended,
        ] {
            for split in 0..octets.len() {
                let decoded = decode(octets.as_bytes(), split);
                assert!(decoded.is_err(), "{octets:?} split at {split}: {decoded:?}");
            }
        }
    }

    #[test]
    fn body_that_breaks_off_never_ends() {
        let octets = b"5\r\nhello\r\n0\r\nA: 1\r\n\r\n";
        for len in 0..octets.len() {
            assert!(decode(&octets[..len], 0).unwrap().is_none(), "{len}");
        }
    }

    #[test]
    fn body_of_a_known_length_ends_there() {
        let mut decoder = BodyDecoder::Length(5);
        let mut received = Bytes::from_static(b"hel");
        assert!(matches!(decoder.next(&mut received), Ok(DecodedPart::Data(data)) if data == "hel"));
        assert!(matches!(decoder.next(&mut received), Ok(DecodedPart::More)));
        assert_eq!((decoder.remaining(), decoder.has_ended()), (Some(2), false));
        received = Bytes::from_static(b"lo, and more");
        assert!(matches!(decoder.next(&mut received), Ok(DecodedPart::Data(data)) if data == "lo"));
        assert!(decoder.has_ended());
        assert!(matches!(decoder.next(&mut received), Ok(DecodedPart::End)));
        assert_eq!(received, ", and more");
    }

    /// Returns the octets after a request's body, or `None` if it has not ended. The body is fed in pieces of every
    /// length.
    fn after(text: &str) -> Result<Option<String>, WireFault> {
        let mut outcomes = (1..=text.len()).map(|piece_len| {
            let limits = HeadLimits { bytes_max: 64 << 10, field_count_max: 40 };
            let mut decoder = BodyDecoder::chunked_request(limits);
            let mut seen = 0;
            for piece in text.as_bytes().chunks(piece_len) {
                seen += piece.len();
                let mut received = Bytes::copy_from_slice(piece);
                while !decoder.has_ended() && !matches!(decoder.next(&mut received)?, DecodedPart::More) {}
                if decoder.has_ended() {
                    decoder.next(&mut received)?;
                    return Ok(Some(text[seen - received.len()..].to_owned()));
                }
            }
            Ok(None)
        });
        let first = outcomes.next().unwrap();
        assert!(outcomes.all(|outcome| outcome == first), "{text:?}");
        first
    }

    #[test]
    fn body_ends_where_its_last_chunk_says_however_it_arrives() {
        assert_eq!(after("5\r\nhello\r\n0\r\n\r\nGET"), Ok(Some("GET".into())));
        assert_eq!(after("1;a=\"b;c\" ;d\r\n\n\r\n00\r\nX: 1\r\nY: 2\r\n\r\n"), Ok(Some(String::new())));
        assert_eq!(after("1 ;a\r\n\n\r\n0\t ; b\r\n\r\n"), Ok(Some(String::new())));
        assert_eq!(after("1; a = b;c=\"\\\"\"\r\n\n\r\n0;x\r\n\r\n"), Ok(Some(String::new())));
        assert_eq!(after("a\r\n0\r\n\r\n0\r\n\r\n"), Ok(None));
    }

    #[test]
    fn bodies_that_can_be_read_in_two_ways_are_faulty() {
        for text in [
            "5 \r\nhello",
            "5 5;a\r\nhello",
            " 5\r\nhello",
            "0x5\r\nhello",
            "+5\r\nhello",
            "-5\r\nhello",
            "5\nhello",
            "5;a\nhello",
            "5;\r\nhello",
            "5; \r\nhello",
            "5;bad[=x\r\nhello",
            "5;a=\r\nhello",
            "5;a=b=c\r\nhello",
            "5;a b\r\nhello",
            "5;a=\"b\r\nhello",
            "5;a=\"b\"c\r\nhello",
            "5;a \r\nhello",
            "5;;a\r\nhello",
            "5;a\rb\r\nhello",
            "5;\0\r\nhello",
            "5\r\nhelloX",
            "5\r\nhello\n0",
            "\r\nhello",
            ";a\r\nhello",
            "ffffffffffffffff\r\n",
            "0000000000000000000005\r\nhello",
            "0\r\nX: 1\n\r\n",
            "0\r\n\n",
            "0\r\nX: \0\r\n\r\n",
        ] {
            assert!(after(text).is_err(), "{text:?}");
        }
        assert!(after(&format!("5;{}\r\nhello", "x".repeat(2000))).is_err());
    }
}
