//! Detects requests to switch from HTTP to another protocol, which the proxy passes through (RFC 9110 7.8).

use http::{
    HeaderMap,
    header::{CONNECTION, UPGRADE},
};

use crate::list::has_token;

/// Returns whether an HTTP/1.1 request asks to switch protocols, to something other than HTTP/2.
///
/// An HTTP/2 connection to an origin would bypass every check of requests. A client that offers `h2c`, alone or among
/// others, therefore receives its response over HTTP/1.1.
pub fn asks_to_switch(fields: &HeaderMap) -> bool {
    fields.contains_key(UPGRADE) && has_token(fields, &CONNECTION, "upgrade") && !has_token(fields, &UPGRADE, "h2c")
}
