//! The plan of a request that goes to the origin: what is stored, and why that does not suffice.

use std::sync::Arc;

use larder_http::CacheStatus;

use crate::{
    cache::{entry::ResourceMarker, lookup::FoundResponse},
    request::access::Permission,
};

/// The facts about a request before it goes to the origin.
#[derive(Clone)]
pub(crate) struct FetchPlan {
    /// The resource's key.
    pub(crate) primary: Arc<[u8]>,
    /// The stored response to validate or replace.
    pub(crate) before: Option<FoundResponse>,
    /// Whether the stored response may be served in place of an error.
    pub(crate) may_serve_on_error: bool,
    /// The marker of the resource's variants.
    pub(crate) marker: Option<Arc<ResourceMarker>>,
    /// Why the request goes to the origin.
    pub(crate) forward: CacheStatus,
    /// Whether the request demands a response no older than itself.
    pub(crate) is_reload: bool,
    /// The origin's answer about this client. It determines which responses, fetched with other credentials, the client
    /// may read.
    pub(crate) permission: Option<Arc<Permission>>,
}

impl FetchPlan {
    /// Creates the plan for a request whose client must get its own response from the origin.
    pub(crate) fn alone(primary: &Arc<[u8]>, forward: CacheStatus) -> Self {
        Self {
            primary: Arc::clone(primary),
            before: None,
            may_serve_on_error: false,
            marker: None,
            forward,
            is_reload: false,
            permission: None,
        }
    }
}
