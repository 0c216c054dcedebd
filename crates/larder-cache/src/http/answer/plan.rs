//! The plan of a request that goes to the origin: what is stored, and why that does not suffice.

use std::sync::Arc;

use larder_http::CacheStatus;

use crate::{
    ChangeMoment,
    http::{entry::ResourceMarker, fetcher::Fetcher, lookup::FoundResponse},
};

/// The plan for a request that goes to the origin: what the cache knows about it, and why it goes there.
pub struct FetchPlan<F: Fetcher> {
    /// The key of the resource.
    pub primary: Arc<[u8]>,
    /// The stored response that the origin is asked to confirm, or that the new response replaces. `None` if there is
    /// none.
    pub before: Option<FoundResponse>,
    /// Whether the stored response may be served if the origin fails.
    pub may_serve_on_error: bool,
    /// The marker that lists the resource's variants, if the lookup found one.
    pub marker: Option<Arc<ResourceMarker>>,
    /// The reason why the request goes to the origin, as Cache-Status reports it.
    pub forward: CacheStatus,
    /// Whether the client reloads: it accepts only a response that is requested after its own request arrived.
    pub is_reload: bool,
    /// The origin's permission for this client: which responses that were fetched with other credentials the client may
    /// read. `None` if the origin was not asked.
    pub permission: Option<Arc<F::Permission>>,
    /// The moment before the lookup, if the lookup found neither a response nor a marker of variants. Otherwise `None`.
    pub absent_since: Option<ChangeMoment>,
}

impl<F: Fetcher> FetchPlan<F> {
    /// Creates the plan for a request whose response is for its client alone.
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
