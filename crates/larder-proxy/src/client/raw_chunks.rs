//! The octets of a body in chunks, read more strictly than the HTTP library reads them (RFC 9112 7.1).
//!
//! The library accepts white space after a chunk's size and any octet in its extensions; others read these
//! otherwise, and then see a body's end elsewhere. Does not: keep the body. Invariant: a body without a fault ends
//! at the same octet by any reading of the RFC. Cost: a step per octet of the sizes and trailers; data is
//! stepped over.

use crate::client::raw_head::Fault;

/// Where in a body in chunks the octets have come to.
#[derive(Debug)]
pub(crate) enum RawChunks {
    /// In the digits of a size.
    Size { size: u64, digit_count: usize },
    /// In a chunk's extensions.
    Extension { size: u64, len: usize },
    /// Behind the CR of a size's line.
    SizeLf { size: u64 },
    /// In data.
    Data { left: u64 },
    /// Behind data: its CR.
    DataCr,
    /// Behind data: its LF.
    DataLf,
    /// In a line after the last chunk, of so many octets so far.
    Trailer { line_len: usize, len: usize },
    /// Behind the CR of such a line.
    TrailerLf { line_len: usize, len: usize },
    /// Behind it all.
    End,
}

impl Default for RawChunks {
    fn default() -> Self {
        Self::Size { size: 0, digit_count: 0 }
    }
}

impl RawChunks {
    /// Steps over what belongs to the body; returns what follows it, if it has ended.
    ///
    /// # Errors
    /// The body can be read in two ways, from these octets on.
    pub(crate) fn skip<'a>(&mut self, mut octets: &'a [u8]) -> Result<Option<&'a [u8]>, (Fault, &'a [u8])> {
        loop {
            if let Self::Data { left } = self {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(octets.len());
                octets = &octets[count..];
                *left -= count as u64;
                if *left == 0 {
                    *self = Self::DataCr;
                }
            }
            if matches!(self, Self::End) {
                return Ok(Some(octets));
            }
            let Some((octet, rest)) = octets.split_first() else { return Ok(None) };
            *self = self.step(*octet).map_err(|fault| (fault, octets))?;
            octets = rest;
        }
    }

    fn step(&self, octet: u8) -> Result<Self, Fault> {
        match (self, octet) {
            (Self::Size { size, digit_count }, _) => after_size(*size, *digit_count, octet),
            (Self::Extension { size, .. }, b'\r') => Ok(Self::SizeLf { size: *size }),
            (Self::Extension { size, len }, b'\t' | b' '..=b'~' | 0x80..) if *len < EXTENSION_BYTES_MAX => {
                Ok(Self::Extension { size: *size, len: len + 1 })
            }
            (Self::SizeLf { size: 0 }, b'\n') => Ok(Self::Trailer { line_len: 0, len: 0 }),
            (Self::SizeLf { size }, b'\n') => Ok(Self::Data { left: *size }),
            (Self::DataCr, b'\r') => Ok(Self::DataLf),
            (Self::DataLf, b'\n') => Ok(Self::default()),
            (Self::Trailer { line_len, len }, b'\r') => Ok(Self::TrailerLf { line_len: *line_len, len: *len }),
            (Self::Trailer { line_len, len }, b'\t' | b' '..=b'~' | 0x80..) if *len < TRAILERS_BYTES_MAX => {
                Ok(Self::Trailer { line_len: line_len + 1, len: len + 1 })
            }
            (Self::TrailerLf { line_len: 0, .. }, b'\n') => Ok(Self::End),
            (Self::TrailerLf { len, .. }, b'\n') => Ok(Self::Trailer { line_len: 0, len: *len }),
            _ => Err("a chunk of its body is malformed"),
        }
    }
}

fn after_size(size: u64, digit_count: usize, octet: u8) -> Result<RawChunks, Fault> {
    if let Some(digit) = char::from(octet).to_digit(16)
        && digit_count < SIZE_DIGITS_MAX
    {
        return Ok(RawChunks::Size { size: size << 4 | u64::from(digit), digit_count: digit_count + 1 });
    }
    match octet {
        b'\r' if digit_count > 0 => Ok(RawChunks::SizeLf { size }),
        b';' if digit_count > 0 => Ok(RawChunks::Extension { size, len: 0 }),
        _ => Err("the size of a chunk of its body is malformed"),
    }
}

/// Digits of the longest size that is read: more would not fit the signed numbers others count in.
const SIZE_DIGITS_MAX: usize = 15;
/// Longest extensions of one chunk; they say nothing that is passed on (RFC 9112 7.1.1).
const EXTENSION_BYTES_MAX: usize = 1 << 10;
/// Longest trailer section.
const TRAILERS_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// What follows a body, in pieces of every length; none if it has not ended.
    fn after(text: &str) -> Result<Option<String>, String> {
        let mut outcomes = (1..=text.len()).map(|piece_len| {
            let mut chunks = RawChunks::default();
            let mut seen = 0;
            for piece in text.as_bytes().chunks(piece_len) {
                seen += piece.len();
                match chunks.skip(piece) {
                    Ok(None) => {}
                    Ok(Some(rest)) => return Ok(Some(text[seen - rest.len()..].to_owned())),
                    Err((_, rest)) => return Err(text[seen - rest.len()..].to_owned()),
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
        assert_eq!(after("a\r\n0\r\n\r\n0\r\n\r\n"), Ok(None));
    }

    #[test]
    fn bodies_that_can_be_read_in_two_ways_are_faulty() {
        for text in [
            "5 \r\nhello",
            " 5\r\nhello",
            "0x5\r\nhello",
            "+5\r\nhello",
            "-5\r\nhello",
            "5\nhello",
            "5;a\nhello",
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
