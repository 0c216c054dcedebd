//! Limits how often a request is forwarded: Max-Forwards (RFC 9110 7.6.2).

use http::{HeaderMap, HeaderValue, Method, header::MAX_FORWARDS};

use crate::{decimal::parse_u64, list::single};

/// Decrements Max-Forwards in a request that is about to be forwarded.
///
/// Returns false if the request must not be forwarded, because this proxy is its final recipient. Only TRACE and
/// OPTIONS are counted. A repeated or malformed field is ignored and kept.
pub fn count_down(method: &Method, fields: &mut HeaderMap) -> bool {
    if method != Method::TRACE && method != Method::OPTIONS {
        return true;
    }
    match single(fields, &MAX_FORWARDS).and_then(|value| parse_u64(value.as_bytes())) {
        None => true,
        Some(0) => false,
        Some(left) => {
            fields.insert(MAX_FORWARDS, HeaderValue::from(left - 1));
            true
        }
    }
}
