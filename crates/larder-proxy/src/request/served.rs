//! A response with the facts about how it was obtained. All routes return it in this form.

use std::sync::Arc;

use http::Response;

use crate::{
    client::response_body::ResponseBody,
    outcome::{MissReason, Outcome},
};

/// A response with the facts about how it was obtained.
pub(crate) struct ServedResponse {
    pub(crate) response: Response<ResponseBody>,
    pub(crate) outcome: Outcome,
    /// The origin that was contacted for it, if any.
    pub(crate) origin: Option<Arc<str>>,
    /// Why the response did not come from the cache. `None` if it did, or could not have.
    pub(crate) why: Option<MissReason>,
}
