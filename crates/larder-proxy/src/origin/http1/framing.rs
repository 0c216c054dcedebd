//! Separates the octets of a response's body from its framing.
//!
//! Owns: the position in the body, for each of the three framings (RFC 9112 6.3). No I/O. Invariant: the end is
//! reported only where the framing announces it, and never at the end of a connection that broke off. Chunks are read
//! strictly (RFC 9112 7.1): sizes are plain hexadecimal digits, lines end in CRLF. Memory: the trailers, until they are
//! complete. Cost: bodies are passed on by reference.

use bytes::{Buf as _, Bytes};
use http::{HeaderMap, Method, StatusCode};
use larder_http::{
    fields::{BodyLength, check_response},
    framing::{BodyMeter, EndMark},
    steps,
};

use super::head::{HeadLimits, ResponseFault, ResponseHead, parse_trailers};

/// The framing of a body, and the position in it.
#[derive(Debug)]
pub(crate) enum BodyDecoder {
    /// The body has a known length; this many octets are still to come.
    Length(u64),
    Chunked(Box<ChunkDecoder>),
    /// The body ends with the connection.
    UntilClose,
    /// The connection on which the body ends was closed in an orderly way.
    Closed,
}

/// The next part of a body.
#[derive(Debug)]
pub(crate) enum DecodedPart {
    Data(Bytes),
    /// The trailers. The body has ended.
    Trailers(HeaderMap),
    /// The end, as the framing announced it.
    End,
    /// More octets are needed.
    More,
}

/// The position in a chunked body.
#[derive(Debug)]
pub(crate) struct ChunkDecoder {
    place: ChunkPlace,
    /// Octets of the present chunk that are still to come.
    chunk_bytes: u64,
    /// Octets of extensions in all chunks together.
    extension_bytes: usize,
    /// The field lines after the last chunk.
    trailers: Vec<u8>,
    trailer_count: usize,
    limits: HeadLimits,
}

/// A place in a chunked body (RFC 9112 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkPlace {
    /// Before the first digit of a size.
    Start,
    Size,
    /// In white space after the size.
    Space,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// At the beginning of a field line, or of the empty line at the end.
    Line,
    TrailerField,
    TrailerLf,
    EndLf,
    End,
}

impl BodyDecoder {
    /// Returns the framing of the body of a response to a request with this method.
    ///
    /// # Errors
    /// The length of the body is ambiguous.
    pub(crate) fn of_response(head: &ResponseHead, method: &Method, limits: HeadLimits) -> Result<Self, ResponseFault> {
        let has_none =
            matches!(head.status, StatusCode::SWITCHING_PROTOCOLS | StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if has_none || *method == Method::HEAD {
            return Ok(Self::Length(0));
        }
        Ok(match check_response(&head.fields, head.version).map_err(ResponseFault::Framing)? {
            BodyLength::Length(length) => Self::Length(length),
            BodyLength::Chunked => Self::Chunked(Box::new(ChunkDecoder::new(limits))),
            BodyLength::Unstated => Self::UntilClose,
        })
    }

    /// Takes the next part from the received octets.
    ///
    /// # Errors
    /// The octets violate the framing.
    pub(crate) fn next(&mut self, received: &mut Bytes) -> Result<DecodedPart, ResponseFault> {
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

    /// Returns whether the body has ended as its framing announced.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunks) => chunks.place == ChunkPlace::End,
            Self::UntilClose => false,
            Self::Closed => true,
        }
    }

    /// Returns the meter of a body of which nothing was decoded yet.
    pub(crate) fn meter(&self) -> BodyMeter {
        BodyMeter::http1(match self {
            Self::Length(left) => BodyLength::Length(*left),
            Self::Chunked(_) => BodyLength::Chunked,
            Self::UntilClose | Self::Closed => BodyLength::Unstated,
        })
    }

    /// Returns the mark by which the body has ended, if it has.
    pub(crate) fn end_mark(&self) -> Option<EndMark> {
        let mark = match self {
            Self::Length(_) => EndMark::Length,
            Self::Chunked(_) => EndMark::LastChunk,
            Self::UntilClose | Self::Closed => EndMark::Close,
        };
        self.has_ended().then_some(mark)
    }

