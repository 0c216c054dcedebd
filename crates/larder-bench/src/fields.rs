//! The fields by which client and origin recognize each other's messages through a proxy.
//!
//! Owns: their names. A request has a number of its own; a response carries the number of the request for which the
//! origin made it. If that is another request's, the response came from a cache.

use http::{HeaderMap, header::HeaderName};
use larder_workload::{Random, mix};

/// In a request: its number.
pub(crate) const REQUEST: HeaderName = HeaderName::from_static("x-bench-request");
/// In a response: the number of the request that the origin made it for.
pub(crate) const ANSWERED: HeaderName = HeaderName::from_static("x-bench-answered");
/// In a response: the object's version.
pub(crate) const VERSION: HeaderName = HeaderName::from_static("x-bench-version");

/// Returns the number in a field.
pub(crate) fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// Returns whether the origin breaks off its response to this request. Client and origin compute this identically.
pub(crate) fn breaks_off(request_number: u64, abort_share: f64) -> bool {
    abort_share > 0.0 && Random::new(mix(request_number ^ 0xA807)).happens(abort_share)
}
