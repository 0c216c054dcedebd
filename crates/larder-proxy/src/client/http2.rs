//! Sets the limits of HTTP/2 with clients, and handles the differences from HTTP/1.1 in a request's head (RFC 9113 8).
//!
//! h2 does the framing.

use bytes::Bytes;
use h2::{ext::Protocol, server::Builder};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version, header, request};
use http_body::Body as _;
use larder_http::fields::{self, asks_to_switch};

use crate::{config::Limits, http2::SEND_BYTES_MAX, received_body::IncomingBody};

pub(crate) mod connection;
mod stream;
mod turn;

/// Creates an HTTP/2 server with these limits, for at most `stream_count_max` streams at once.
fn builder(limits: &Limits, stream_count_max: u32) -> Builder {
    let mut builder = Builder::new();
    builder
        .enable_connect_protocol()
        .max_concurrent_streams(stream_count_max)
        .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(PENDING_RESET_COUNT_MAX)
        // Each stream beyond the limit is refused, but the connection stays open. `floods` limits the number of such
        // streams.
        .max_local_error_reset_streams(None)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buffer_size(SEND_BYTES_MAX);
    builder
}

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

/// Rewrites an extended CONNECT into the HTTP/1.1 upgrade that it stands for (RFC 8441 4).
///
/// Returns `false` if Larder does not forward upgrades to its protocol.
fn put_upgrade(head: &mut request::Parts) -> bool {
    let Some(protocol) = head.extensions.remove::<Protocol>() else { return true };
    let Ok(protocol) = HeaderValue::from_str(protocol.as_str()) else { return false };
    head.method = Method::GET;
    head.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    head.headers.insert(header::UPGRADE, protocol);
    asks_to_switch(&head.headers)
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

/// Returns whether a request is malformed in a way that h2 does not check: white space around a value (RFC 9113 8.2.1).
fn is_malformed(fields: &HeaderMap) -> bool {
    let is_space = |octet: Option<&u8>| octet.is_some_and(|octet| b" \t".contains(octet));
    fields.values().any(|value| is_space(value.as_bytes().first()) || is_space(value.as_bytes().last()))
}

/// Returns whether Host, if present, agrees with the target (RFC 9113 8.3.1).
fn agrees(target: &Uri, fields: &HeaderMap) -> bool {
    let Some(authority) = target.authority() else { return true };
    fields.get_all(header::HOST).iter().all(|host| host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()))
}

/// Maximum streams that a client may open and reset before they are processed. More close the connection.
const PENDING_RESET_COUNT_MAX: usize = 32;
/// Maximum bytes that a client may send on one stream before the proxy has read them.
const STREAM_WINDOW_BYTES: u32 = 512 << 10;
/// Maximum bytes that a client may send on all streams before the proxy has read them. Bounds memory per connection.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;

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
