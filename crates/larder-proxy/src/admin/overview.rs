//! Serves `/overview.json`, the figures for the dashboard and `larder top`.
//!
//! They are collected in `overview`. Invariant: a page of another site cannot read them, because URLs are private.
//! `guard` checks the request, and no response field lets another site read the response.

use std::sync::Arc;

use http::{HeaderValue, Response, StatusCode, header};

use super::page;
use crate::{client::response_body::ResponseBody, overview::Overview, worker::Worker};

/// Answers a request for the figures.
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
