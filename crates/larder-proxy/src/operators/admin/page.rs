//! Creates pages of text and JSON.
//!
//! Invariant: no field of a response lets a page of another site read it, because figures contain URLs, which are
//! private. `guard` checks the requests.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use crate::road::client::response_body::ResponseBody;

pub(crate) fn page(status: StatusCode, text: Bytes) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Returns a page with `figures` as JSON. Its fields forbid storing it.
pub(super) fn json(figures: &impl Serialize) -> Response<ResponseBody> {
    let Ok(text) = serde_json::to_vec(figures) else {
        return page(StatusCode::INTERNAL_SERVER_ERROR, "the figures cannot be encoded\n".into());
    };
    let mut response = page(StatusCode::OK, text.into());
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
