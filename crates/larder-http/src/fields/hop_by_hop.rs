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
/// depend on them.
///
/// ```
/// use http::HeaderMap;
/// use larder_http::fields::strip_hop_by_hop;
///
/// let mut fields = HeaderMap::new();
/// fields.insert("connection", "x-trace, close".parse()?);
/// fields.insert("x-trace", "7".parse()?);
/// fields.insert("accept", "*/*".parse()?);
/// strip_hop_by_hop(&mut fields);
/// assert_eq!(fields.keys().collect::<Vec<_>>(), ["accept"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cost
/// One pass over the names, and one more for each field that is removed. Allocates only if Connection names a field.
pub fn strip_hop_by_hop(fields: &mut HeaderMap) {
    while let Some(name) = fields.keys().find(|name| is_hop_by_hop(name)).cloned() {
        if name == CONNECTION {
            strip_named(fields);
        }
        fields.remove(name);
    }
}

/// Returns whether a field always belongs to one connection.
///
/// Checking every name of a head costs less than looking up the nine hop-by-hop fields, because a lookup hashes the
/// name.
pub fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(*name, CONNECTION | PROXY_AUTHENTICATE | PROXY_AUTHORIZATION | TE | TRANSFER_ENCODING | UPGRADE)
        || matches!(name.as_str(), "keep-alive" | "proxy-authentication-info" | "proxy-connection")
}

/// Removes the fields that Connection names, except those that are always hop-by-hop.
///
/// Called when a request is received, so that all decisions about it see the same fields as the origin.
pub fn strip_named(fields: &mut HeaderMap) {
    if !fields.contains_key(CONNECTION) {
        return;
    }
    let named = list::tokens(fields, &CONNECTION).filter_map(|token| HeaderName::from_bytes(token).ok());
    let is_meant = |name: &HeaderName| !KEPT.contains(name) && !is_hop_by_hop(name) && fields.contains_key(name);
    let named: Vec<HeaderName> = named.filter(is_meant).collect();
    for name in named {
        fields.remove(name);
    }
}

static KEPT: [HeaderName; 4] = [HOST, CONTENT_LENGTH, VIA, HeaderName::from_static("cdn-loop")];
