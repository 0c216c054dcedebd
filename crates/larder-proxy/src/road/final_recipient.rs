//! Answers TRACE and OPTIONS requests that may not be forwarded any further (RFC 9110 7.6.2, 9.3.7, 9.3.8).

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};

use crate::{
    figures::outcome::Outcome,
    road::{
        client::response_body::ResponseBody,
        exchange::ClientExchange,
        served::{self, ServedResponse},
    },
    targets::{asked::RequestHead, routes::ResourceRoute},
};

/// Answers a request that must not be forwarded further: TRACE with the received request, OPTIONS with the proxy's
/// methods.
pub(crate) fn answer(asked: &RequestHead) -> ServedResponse {
    if asked.method == Method::TRACE {
        respond((header::CONTENT_TYPE, "message/http"), received(asked))
    } else {
        own_methods()
    }
}

impl ClientExchange {
    /// Returns whether this proxy answers an `OPTIONS *` itself, because no single origin serves the whole host.
    ///
    /// That is so if the host has sites by path only, or mirrors, or if Larder is only a forward proxy.
    pub(super) fn is_for_server(&self, request: &Request<impl Sized>, route: Option<ResourceRoute>) -> bool {
        if *request.method() != Method::OPTIONS || !self.target.is_about_server || self.client.inside.is_some() {
            return false;
        }
        let shared = &self.worker.shared;
        let is_forwarded = shared.config.forward && !self.client.is_server_for(request.version(), request.uri());
        let is_for_site = matches!(route, Some(ResourceRoute::Site(_)));
        let has_server = is_forwarded || is_for_site || shared.config.default_origin.is_some();
        !has_server && !self.is_denied()
    }
}

/// Responds with the methods of this proxy.
pub(super) fn own_methods() -> ServedResponse {
    respond((header::ALLOW, METHODS), Bytes::new())
}

fn respond((name, value): (header::HeaderName, &'static str), body: Bytes) -> ServedResponse {
    let mut fields = HeaderMap::new();
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert(name, HeaderValue::from_static(value));
    let response = served::respond(StatusCode::OK, fields, ResponseBody::full(body));
    ServedResponse { response: Box::new(response), outcome: Outcome::Failed, origin: None, why: None }
}

/// Returns the received request as text, without secret fields (RFC 9110 9.3.8).
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
/// Methods that the proxy announces. It forwards others too.
const METHODS: &str = "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS, TRACE";
