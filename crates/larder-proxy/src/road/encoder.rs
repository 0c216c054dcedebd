//! Applies a content coding to a body that arrives in pieces.
//!
//! Owns: the encoders, and the limit on their number. The coding is chosen in `larder_http::coding`. Invariant: at the
//! end and after each flush, the output decodes to the whole input so far. Memory: about 400 KiB (gzip) or 1 MiB (br,
//! zstd) each, and at most [`ENCODER_COUNT_MAX`] of them. Further responses are sent unencoded.

use std::{
    io::{self, Write as _},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;
use larder_http::coding::ContentCoding;

/// Compresses one body with a content coding.
pub(crate) struct Encoder {
    kind: EncoderKind,
    _place: EncoderSlot,
}

enum EncoderKind {
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Gzip(Box<flate2::write::GzEncoder<Vec<u8>>>),
}

/// Counts one encoder until it is dropped.
struct EncoderSlot;

impl Encoder {
    /// Creates an encoder for a body, whose length is `len` if that is known. `None` if too many encoders exist.
    pub(crate) fn new(coding: ContentCoding, len: Option<u64>) -> Option<Self> {
        let place = EncoderSlot::take()?;
        let kind = match coding {
            ContentCoding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL).ok()?;
                // Clients must accept windows of 8 MiB (RFC 9659 2). This smaller window limits the proxy's memory.
                encoder.window_log(WINDOW_LOG).ok()?;
                // With the length known, zstd uses smaller tables, which are built faster. If it proves wrong, encoding
                // fails at the end.
                encoder.set_pledged_src_size(len).ok()?;
                EncoderKind::Zstd(encoder)
            }
            ContentCoding::Brotli => EncoderKind::Brotli(Box::new(brotli::CompressorWriter::new(
                Vec::new(),
                BUFFER_BYTES,
                BROTLI_QUALITY,
                WINDOW_LOG,
            ))),
            ContentCoding::Gzip => EncoderKind::Gzip(Box::new(flate2::write::GzEncoder::new(
                Vec::new(),
                flate2::Compression::new(GZIP_LEVEL),
            ))),
        };
        Some(Self { kind, _place: place })
    }

    /// Compresses a whole body.
    pub(crate) fn encode(mut self, body: &[u8]) -> io::Result<Bytes> {
        let start = self.push(body)?;
        Ok([start, self.finish()?].concat().into())
    }

    /// Compresses a piece, and returns the output that is available.
    pub(crate) fn push(&mut self, piece: &[u8]) -> io::Result<Bytes> {
        match &mut self.kind {
            EncoderKind::Zstd(encoder) => encoder.write_all(piece)?,
            EncoderKind::Brotli(encoder) => encoder.write_all(piece)?,
            EncoderKind::Gzip(encoder) => encoder.write_all(piece)?,
        }
        Ok(self.take())
    }

    /// Returns all pending output, so that the receiver can decode the body up to here.
    pub(crate) fn flush(&mut self) -> io::Result<Bytes> {
        match &mut self.kind {
            EncoderKind::Zstd(encoder) => encoder.flush()?,
            EncoderKind::Brotli(encoder) => encoder.flush()?,
            EncoderKind::Gzip(encoder) => encoder.flush()?,
        }
        Ok(self.take())
    }

    /// Ends the body and returns the remaining output.
    pub(crate) fn finish(self) -> io::Result<Bytes> {
        let rest = match self.kind {
            EncoderKind::Zstd(encoder) => encoder.finish()?,
            EncoderKind::Brotli(encoder) => encoder.into_inner(),
            EncoderKind::Gzip(encoder) => encoder.finish()?,
        };
        Ok(rest.into())
    }

    fn take(&mut self) -> Bytes {
        let out = match &mut self.kind {
            EncoderKind::Zstd(encoder) => encoder.get_mut(),
            EncoderKind::Brotli(encoder) => encoder.get_mut(),
            EncoderKind::Gzip(encoder) => encoder.get_mut(),
        };
        std::mem::take(out).into()
    }
}

impl EncoderSlot {
    fn take() -> Option<Self> {
        let taken = COUNT.fetch_update(Relaxed, Relaxed, |count| (count < ENCODER_COUNT_MAX).then_some(count + 1));
        taken.ok().map(|_| Self)
    }
}

impl Drop for EncoderSlot {
    fn drop(&mut self) {
        COUNT.fetch_sub(1, Relaxed);
    }
}

/// Number of encoders in this process.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Maximum number of encoders that exist at the same time.
const ENCODER_COUNT_MAX: usize = 64;
/// Base-2 logarithm of the zstd window: 2^18 bytes.
const WINDOW_LOG: u32 = 18;
/// Size of the pieces of output from the brotli encoder, in bytes.
const BUFFER_BYTES: usize = 4096;
// Compressing 64 KiB of text takes 0.1 ms (zstd), 0.3 ms (br) and 0.4 ms (gzip). The next level of each would take more
// time than its shorter result saves.
const ZSTD_LEVEL: i32 = 3;
const BROTLI_QUALITY: u32 = 3;
const GZIP_LEVEL: u32 = 3;

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn decoded(coding: ContentCoding, encoded: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match coding {
            ContentCoding::Zstd => out = zstd::decode_all(encoded).unwrap(),
            ContentCoding::Brotli => drop(brotli::Decompressor::new(encoded, 4096).read_to_end(&mut out).unwrap()),
            ContentCoding::Gzip => drop(flate2::read::GzDecoder::new(encoded).read_to_end(&mut out).unwrap()),
        }
        out
    }

    #[test]
    fn what_goes_in_in_pieces_comes_out() {
        let text: Vec<u8> = (0..200_000_u32).flat_map(|number| (number / 7).to_string().into_bytes()).collect();
        for coding in ContentCoding::ALL {
            for piece_len in [1000, 65_536, text.len()] {
                let mut encoder = Encoder::new(coding, None).unwrap();
                let mut out = Vec::new();
                for (number, piece) in text.chunks(piece_len).enumerate() {
                    out.extend(encoder.push(piece).unwrap());
                    if number % 5 == 4 {
                        out.extend(encoder.flush().unwrap());
                    }
                }
                out.extend(encoder.finish().unwrap());
                assert!(out.len() < text.len() / 2, "{coding:?} {piece_len}: {}", out.len());
                assert!(decoded(coding, &out) == text, "{coding:?} {piece_len}");
            }
            assert!(decoded(coding, &Encoder::new(coding, Some(0)).unwrap().finish().unwrap()).is_empty());
        }
    }
}