    /// Returns the number of octets still to come, if the framing says it.
    pub(crate) fn remaining(&self) -> Option<u64> {
        match self {
            Self::Length(left) => Some(*left),
            Self::Closed => Some(0),
            Self::Chunked(_) | Self::UntilClose => None,
        }
    }
}

impl ChunkDecoder {
    fn new(limits: HeadLimits) -> Self {
        let chunk_bytes = 0;
        let extension_bytes = 0;
        let trailer_count = 0;
        Self { place: ChunkPlace::Start, chunk_bytes, extension_bytes, trailers: Vec::new(), trailer_count, limits }
    }

    fn next(&mut self, received: &mut Bytes) -> Result<DecodedPart, ResponseFault> {
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

    /// Returns the place after an octet of the framing.
    fn after(&mut self, octet: u8) -> Result<ChunkPlace, ResponseFault> {
        match (self.place, octet) {
            (ChunkPlace::Start | ChunkPlace::Size, digit) if digit.is_ascii_hexdigit() => self.take_digit(digit),
            (ChunkPlace::Size | ChunkPlace::Space, b' ' | b'\t') => Ok(ChunkPlace::Space),
            (ChunkPlace::Size | ChunkPlace::Space, b';') => Ok(ChunkPlace::Extension),
            (ChunkPlace::Size | ChunkPlace::Space | ChunkPlace::Extension, b'\r') => Ok(ChunkPlace::SizeLf),
            (ChunkPlace::Extension, b'\n') => {
                Err(ResponseFault::Malformed("a line of its chunked body does not end in CR LF"))
            }
            (ChunkPlace::Extension, _) => {
                self.extension_bytes += 1;
                if self.extension_bytes < EXTENSION_BYTES_MAX {
                    Ok(ChunkPlace::Extension)
                } else {
                    Err(ResponseFault::TooLarge)
                }
            }
            (ChunkPlace::SizeLf, b'\n') if self.chunk_bytes == 0 => Ok(ChunkPlace::Line),
            (ChunkPlace::SizeLf, b'\n') => Ok(ChunkPlace::Data),
            (ChunkPlace::DataCr, b'\r') => Ok(ChunkPlace::DataLf),
            (ChunkPlace::DataLf, b'\n') => Ok(ChunkPlace::Start),
            (ChunkPlace::Line, b'\r') => Ok(ChunkPlace::EndLf),
            (ChunkPlace::Line | ChunkPlace::TrailerField, _) => self.take_trailer(octet),
            (ChunkPlace::TrailerLf, b'\n') => self.take_trailer(octet),
            (ChunkPlace::EndLf, b'\n') => {
                if !self.trailers.is_empty() {
                    self.trailers.extend_from_slice(b"\r\n");
                }
                Ok(ChunkPlace::End)
            }
            _ => Err(ResponseFault::Malformed("its chunked body is malformed")),
        }
    }

    fn take_digit(&mut self, digit: u8) -> Result<ChunkPlace, ResponseFault> {
        let value = char::from(digit).to_digit(16).expect("a hexadecimal digit is one");
        let size = self.chunk_bytes.checked_mul(16).and_then(|size| size.checked_add(u64::from(value)));
        self.chunk_bytes = size.ok_or(ResponseFault::Malformed("a chunk is too large"))?;
        Ok(ChunkPlace::Size)
    }

    fn take_trailer(&mut self, octet: u8) -> Result<ChunkPlace, ResponseFault> {
        self.trailers.push(octet);
        if self.trailers.len() >= self.limits.bytes_max {
            return Err(ResponseFault::TooLarge);
        }
        Ok(match octet {
            b'\r' => ChunkPlace::TrailerLf,
            b'\n' if self.place == ChunkPlace::TrailerLf => {
                self.trailer_count += 1;
                if self.trailer_count > self.limits.field_count_max {
                    return Err(ResponseFault::TooLarge);
                }
                ChunkPlace::Line
            }
            _ => ChunkPlace::TrailerField,
        })
    }
}

/// Most octets of extensions in the chunks of one body.
const EXTENSION_BYTES_MAX: usize = 16 << 10;

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
    fn decode(octets: &[u8], split: usize) -> Result<Option<DecodedBody>, ResponseFault> {
        let mut decoder = BodyDecoder::Chunked(Box::new(ChunkDecoder::new(LIMITS)));
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
}
