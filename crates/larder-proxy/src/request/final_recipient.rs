//! Answers TRACE and OPTIONS requests that may not be forwarded any further (RFC 9110 7.6.2, 9.3.7, 9.3.8).

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use crate::{
    asked::RequestHead,
    client::response_body::ResponseBody,
    outcome::Outcome,
    request::{hit, served::ServedResponse},
};

/// Answers a request whose final recipient is this proxy: the received request for TRACE, the proxy's own methods for
/// OPTIONS.
pub(crate) fn answer(asked: &RequestHead) -> ServedResponse {
    let mut fields = HeaderMap::new();
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let body = if asked.method == Method::TRACE {
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("message/http"));
        received(asked)
    } else {
        fields.insert(header::ALLOW, HeaderValue::from_static(METHODS));
        Bytes::new()
    };
    let response = hit::respond(StatusCode::OK, fields, ResponseBody::full(body));
    ServedResponse { response, outcome: Outcome::Failed, origin: None, why: None }
}

/// Returns the request as received, without fields that are secret (RFC 9110 9.3.8).
fn received(asked: &RequestHead) -> Bytes {
    let mut text = format!("{} {} HTTP/1.1\r\n", asked.method, asked.path()).into_bytes();
    for (name, value) in asked.fields.iter().filter(|(name, _)| !SECRET.contains(name)) {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"\r\n");
    text.into()
}

static SECRET: [header::HeaderName; 3] = [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION];
/// Methods that the proxy knows. It forwards other methods, too.
const METHODS: &str = "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS, TRACE";
