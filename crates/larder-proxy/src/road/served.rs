//! A response with the facts about how it was obtained. All routes return it in this form.

use std::sync::Arc;

use http::{HeaderMap, Response, StatusCode};
use larder_cache::http::answer::{Answer, AnswerResponse, PlainResponse};
use larder_http::CacheStatus;
use larder_wire::push_fields;

use crate::{
    figures::outcome::{MissReason, Outcome},
    ground::marks::ResponseMarkers,
    origins::fetcher::OriginFetcher,
    road::{
        admitted::AdmittedRequest,
        client::{encoded::scratch, response_body::ResponseBody},
    },
};

/// A response with the facts about how it was obtained.
pub(crate) struct ServedResponse {
    /// The response. Boxed, because each step moves it until it is sent.
    pub(crate) response: Box<Response<ResponseBody>>,
    pub(crate) outcome: Outcome,
    /// The origin that sent the response or confirmed it. `None` if no origin was contacted.
    pub(crate) origin: Option<Arc<str>>,
    /// Why the response did not come from the cache. `None` if it did, or if the cache was not involved.
    pub(crate) why: Option<MissReason>,
}

impl ServedResponse {
    /// Converts the cache's answer to a request.
    pub(crate) fn of(answer: Answer<OriginFetcher>, by: &AdmittedRequest) -> Self {
        let Answer { response, kind, status, is_from_origin } = answer;
        let origin = is_from_origin.then(|| Arc::clone(&by.asked.origin.host));
        let response = match response {
            AnswerResponse::Plain(plain) => in_lines(&by.worker.shared.marks, plain, status),
            AnswerResponse::Made(response) => response.map(ResponseBody::from),
        };
        Self { response: Box::new(response), outcome: Outcome::from(kind), origin, why: MissReason::of(status) }
    }
}

/// Creates a response without a map of fields. The encoded lines of its head are kept in its [`ResponseBody`].
fn in_lines(marks: &ResponseMarkers, plain: PlainResponse, status: CacheStatus) -> Response<ResponseBody> {
    let mut lines = scratch();
    marks.push_head_lines(plain.head(), &mut lines);
    push_fields(&mut lines, &plain.own);
    marks.push_times(plain.age_secs, status, &mut lines);
    let code = plain.head().status();
    let mut response = Response::new(ResponseBody::full(plain.body).with_lines(lines));
    *response.status_mut() = code;
    response
}

/// Creates a response with this status, fields and body.
pub(crate) fn respond(status: StatusCode, fields: HeaderMap, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = fields;
    response
}
