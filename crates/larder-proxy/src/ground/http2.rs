//! HTTP/2 as the streams of both sides use it, over the `h2` crate.
//!
//! Owns: how bytes leave a stream. Connections are elsewhere: those of clients in `door::http2`, those to origins in
//! `origins::shared`. Invariant: a stream gives h2 only what the peer's window takes, so nothing piles up for a peer
//! that reads nothing.

pub(crate) mod pipe;
pub(crate) mod reply;
pub(crate) mod sending;

use http::{
    HeaderMap, HeaderName,
    header::{CONNECTION, TE, TRANSFER_ENCODING, UPGRADE},
};

/// Removes the fields that concern an HTTP/1.1 connection. h2 refuses messages that have them (RFC 9113 8.2.2).
pub(crate) fn strip_connection_fields(fields: &mut HeaderMap) {
    let is_meant = |name: &HeaderName| {
        matches!(*name, CONNECTION | TE | TRANSFER_ENCODING | UPGRADE)
            || matches!(name.as_str(), "keep-alive" | "proxy-connection")
    };
    while let Some(name) = fields.keys().find(|name| is_meant(name)).cloned() {
        fields.remove(name);
    }
}

/// Maximum bytes of a stream that h2 holds until the socket accepts them.
pub(crate) const SEND_BYTES_MAX: usize = 256 << 10;
