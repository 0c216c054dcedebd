//! Handles the differences from HTTP/1.1 in the head of a request that arrived over HTTP/2 (RFC 9113 8).

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Uri, Version, header};
use http_body::Body as _;
use larder_http::fields;

use crate::ground::{config::Limits, received_body::IncomingBody};

/// Joins the Cookie fields of a request into one, as HTTP/1.1 requires. HTTP/2 may split them (RFC 9113 8.2.3).
pub(crate) fn join_cookies(fields: &mut HeaderMap) {
    let mut pieces = fields.get_all(header::COOKIE).iter();
    if pieces.next().is_none() || pieces.next().is_none() {
        return;
    }
    let pieces: Vec<&[u8]> = fields.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    let joined = HeaderValue::from_bytes(&pieces.join(&b"; "[..])).expect("field values with '; ' between are one");
    fields.insert(header::COOKIE, joined);
}

/// Copies a request's head out of the receive buffer of its HTTP/2 connection, so that the buffer can be freed.
pub(crate) fn detach(request: &mut Request<impl Sized>) {
    fields::detach(request.headers_mut());
    if let Ok(target) = Uri::from_maybe_shared(Bytes::from(request.uri().to_string())) {
        *request.uri_mut() = target;
    }
}

/// Adds Transfer-Encoding to a request whose body has no announced length, so that later code sees that it has a body.
pub(crate) fn frame_body(request: &mut Request<IncomingBody>) {
    if !request.body().is_end_stream() && !request.headers().contains_key(header::CONTENT_LENGTH) {
        request.headers_mut().insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// Returns the reason to refuse a request that h2 accepts but that HTTP/1.1 would not permit.
pub(crate) fn check<B>(request: &Request<B>, limits: &Limits) -> Result<(), &'static str> {
    if request.version() != Version::HTTP_2 {
        return Ok(());
    }
    if request.headers().len() > limits.header_count_max {
        return Err("it has too many fields");
    }
    if !agrees(request.uri(), request.headers()) {
        return Err("its Host differs from its authority");
    }
    Ok(())
}

/// Returns whether Host, if present, agrees with the target (RFC 9113 8.3.1).
fn agrees(target: &Uri, fields: &HeaderMap) -> bool {
    let Some(authority) = target.authority() else { return true };
    fields.get_all(header::HOST).iter().all(|host| host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookie_in_pieces_becomes_one() {
        let mut fields = HeaderMap::new();
        for piece in ["a=1", "b=2; c=3", "d=4"] {
            fields.append(header::COOKIE, HeaderValue::from_static(piece));
        }
        join_cookies(&mut fields);
        let lines: Vec<_> = fields.get_all(header::COOKIE).iter().collect();
        assert_eq!(lines, ["a=1; b=2; c=3; d=4"]);
    }

    #[test]
    fn host_beside_another_authority_is_seen() {
        let target: Uri = "https://a.example/x".parse().unwrap();
        let mut fields = HeaderMap::new();
        assert!(agrees(&target, &fields));
        fields.insert(header::HOST, HeaderValue::from_static("A.example"));
        assert!(agrees(&target, &fields));
        fields.append(header::HOST, HeaderValue::from_static("b.example"));
        assert!(!agrees(&target, &fields));
    }
}
