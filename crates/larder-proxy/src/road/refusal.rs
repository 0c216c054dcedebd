//! Builds the response to an exchange that failed.
//!
//! The cause comes from `errors`. Invariant: these responses are never stored, here or downstream.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, header};
use larder_http::proxy_status::ProxyStatus;

use crate::{
    ground::errors::Failure,
    road::{
        client::response_body::{ResponseBody, text_response},
        failure_page,
    },
    targets::siblings::PEER_FIELD,
};

/// Returns the response to an exchange that failed. `node` is the name of this proxy in the status fields.
pub(crate) fn response(node: &str, failure: &Failure, form: RefusalForm) -> Response<ResponseBody> {
    let mut response = text_response(failure.status(), Bytes::new());
    let fields = response.headers_mut();
    let next_hop = failure.next_hop();
    let details = failure.details();
    let status = ProxyStatus { next_hop, details, ..ProxyStatus::failed(failure.proxy_error()) };
    fields.insert(HeaderName::from_static("proxy-status"), status.to_value(node));
    match failure {
        Failure::NoPassword => {
            let challenge = HeaderValue::from_static("Basic realm=\"proxy\", charset=\"UTF-8\"");
            fields.insert(header::PROXY_AUTHENTICATE, challenge);
        }
        Failure::PeerDiffers { proof } => {
            fields.insert(&PEER_FIELD, proof.clone());
        }
        Failure::WebSocketVersion => {
            fields.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            fields.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
            fields.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        }
        Failure::Offline { .. } => {
            fields.insert(header::RETRY_AFTER, HeaderValue::from_static("10"));
        }
        Failure::Overloaded(_) => {
            fields.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => {}
    }
    // After such a request, the octets that follow on the connection cannot be trusted (RFC 9112 9.6).
    if matches!(
        failure,
        Failure::BadRequest(_)
            | Failure::BadHead(_)
            | Failure::SlowBody
            | Failure::UnknownExpectation
            | Failure::ClientDenied
    ) {
        fields.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let text = match form {
        RefusalForm::Text => format!("{failure}\n"),
        RefusalForm::Page => failure_page::dress(failure, fields),
    };
    *response.body_mut() = ResponseBody::full(text.into());
    response
}

/// The form in which a failure is reported to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalForm {
    Text,
    /// An HTML page for a browser.
    Page,
}

impl RefusalForm {
    /// Returns the form that suits the client of a request.
    pub(crate) fn for_request<B>(request: &Request<B>) -> Self {
        if failure_page::is_wanted(request.method(), request.headers()) { Self::Page } else { Self::Text }
    }
}
