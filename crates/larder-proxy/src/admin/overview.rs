//! `/overview.json`: what people look at, for the dashboard and `larder top`.
//!
//! Does not: gather it, see `overview`. Invariant: a page of another site gets none of it, for URLs are private: see
//! `guard`, and no field allows it to read.

use std::sync::Arc;

use http::{HeaderValue, Response, StatusCode, header};

use super::page;
use crate::{client::response_body::ResponseBody, overview::Overview, worker::Worker};

/// Answers a request for it.
pub(super) fn answer(worker: &Arc<Worker>) -> Response<ResponseBody> {
    let Ok(text) = serde_json::to_vec(&Overview::of(&worker.shared)) else {
        return page(StatusCode::INTERNAL_SERVER_ERROR, "the overview cannot be encoded\n".into());
    };
    let mut response = page(StatusCode::OK, text.into());
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
