//! Lists the URIs that the response to an unsafe request invalidates (RFC 9111 4.4, RFC 9110 9.2.1).

use http::{
    HeaderMap, Method, StatusCode, Uri,
    header::{CONTENT_LOCATION, LOCATION},
};

use crate::{
    list::single,
    reference::{is_same_origin, resolve},
};

/// Returns the URIs to invalidate, with all their variants, after an unsafe request that succeeded.
///
/// They are the target, and Location and Content-Location if they have the same origin. A safe method or an error
/// invalidates nothing.
pub fn targets(method: &Method, target: &Uri, status: StatusCode, response_fields: &HeaderMap) -> Vec<Uri> {
    if is_safe(method) || !(status.is_success() || status.is_redirection()) {
        return Vec::new();
    }
    let mut targets = vec![target.clone()];
    for name in [LOCATION, CONTENT_LOCATION] {
        let reference = single(response_fields, &name).and_then(|value| value.to_str().ok());
        if let Some(named) = reference.and_then(|reference| resolve(target, reference))
            && is_same_origin(target, &named)
            && !targets.contains(&named)
        {
            targets.push(named);
        }
    }
    targets
}

/// Returns whether a method is known to be safe. An unknown method is taken to be unsafe.
pub fn is_safe(method: &Method) -> bool {
    matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PROPFIND" | "REPORT" | "SEARCH" | "QUERY")
}
