//! A response with the facts about how it was obtained. All routes return it in this form.

use std::sync::Arc;

use http::{HeaderMap, Response, StatusCode};
use larder_cache::http::answer::{Answer, AnswerResponse};

use crate::{
    client::response_body::ResponseBody,
    fetcher::OriginFetcher,
    outcome::{MissReason, Outcome},
    request::admitted::AdmittedRequest,
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

impl ServedResponse {
    /// Returns the cache's answer to a request.
    pub(crate) fn of(answer: Answer<OriginFetcher>, by: &AdmittedRequest) -> Self {
        let Answer { response, kind, status, is_from_origin } = answer;
        let origin = is_from_origin.then(|| Arc::clone(&by.asked.origin.host));
        let response = match response {
            AnswerResponse::Plain(plain) => by.worker.shared.marks.in_lines(plain, status),
            AnswerResponse::Made(response) => response.map(ResponseBody::from),
        };
        Self { response, outcome: Outcome::from(kind), origin, why: MissReason::of(status) }
    }
}

/// Creates a response from these parts.
pub(crate) fn respond(status: StatusCode, fields: HeaderMap, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = fields;
    response
}
