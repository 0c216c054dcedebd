//! Decides which interim responses are forwarded (RFC 9110 15.2, RFC 8297).
//!
//! Interim responses are forwarded at once and never stored. A 101 is not handled here: it ends the HTTP exchange and
//! begins a tunnel.

use http::{HeaderMap, StatusCode, Version, header::CONTENT_LENGTH};

use crate::fields::{strip_hop_by_hop, strip_own};

/// Returns whether an interim response of the origin is forwarded to the client.
///
/// HTTP/1.0 clients understand no interim response (RFC 9110 15.2). A 100 answers an expectation, so it is forwarded
/// only to a client that sent `Expect: 100-continue` and has not received a 100 from the proxy itself (RFC 9110
/// 10.1.1).
pub fn goes_on(status: StatusCode, client_version: Version, awaits_continue: bool) -> bool {
    match status {
        _ if client_version < Version::HTTP_11 => false,
        StatusCode::CONTINUE => awaits_continue,
        StatusCode::SWITCHING_PROTOCOLS => false,
        _ => status.is_informational(),
    }
}

/// Returns the fields to send to the client with a forwarded interim response.
pub fn forwarded_fields(fields: &HeaderMap) -> HeaderMap {
    let mut fields = fields.clone();
    strip_hop_by_hop(&mut fields);
    strip_own(&mut fields);
    // A 1xx response has no content and must not state a length (RFC 9110 8.6).
    fields.remove(CONTENT_LENGTH);
    fields
}

/// Returns whether a request states an expectation that Larder does not know. The response is then a 417 (RFC 9110
/// 10.1.1).
pub fn expects_unknown(request_fields: &HeaderMap) -> bool {
    crate::list::tokens(request_fields, &http::header::EXPECT).any(|token| !token.eq_ignore_ascii_case(b"100-continue"))
}

/// Returns whether a request expects a 100. The case of `100-continue` is ignored.
pub fn expects_continue(request_fields: &HeaderMap) -> bool {
    crate::list::has_token(request_fields, &http::header::EXPECT, "100-continue")
}
