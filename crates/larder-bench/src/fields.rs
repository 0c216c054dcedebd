//! The fields by which client and origin recognize each other's messages through a proxy.
//!
//! Owns: their names. A request has a number of its own; a response carries the number of the request for which the
//! origin made it. If that is another request's, the response came from a cache.

use http::{HeaderMap, header::HeaderName};
use larder_workload::{Random, mix};

/// Request field that contains the number of the request.
pub(crate) const REQUEST: HeaderName = HeaderName::from_static("x-bench-request");
/// Response field that contains the number of the request for which the origin made the response.
pub(crate) const ANSWERED: HeaderName = HeaderName::from_static("x-bench-answered");
/// Response field that contains the version number of the object.
pub(crate) const VERSION: HeaderName = HeaderName::from_static("x-bench-version");

/// Returns the number that a field contains. `None` if the field is absent or not a number.
pub(crate) fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// Returns whether the origin breaks off its response to this request, so that the share `abort_share` of all responses
/// is incomplete. Client and origin both call this, and get the same result.
pub(crate) fn breaks_off(request_number: u64, abort_share: f64) -> bool {
    abort_share > 0.0 && Random::new(mix(request_number ^ 0xA807)).happens(abort_share)
}
