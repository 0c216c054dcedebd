//! Interim responses on their way through a proxy (RFC 9110 15.2, RFC 8297).
//!
//! They are passed on at once and never stored; the final response is what counts. 101 is none of them: it
//! ends the exchange of HTTP messages, and is the tunnel's affair.

use http::{HeaderMap, StatusCode, Version};

/// Whether an interim response of the origin goes on to the client.
///
/// A client of HTTP/1.0 knows none (15.2). A 100 answers an expectation, and goes only to a client that has
/// stated one and has not been answered yet by the proxy itself (10.1.1).
pub fn goes_on(status: StatusCode, client_version: Version, awaits_continue: bool) -> bool {
    match status {
        _ if client_version < Version::HTTP_11 => false,
        StatusCode::CONTINUE => awaits_continue,
        StatusCode::SWITCHING_PROTOCOLS => false,
        _ => status.is_informational(),
    }
}

/// Whether a request states an expectation that nobody here knows: answer 417 (RFC 9110 10.1.1).
pub fn expects_unknown(request_fields: &HeaderMap) -> bool {
    crate::list::tokens(request_fields, &http::header::EXPECT).any(|token| !token.eq_ignore_ascii_case(b"100-continue"))
}

/// Whether a request states the expectation that a 100 answers: `100-continue`, in any case of letters.
pub fn expects_continue(request_fields: &HeaderMap) -> bool {
    crate::list::tokens(request_fields, &http::header::EXPECT).any(|token| token.eq_ignore_ascii_case(b"100-continue"))
}
