//! Removes the fields that belong to one connection only (RFC 9110 7.6.1).

use http::{
    HeaderMap, HeaderName,
    header::{
        CONNECTION, CONTENT_LENGTH, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, VIA,
    },
};

use crate::list;

/// Removes the fields that Connection names, and those that are always hop-by-hop, in place.
///
/// Host, Content-Length, Via and CDN-Loop stay even if Connection names them: framing, routing and loop detection
/// depend on them. Cost: allocates only if Connection names a field.
pub fn strip_hop_by_hop(fields: &mut HeaderMap) {
    strip_named(fields);
    for name in &HOP_BY_HOP {
        fields.remove(name);
    }
}

/// Removes the fields that Connection names, except those that are always hop-by-hop.
///
/// Later decisions about the request then see the same fields as the origin.
pub fn strip_named(fields: &mut HeaderMap) {
    if !fields.contains_key(CONNECTION) {
        return;
    }
    let named = list::tokens(fields, &CONNECTION).filter_map(|token| HeaderName::from_bytes(token).ok());
    let is_meant = |name: &HeaderName| !KEPT.contains(name) && !HOP_BY_HOP.contains(name) && fields.contains_key(name);
    let named: Vec<HeaderName> = named.filter(is_meant).collect();
    for name in named {
        fields.remove(name);
    }
}

static HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    HeaderName::from_static("proxy-authentication-info"),
    PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

static KEPT: [HeaderName; 4] = [HOST, CONTENT_LENGTH, VIA, HeaderName::from_static("cdn-loop")];
