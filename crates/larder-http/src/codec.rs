//! Encodes and decodes the parts of stored heads: numbers, field names and values.
//!
//! A common field name takes one byte. The table of these names is part of the format, so new names are only added at
//! its end. Decoded values share the input buffer. Invariant: no input makes a reader panic, loop, or allocate more
//! than a constant times its length.

use std::{collections::HashMap, fmt, sync::LazyLock};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};

/// Why bytes are not a stored head. The caller treats the entry as absent: the bytes may come from a damaged disk, or
/// from a later version of the format.
///
/// ```
/// use larder_http::{DecodeError, StoredHead, TargetList};
///
/// let decode = |bytes: &'static [u8]| StoredHead::decode(bytes.into(), &TargetList::default());
/// assert_eq!(decode(b"").unwrap_err(), DecodeError::Truncated);
/// assert_eq!(decode(b"GIF89a").unwrap_err(), DecodeError::Version);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end too early.
    Truncated,
    /// The kind or its version is unknown.
    Version,
    /// A number, name, value or status is not valid.
    Invalid,
    /// A count or length exceeds its bound.
    Bound,
    /// Extra bytes follow the end.
    Trailing,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "stored head is truncated",
            Self::Version => "stored head has an unknown kind or version",
            Self::Invalid => "stored head contains an invalid part",
            Self::Bound => "stored head exceeds a limit",
            Self::Trailing => "stored head has trailing bytes",
        })
    }
}

impl std::error::Error for DecodeError {}

/// Largest number of bytes that [`push_number`] appends.
pub(crate) const NUMBER_LEN_MAX: usize = u64::BITS.div_ceil(7) as usize;

/// Appends a number in groups of seven bits, the lowest group first.
pub(crate) fn push_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number. Numbers near zero take few bytes.
pub(crate) fn push_signed(out: &mut Vec<u8>, value: i64) {
    push_number(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

/// Appends the length of `bytes`, then the bytes.
pub(crate) fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a field name: one byte for a name in [`COMMON_NAMES`], otherwise the whole name.
pub(crate) fn push_name(out: &mut Vec<u8>, name: &HeaderName) {
    match COMMON_NAMES.iter().position(|known| known == name) {
        Some(index) => out.push(index as u8 + 1),
        None => {
            out.push(LITERAL_NAME);
            push_bytes(out, name.as_str().as_bytes());
        }
    }
}

/// Returns the one-byte code of a field name in lower case. `None` if it is not in [`COMMON_NAMES`].
pub(crate) fn code_of_name(name: &[u8]) -> Option<u8> {
    static CODES: LazyLock<HashMap<&[u8], u8>> = LazyLock::new(|| {
        let codes = COMMON_NAMES.iter().zip(1..);
        codes.map(|(name, code)| (name.as_str().as_bytes(), code)).collect()
    });
    CODES.get(name).copied()
}

/// Returns the field name with a one-byte code.
///
/// # Panics
/// When no name has the code.
pub(crate) fn common_name(code: u8) -> &'static str {
    COMMON_NAMES[usize::from(code) - 1].as_str()
}

/// Reads the values that the `push_` functions write.
#[derive(Debug)]
pub(crate) struct CodecReader {
    bytes: Bytes,
    at: usize,
}

impl CodecReader {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        let byte = *self.bytes.get(self.at).ok_or(DecodeError::Truncated)?;
        self.at += 1;
        Ok(byte)
    }

    pub(crate) fn number(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if part.leading_zeros() < shift {
                return Err(DecodeError::Invalid);
            }
            value |= part << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::Invalid)
    }

    pub(crate) fn signed(&mut self) -> Result<i64, DecodeError> {
        let value = self.number()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// Reads a count and refuses one above `count_max`.
    pub(crate) fn count(&mut self, count_max: usize) -> Result<usize, DecodeError> {
        let count = self.number()?;
        usize::try_from(count).ok().filter(|count| *count <= count_max).ok_or(DecodeError::Bound)
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes, DecodeError> {
        let length = self.number()?;
        let rest = self.bytes.len() - self.at;
        let length = usize::try_from(length).ok().filter(|length| *length <= rest).ok_or(DecodeError::Truncated)?;
        let slice = self.bytes.slice(self.at..self.at + length);
        self.at += length;
        Ok(slice)
    }

    pub(crate) fn name(&mut self) -> Result<HeaderName, DecodeError> {
        match self.byte()? {
            LITERAL_NAME => HeaderName::from_bytes(&self.bytes()?).map_err(|_| DecodeError::Invalid),
            code => COMMON_NAMES.get(usize::from(code) - 1).cloned().ok_or(DecodeError::Invalid),
        }
    }

    pub(crate) fn value(&mut self) -> Result<HeaderValue, DecodeError> {
        HeaderValue::from_maybe_shared(self.bytes()?).map_err(|_| DecodeError::Invalid)
    }

    /// Returns how many bytes were read.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(DecodeError::Trailing) }
    }
}

/// The code before a field name that is written in full, because it is not in [`COMMON_NAMES`].
const LITERAL_NAME: u8 = 0;

/// Names with a one-byte code, which is the index in this table plus one.
static COMMON_NAMES: [HeaderName; 64] = [
    header::CACHE_CONTROL,
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::DATE,
    header::ETAG,
    header::LAST_MODIFIED,
    header::EXPIRES,
    header::SERVER,
    header::VARY,
    header::CONTENT_ENCODING,
    header::ACCEPT_RANGES,
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
    header::STRICT_TRANSPORT_SECURITY,
    header::X_CONTENT_TYPE_OPTIONS,
    header::SET_COOKIE,
    header::LOCATION,
    header::VIA,
    header::CONTENT_LANGUAGE,
    header::CONTENT_DISPOSITION,
    header::CONTENT_SECURITY_POLICY,
    header::X_FRAME_OPTIONS,
    header::X_XSS_PROTECTION,
    header::REFERRER_POLICY,
    header::PRAGMA,
    header::ALT_SVC,
    header::LINK,
    header::CONTENT_LOCATION,
    header::CONTENT_RANGE,
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_EXPOSE_HEADERS,
    header::ACCESS_CONTROL_MAX_AGE,
    header::ALLOW,
    header::AGE,
    header::WARNING,
    header::RETRY_AFTER,
    header::REFRESH,
    header::UPGRADE_INSECURE_REQUESTS,
    header::CONTENT_SECURITY_POLICY_REPORT_ONLY,
    header::PUBLIC_KEY_PINS,
    header::X_DNS_PREFETCH_CONTROL,
    header::ACCEPT_ENCODING,
    header::ACCEPT_LANGUAGE,
    header::ACCEPT,
    header::ACCEPT_CHARSET,
    header::USER_AGENT,
    header::ORIGIN,
    header::REFERER,
    header::COOKIE,
    header::AUTHORIZATION,
    HeaderName::from_static("x-cache"),
    HeaderName::from_static("x-cache-hits"),
    HeaderName::from_static("x-served-by"),
    HeaderName::from_static("x-timer"),
    HeaderName::from_static("x-powered-by"),
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("timing-allow-origin"),
    HeaderName::from_static("permissions-policy"),
    HeaderName::from_static("cross-origin-resource-policy"),
    HeaderName::from_static("report-to"),
    HeaderName::from_static("nel"),
    HeaderName::from_static("cf-ray"),
    HeaderName::from_static("cdn-cache-control"),
];
const _: () = assert!(COMMON_NAMES.len() < u8::MAX as usize, "a code is one byte");
