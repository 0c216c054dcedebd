//! A response and how it came about, in the form in which all routes return it.

use http::Response;

use crate::{
    client::response_body::ResponseBody,
    errors::Failure,
    marks::ResponseMarkers,
    outcome::{MissReason, Outcome},
    request::refusal::{self, RefusalForm},
};

/// A response and how it came about.
pub(crate) struct ServedResponse {
    pub(crate) response: Response<ResponseBody>,
    pub(crate) outcome: Outcome,
    /// The origin contacted for it, if any.
    pub(crate) origin: Option<Box<str>>,
    /// The reason why it was not answered from the cache, if the cache could have answered it.
    pub(crate) why: Option<MissReason>,
}

impl ServedResponse {
    /// Creates the response to a request that failed.
    pub(crate) fn failure(marks: &ResponseMarkers, failure: &Failure, form: RefusalForm) -> Self {
        let outcome = if failure.is_denial() { Outcome::Denied } else { Outcome::Failed };
        Self { response: refusal::response(&marks.cache_name, failure, form), outcome, origin: None, why: None }
    }
}
