//! Checks a message's framing strictly (RFC 9112 6): a message whose length is ambiguous is refused.
//!
//! Ambiguous framing enables request smuggling, so nothing is repaired.

use std::fmt;

use http::{
    HeaderMap, StatusCode, Version,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};

use crate::decimal::{DIGITS_MAX, parse_u64};

/// The framing of a body, according to the message's fields.
///
/// ```
/// use http::{HeaderMap, Version};
/// use larder_http::fields::{BodyLength, check_request};
///
/// let mut fields = HeaderMap::new();
/// assert_eq!(check_request(&fields, Version::HTTP_11), Ok(BodyLength::Unstated));
/// fields.insert("transfer-encoding", "chunked".parse()?);
/// assert_eq!(check_request(&fields, Version::HTTP_11), Ok(BodyLength::Chunked));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// No length is stated: a request has no body, and a response's body ends with the connection.
    Unstated,
    /// The body has this length in bytes.
    Length(u64),
    /// The body is sent in chunks.
    Chunked,
}

/// Why a message's framing is refused: respond with 400 to a request, and with 502 in place of a response.
///
/// ```
/// use http::{HeaderMap, Version};
/// use larder_http::fields::{FramingError, check_request};
///
/// let mut fields = HeaderMap::new();
/// fields.append("content-length", "5".parse()?);
/// fields.append("content-length", "6".parse()?);
/// assert_eq!(check_request(&fields, Version::HTTP_11), Err(FramingError::Length));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramingError {
    /// The message has both Content-Length and Transfer-Encoding (RFC 9112 6.1).
    LengthAndEncoding,
    /// Content-Length is not one plain number, or there are several that differ (RFC 9112 6.3).
    Length,
    /// Transfer-Encoding is not exactly `chunked` (RFC 9112 6.1).
    Encoding,
    /// An HTTP/1.0 message has Transfer-Encoding, which it must not have (RFC 9112 6.1).
    EncodingInHttp10,
    /// The fields announce a body, but the status permits none.
    Content,
    /// The response is a 101, but the request did not ask for another protocol.
    Switch,
}

/// Checks a request's framing.
///
/// ```
/// use http::{HeaderMap, Version};
/// use larder_http::fields::{BodyLength, FramingError, check_request};
///
/// let mut fields = HeaderMap::new();
/// fields.insert("content-length", "5".parse()?);
/// assert_eq!(check_request(&fields, Version::HTTP_11), Ok(BodyLength::Length(5)));
/// // Two servers could see two different requests in this one.
/// fields.insert("transfer-encoding", "chunked".parse()?);
/// assert_eq!(check_request(&fields, Version::HTTP_11), Err(FramingError::LengthAndEncoding));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The framing is ambiguous: respond with 400 and close the connection.
pub fn check_request(fields: &HeaderMap, version: Version) -> Result<BodyLength, FramingError> {
    check(fields, version).map(|(length, _)| length)
}

/// Checks a response's framing.
///
/// # Errors
/// The framing is ambiguous: respond with 502 and close the connection to the origin.
pub fn check_response(fields: &HeaderMap, version: Version) -> Result<BodyLength, FramingError> {
    check(fields, version).map(|(length, _)| length)
}

/// Checks a response's framing, and reduces several equal Content-Length fields to one plain number (RFC 9110 8.6).
///
/// # Errors
/// The framing is ambiguous, the status permits no body but the fields announce one (RFC 9110 15.3.5), or the response
/// switches to a protocol that the request did not ask for (RFC 9110 15.2.2).
pub fn settle_response(
    status: StatusCode,
    fields: &mut HeaderMap,
    version: Version,
) -> Result<BodyLength, FramingError> {
    let (length, is_plain) = check(fields, version)?;
    match (status, length) {
        (StatusCode::SWITCHING_PROTOCOLS, _) => return Err(FramingError::Switch),
        (StatusCode::NO_CONTENT, BodyLength::Chunked | BodyLength::Length(1..)) => return Err(FramingError::Content),
        _ => {}
    }
    if let BodyLength::Length(length) = length
        && !is_plain
    {
        fields.insert(CONTENT_LENGTH, length.into());
    }
    Ok(length)
}

/// Checks a message's framing. Also returns whether its length is stated once, without leading zeros.
fn check(fields: &HeaderMap, version: Version) -> Result<(BodyLength, bool), FramingError> {
    let mut is_plain = true;
    let mut length: Option<Result<u64, FramingError>> = None;
    // Whether the encodings so far are exactly `chunked`.
    let mut encoding: Option<bool> = None;
    // One pass, because it costs less than a search for each of the two names.
    for (name, value) in fields {
        if name == CONTENT_LENGTH {
            let stated = read_length(value.as_bytes());
            let is_same = length.is_none_or(|before| before == stated);
            is_plain = length.is_none() && (value == "0" || !value.as_bytes().starts_with(b"0"));
            length = Some(if is_same { stated } else { Err(FramingError::Length) });
        } else if name == TRANSFER_ENCODING {
            encoding = Some(encoding.is_none() && value.as_bytes().eq_ignore_ascii_case(b"chunked"));
        }
    }
    match (encoding, length) {
        (Some(_), Some(_)) => Err(FramingError::LengthAndEncoding),
        (Some(_), None) if version < Version::HTTP_11 => Err(FramingError::EncodingInHttp10),
        (Some(true), None) => Ok((BodyLength::Chunked, is_plain)),
        (Some(false), None) => Err(FramingError::Encoding),
        (None, Some(length)) => Ok((BodyLength::Length(length?), is_plain)),
        (None, None) => Ok((BodyLength::Unstated, is_plain)),
    }
}

fn read_length(digits: &[u8]) -> Result<u64, FramingError> {
    let value = parse_u64(digits).filter(|value| digits.len() <= DIGITS_MAX && *value < u64::MAX);
    value.ok_or(FramingError::Length)
}

impl fmt::Display for FramingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LengthAndEncoding => "message has both content-length and transfer-encoding",
            Self::Length => "content-length is not a plain number",
            Self::Encoding => "transfer-encoding is not chunked",
            Self::EncodingInHttp10 => "transfer-encoding in an http/1.0 message",
            Self::Content => "a body with a status that allows none",
            Self::Switch => "a protocol switch that the request did not ask for",
        })
    }
}

impl std::error::Error for FramingError {}
