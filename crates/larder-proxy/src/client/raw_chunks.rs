//! Checks the octets of a chunked body more strictly than the HTTP library does (RFC 9112 7.1).
//!
//! The library accepts white space after a chunk's size, and any octet in its extensions. Other implementations read
//! these differently: some take a malformed extension for the next line, and then see the end of the body elsewhere.
//! The body is not kept.
//!
//! Invariant: a body that passes ends at the same octet in every interpretation of the RFC. Cost: one step per octet of
//! sizes and trailers; data is skipped.

use crate::client::raw_head::HeadFault;

/// The parser's position in a chunked body.
#[derive(Debug)]
pub(crate) enum RawChunks {
    /// In the digits of a size.
    Size { size: u64, digit_count: usize },
    /// In a chunk's extensions, of which `len` octets have been read.
    Extension { size: u64, len: usize, part: ExtensionPart },
    /// After the CR of a size's line.
    SizeLf { size: u64 },
    /// In data.
    Data { left: u64 },
    /// After data, before its CR.
    DataCr,
    /// After data, before its LF.
    DataLf,
    /// In a line of the trailer section, of which `len` octets have been read.
    Trailer { line_len: usize, len: usize },
    /// After the CR of a trailer line.
    TrailerLf { line_len: usize, len: usize },
    /// After the body.
    End,
}

/// The parser's position in a chunk's extensions (RFC 9112 7.1.1): `*( BWS ";" BWS name [ BWS "=" BWS ( token /
/// quoted-string ) ] )`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExtensionPart {
    /// Before a name.
    NameStart,
    /// In a name.
    Name,
    /// In white space after a name.
    NameEnd,
    /// Before a value.
    ValueStart,
    /// In a value that is a token.
    Token,
    /// In a quoted string.
    Quoted,
    /// After a backslash in a quoted string.
    Escaped,
    /// After a quoted string.
    Unquoted,
    /// In white space after a value.
    ValueEnd,
}

impl ExtensionPart {
    /// Returns whether the line may end here.
    fn may_end(self) -> bool {
        matches!(self, Self::Name | Self::Token | Self::Unquoted)
    }

    /// Returns the position after the next octet, or `None` if the octet is not allowed here.
    fn step(self, octet: u8) -> Option<Self> {
        Some(match (self, octet) {
            (Self::NameStart | Self::ValueStart, b' ' | b'\t') => self,
            (Self::Name | Self::NameEnd, b' ' | b'\t') => Self::NameEnd,
            (Self::Token | Self::Unquoted | Self::ValueEnd, b' ' | b'\t') => Self::ValueEnd,
            (Self::NameStart | Self::Name, _) if is_token_octet(octet) => Self::Name,
            (Self::ValueStart | Self::Token, _) if is_token_octet(octet) => Self::Token,
            (Self::Name | Self::NameEnd | Self::Token | Self::Unquoted | Self::ValueEnd, b';') => Self::NameStart,
            (Self::Name | Self::NameEnd, b'=') => Self::ValueStart,
            (Self::ValueStart, b'"') => Self::Quoted,
            (Self::Quoted, b'"') => Self::Unquoted,
            (Self::Quoted, b'\\') => Self::Escaped,
            (Self::Quoted | Self::Escaped, b'\t' | b' '..=b'~' | 0x80..) => Self::Quoted,
            _ => return None,
        })
    }
}

/// Returns whether an octet is allowed in a token (RFC 9110 5.6.2).
fn is_token_octet(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&octet)
}

impl Default for RawChunks {
    fn default() -> Self {
        Self::Size { size: 0, digit_count: 0 }
    }
}

impl RawChunks {
    /// Skips the octets of the body. Returns the octets after the body if it has ended.
    ///
    /// # Errors
    /// The body is ambiguous. The returned octets begin at the fault.
    pub(crate) fn skip<'a>(&mut self, mut octets: &'a [u8]) -> Result<Option<&'a [u8]>, (HeadFault, &'a [u8])> {
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

    fn step(&self, octet: u8) -> Result<Self, HeadFault> {
        match (self, octet) {
            (Self::Size { size, digit_count }, _) => after_size(*size, *digit_count, octet),
            (Self::Extension { size, part, .. }, b'\r') if part.may_end() => Ok(Self::SizeLf { size: *size }),
            (Self::Extension { size, len, part }, _) if *len < EXTENSION_BYTES_MAX => {
                let part = part.step(octet).ok_or("the extension of a chunk of its body is malformed")?;
                Ok(Self::Extension { size: *size, len: len + 1, part })
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

fn after_size(size: u64, digit_count: usize, octet: u8) -> Result<RawChunks, HeadFault> {
    if let Some(digit) = char::from(octet).to_digit(16)
        && digit_count < SIZE_DIGITS_MAX
    {
        return Ok(RawChunks::Size { size: size << 4 | u64::from(digit), digit_count: digit_count + 1 });
    }
    match octet {
        b'\r' if digit_count > 0 => Ok(RawChunks::SizeLf { size }),
        b';' if digit_count > 0 => Ok(RawChunks::Extension { size, len: 0, part: ExtensionPart::NameStart }),
        _ => Err("the size of a chunk of its body is malformed"),
    }
}

/// Most digits of a chunk's size. A longer size would not fit the signed numbers of other implementations.
const SIZE_DIGITS_MAX: usize = 15;
/// Longest extensions of one chunk, in bytes. They carry nothing that is passed on (RFC 9112 7.1.1).
const EXTENSION_BYTES_MAX: usize = 1 << 10;
/// Longest trailer section, in bytes.
const TRAILERS_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the octets after a body, or `None` if it has not ended. The body is fed in pieces of every length.
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
        assert_eq!(after("1; a = b;c=\"\\\"\"\r\n\n\r\n0;x\r\n\r\n"), Ok(Some(String::new())));
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
