//! The marks that this proxy adds to forwarded messages, so that others know of it.

use http::HeaderValue;
use larder_http::fields::via::Pseudonym;

/// The fields that are added to messages.
pub(crate) struct ResponseMarkers {
    /// Our name in Via and CDN-Loop.
    pub(crate) pseudonym: Pseudonym,
    /// Whether requests get a member of Via.
    pub(crate) add_via: bool,
    /// Our member of Via in responses, if one is added.
    pub(crate) via: Option<HeaderValue>,
    pub(crate) add_x_forwarded: bool,
    pub(crate) add_forwarded: bool,
    pub(crate) add_cache_status: bool,
    /// Our name in Cache-Status and Proxy-Status, as the fields have it.
    pub(crate) cache_name: String,
}
