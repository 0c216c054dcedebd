//! Interim responses on their way through a proxy (RFC 9110 15.2, RFC 8297).
//!
//! They are passed on at once and never stored; the final response is what counts. 101 is none of them: it
//! ends the exchange of HTTP messages, and is the tunnel's affair.

use http::{HeaderMap, StatusCode, Version};

/// Returns whether an interim response of the origin is forwarded to the client.
///
/// HTTP/1.0 clients understand none (RFC 9110 15.2). A 100 answers an expectation, so only a client that stated one and
/// has not received a 100 from the proxy itself gets it (RFC 9110 10.1.1).
pub fn goes_on(status: StatusCode, client_version: Version, awaits_continue: bool) -> bool {
    match status {
        _ if client_version < Version::HTTP_11 => false,
        StatusCode::CONTINUE => awaits_continue,
        StatusCode::SWITCHING_PROTOCOLS => false,
        _ => status.is_informational(),
    }
}

/// Returns whether a request states an expectation that Larder does not know. The response is then a 417 (RFC 9110
/// 10.1.1).
pub fn expects_unknown(request_fields: &HeaderMap) -> bool {
    crate::list::tokens(request_fields, &http::header::EXPECT).any(|token| !token.eq_ignore_ascii_case(b"100-continue"))
}

/// Returns whether a request expects a 100: `100-continue`, in any case.
pub fn expects_continue(request_fields: &HeaderMap) -> bool {
    crate::list::tokens(request_fields, &http::header::EXPECT).any(|token| token.eq_ignore_ascii_case(b"100-continue"))
}
