//! Lists the URIs that the response to an unsafe request invalidates (RFC 9111 4.4, RFC 9110 9.2.1).

use http::{
    HeaderMap, HeaderName, Method, StatusCode, Uri,
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
///
/// ```
/// use http::{HeaderMap, Method, StatusCode, Uri};
/// use larder_http::invalidate;
///
/// let target: Uri = "https://a.example/list".parse()?;
/// let mut fields = HeaderMap::new();
/// fields.insert("location", "/list/7".parse()?);
/// let outdated = invalidate::targets(&Method::POST, &target, StatusCode::CREATED, &fields);
/// assert_eq!(outdated, ["https://a.example/list", "https://a.example/list/7"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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

/// The destination of a MOVE or COPY of WebDAV, whose stored responses are outdated afterwards (RFC 4918 9.8, 9.9).
///
/// ```
/// use http::{HeaderMap, Method, Uri};
/// use larder_http::invalidate::MoveDestination;
///
/// let target: Uri = "https://a.example/old/".parse()?;
/// let mut fields = HeaderMap::new();
/// fields.insert("destination", "https://a.example/new/".parse()?);
/// let method = Method::from_bytes(b"MOVE")?;
/// let destination = MoveDestination::of(&method, &target, &fields).expect("it has the target's origin");
/// assert_eq!(destination.uri, "https://a.example/new/");
/// assert!(destination.leaves_target);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveDestination {
    /// The URI in the request's Destination.
    pub uri: Uri,
    /// Whether everything below the target is gone: true for MOVE, false for COPY.
    pub leaves_target: bool,
}

impl MoveDestination {
    /// Returns the destination of a request, if it is a MOVE or COPY to a URI of the target's origin.
    pub fn of(method: &Method, target: &Uri, request_fields: &HeaderMap) -> Option<Self> {
        let leaves_target = match method.as_str() {
            "MOVE" => true,
            "COPY" => false,
            _ => return None,
        };
        let reference = single(request_fields, &DESTINATION)?.to_str().ok()?;
        let uri = resolve(target, reference).filter(|uri| is_same_origin(target, uri))?;
        Some(Self { uri, leaves_target })
    }

    /// Returns whether a response with this status says that the destination, and what lies below it, was written.
    ///
    /// Only statuses of RFC 4918 count. A program that knows no WebDAV may answer any method with 200, and its clients
    /// could then remove whole folders from the cache.
    pub fn is_written(status: StatusCode) -> bool {
        matches!(status, StatusCode::CREATED | StatusCode::NO_CONTENT | StatusCode::MULTI_STATUS)
    }
}

const DESTINATION: HeaderName = HeaderName::from_static("destination");

/// Returns whether a method is known to be safe. An unknown method is taken to be unsafe.
pub fn is_safe(method: &Method) -> bool {
    matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PROPFIND" | "REPORT" | "SEARCH" | "QUERY")
}
