//! How many more times a request may be forwarded: Max-Forwards (RFC 9110 7.6.2).

use http::{HeaderMap, HeaderValue, Method, header::MAX_FORWARDS};

use crate::{decimal::parse_u64, list::single};

/// Counts a request that is about to be forwarded in its Max-Forwards; false: it must not be, and its recipient here is
/// its last. Only TRACE and OPTIONS are counted; a field that is repeated or no number says nothing and stays.
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
