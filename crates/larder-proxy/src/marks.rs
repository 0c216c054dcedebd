//! The names with which this proxy marks forwarded messages.

use http::HeaderValue;
use larder_http::fields::via::Pseudonym;

/// The fields that are added to messages.
pub(crate) struct ResponseMarkers {
    /// This proxy's name in Via and CDN-Loop.
    pub(crate) pseudonym: Pseudonym,
    /// Whether a member of Via is added to requests.
    pub(crate) add_via: bool,
    /// This proxy's member of Via in responses, if one is added.
    pub(crate) via: Option<HeaderValue>,
    pub(crate) add_x_forwarded: bool,
    pub(crate) add_forwarded: bool,
    pub(crate) add_cache_status: bool,
    /// This proxy's name in Cache-Status and Proxy-Status, in the syntax of these fields.
    pub(crate) cache_name: String,
}
