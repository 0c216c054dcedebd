//! The reasons to refuse a message.

use std::fmt;

use http::StatusCode;
use larder_http::fields::FramingError;

/// The reason to refuse a message.
///
/// ```
/// use larder_wire::{HeadLimits, WireFault, parse_response};
///
/// let limits = HeadLimits { bytes_max: 1000, field_count_max: 10 };
/// let fault: WireFault = parse_response(b"HTTP/1.1 OK\r\n\r\n", 0, limits).unwrap_err();
/// assert_eq!(fault.status(), 400);
/// println!("the response was refused: {fault}");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireFault {
    /// The target of a request is longer than the limit on heads, or than a URI can be (RFC 9110 15.5.15).
    TargetTooLong,
    /// The head or the trailers have too many octets or fields (RFC 6585 5).
    TooLarge,
    /// The message is not of HTTP/1.x (RFC 9110 15.6.6).
    OtherVersion,
    /// The message violates the syntax of HTTP/1.1. The text names the violation, for logs.
    Malformed(&'static str),
    /// The head of a response leaves the length of its body ambiguous.
    Framing(FramingError),
    /// The first octets of a connection are not a request. It may be closed without a response (RFC 9113 3.4).
    NoRequest,
}

impl WireFault {
    /// Returns the status for a response that refuses the request, such as 431 if its head is too large.
    pub fn status(self) -> StatusCode {
        match self {
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
            Self::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::OtherVersion => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::Malformed(_) | Self::Framing(_) | Self::NoRequest => StatusCode::BAD_REQUEST,
        }
    }
}

impl fmt::Display for WireFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TargetTooLong => f.write_str("its target is too long"),
            Self::TooLarge => f.write_str("it has a head that is too large"),
            Self::OtherVersion => f.write_str("its version is not HTTP/1"),
            Self::Malformed(why) => f.write_str(why),
            Self::Framing(error) => error.fmt(f),
            Self::NoRequest => f.write_str("the connection does not begin with a request"),
        }
    }
}

impl std::error::Error for WireFault {}

impl From<httparse::Error> for WireFault {
    fn from(error: httparse::Error) -> Self {
        Self::Malformed(match error {
            httparse::Error::TooManyHeaders => return Self::TooLarge,
            httparse::Error::HeaderName => "a field name contains an invalid character",
            httparse::Error::HeaderValue => "a field value contains a control character",
            httparse::Error::NewLine => "a line does not end in CR LF",
            httparse::Error::Status => "its status line is malformed",
            httparse::Error::Token => "it contains an invalid octet",
            httparse::Error::Version => "its version is not HTTP/1",
        })
    }
}
