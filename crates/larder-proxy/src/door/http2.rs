//! Sets the limits of HTTP/2 with clients, and handles the differences from HTTP/1.1 in a request's head (RFC 9113 8).
//!
//! h2 does the framing.

use h2::{ext::Protocol, server::Builder};
use http::{HeaderMap, HeaderValue, Method, header, request};
use larder_http::fields::asks_to_switch;

use crate::ground::{config::Limits, http2::SEND_BYTES_MAX};

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

/// Rewrites an extended CONNECT into the HTTP/1.1 upgrade that it stands for (RFC 8441 4).
///
/// Returns `false` if Larder does not forward upgrades to the requested protocol.
fn put_upgrade(head: &mut request::Parts) -> bool {
    let Some(protocol) = head.extensions.remove::<Protocol>() else { return true };
    let Ok(protocol) = HeaderValue::from_str(protocol.as_str()) else { return false };
    head.method = Method::GET;
    head.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    head.headers.insert(header::UPGRADE, protocol);
    asks_to_switch(&head.headers)
}

/// Returns whether a request is malformed in a way that h2 does not check: white space around a value (RFC 9113 8.2.1).
fn is_malformed(fields: &HeaderMap) -> bool {
    let is_space = |octet: Option<&u8>| octet.is_some_and(|octet| b" \t".contains(octet));
    fields.values().any(|value| is_space(value.as_bytes().first()) || is_space(value.as_bytes().last()))
}

/// Maximum streams that a client may open and reset before they are processed. A client that exceeds this loses its
/// connection.
const PENDING_RESET_COUNT_MAX: usize = 32;
/// Maximum bytes that a client may send on one stream before the proxy has read them.
const STREAM_WINDOW_BYTES: u32 = 512 << 10;
/// Maximum bytes that a client may send on all streams before the proxy has read them. Bounds memory per connection.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
