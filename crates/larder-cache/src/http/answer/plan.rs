//! The plan of a request that goes to the origin: what is stored, and why that does not suffice.

use std::sync::Arc;

use larder_http::CacheStatus;

use crate::{
    ChangeMoment,
    http::{entry::ResourceMarker, fetcher::Fetcher, lookup::FoundResponse},
};

/// What the cache knows about a request that goes to the origin.
pub struct FetchPlan<F: Fetcher> {
    /// The resource's key.
    pub primary: Arc<[u8]>,
    /// The stored response to validate or replace.
    pub before: Option<FoundResponse>,
    /// Whether the stored response may be served in place of an error.
    pub may_serve_on_error: bool,
    /// The marker of the resource's variants.
    pub marker: Option<Arc<ResourceMarker>>,
    /// Why the request goes to the origin.
    pub forward: CacheStatus,
    /// Whether the request demands a response no older than itself.
    pub is_reload: bool,
    /// The origin's permission for this client: which responses, fetched with other credentials, it may read. `None` if
    /// the origin was not asked.
    pub permission: Option<Arc<F::Permission>>,
    /// The moment before the lookup, if the lookup found neither a response nor a marker; otherwise `None`.
    pub absent_since: Option<ChangeMoment>,
}

impl<F: Fetcher> FetchPlan<F> {
    /// Creates the plan for a request whose client must get its own response from the origin.
    pub fn alone(primary: &Arc<[u8]>, forward: CacheStatus) -> Self {
        Self {
            primary: Arc::clone(primary),
            before: None,
            may_serve_on_error: false,
            marker: None,
            forward,
            is_reload: false,
            permission: None,
            absent_since: None,
        }
    }
}
