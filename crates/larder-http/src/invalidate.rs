//! What the answer to an unsafe request makes invalid (RFC 9111 4.4, RFC 9110 9.2.1).

use http::{
    HeaderMap, Method, StatusCode, Uri,
    header::{CONTENT_LOCATION, LOCATION},
};

use crate::{
    list::single,
    reference::{is_same_origin, resolve},
};

/// The URIs whose stored responses, every variant, are to be dropped: none for a safe method or an error;
/// else the target, and Location and Content-Location where they are of the same origin.
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

/// Whether a method is known to be safe; of an unknown one the worst is assumed.
pub fn is_safe(method: &Method) -> bool {
    matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PROPFIND" | "REPORT" | "SEARCH" | "QUERY")
}
