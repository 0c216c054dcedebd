//! Sends the purges that were made on this node to the other nodes of its fleet.
//!
//! Owns: the check of the requesting node, and the wait for a purge. `message` has the formats. Invariants: without the
//! secret, a client learns nothing here and delays nothing. A node that requests the purges after a position has
//! applied and recorded all purges up to it.
//!
//! Cost: one open connection per node.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};

use super::{
    link::FleetLink,
    message::{self, LogQuery},
    secret,
};
use crate::{
    ground::{
        cache::purges::Purges,
        watch::{OrderWatch, WatchOrder},
    },
    road::client::{
        peer::Client,
        response_body::{ResponseBody, text_response},
    },
};

/// The scheme of the Authorization field that one node sends to another.
const SCHEME: &str = "Larder-Fleet";
/// The response field with the code that proves that the sender knows the fleet's secret.
pub(super) const CODE_FIELD: &str = "larder-code";

/// The credentials of a node's request to another node.
pub(super) struct FleetCredentials<'a> {
    from: &'a str,
    to: &'a str,
    pub(super) nonce: &'a str,
}

impl<'a> FleetCredentials<'a> {
    pub(super) fn new(from: &'a str, to: &'a str, nonce: &'a str) -> Self {
        Self { from, to, nonce }
    }

    /// Returns the value of the Authorization field for a request to `target`.
    pub(super) fn value(&self, secret: &secret::FleetSecret, target: &str) -> String {
        let Self { from, to, nonce } = self;
        format!("{SCHEME} {from} {to} {nonce} {}", secret.sign(&self.request_parts(target)))
    }

    fn request_parts<'b>(&self, target: &'b str) -> [&'b str; 5]
    where
        'a: 'b,
    {
        ["request", self.from, self.to, self.nonce, target]
    }

    /// Parses the credentials of a request. `None` if they do not prove that the sender knows the secret.
    fn verify(fields: &'a HeaderMap, secret: &secret::FleetSecret, target: &str) -> Option<Self> {
        let mut words = fields.get(header::AUTHORIZATION)?.to_str().ok()?.split(' ');
        let scheme = words.next()?;
        let from = words.next()?;
        let to = words.next()?;
        let nonce = words.next()?;
        let code = words.next()?;
        let found = Self { from, to, nonce };
        let is_right = scheme.eq_ignore_ascii_case(SCHEME)
            && words.next().is_none()
            && secret.verify(&found.request_parts(target), code);
        is_right.then_some(found)
    }
}

/// Returns the strings that a response's HMAC covers: a label, the nonce of the request, and the body.
pub(super) fn response_parts<'a>(nonce: &'a str, body: &'a str) -> [&'a str; 3] {
    ["response", nonce, body]
}

/// Returns whether a request is for this node's log of purges.
pub(crate) fn is_log_request<B>(client: &Client, request: &Request<B>) -> bool {
    request.uri().path() == message::PATH
        && request.method() == Method::GET
        && client.is_server_for(request.version(), request.uri())
        && client.inside.is_none()
        && client.session.is_none()
}

/// Answers another node's request for the purges after a position. If there are none, waits for a new one.
pub(crate) async fn answer(
    client: &Client,
    link: &FleetLink,
    purges: &Arc<Purges>,
    request: &http::request::Parts,
) -> Response<ResponseBody> {
    if link.tls.is_some() && !client.is_node {
        return refusal(StatusCode::FORBIDDEN, "nodes of this fleet connect with certificates\n".to_owned());
    }
    let target = request.uri.path_and_query().map_or("", |target| target.as_str());
    let Some(from) = FleetCredentials::verify(&request.headers, &link.secret, target) else {
        return refusal(StatusCode::FORBIDDEN, "this is for nodes of the fleet, which know its secret\n".to_owned());
    };
    if from.to != &*link.own_name {
        return refusal(StatusCode::FORBIDDEN, format!("this node is {}, not {}\n", link.own_name, from.to));
    }
    let Some(query) = LogQuery::parse(&request.uri) else {
        return refusal(StatusCode::BAD_REQUEST, "the position in the log of purges is malformed\n".to_owned());
    };
    if query.log == purges.log_id() {
        link.peers.note_applied(from.from, query.after);
    }
    let mut end = purges.log_end();
    let mut slice = purges.slice(query.log, query.after);
    if !slice.is_reset && slice.purges.is_empty() && query.wait > Duration::ZERO {
        let waiting = tokio::time::timeout(query.wait, end.wait_for(|end| *end > query.after));
        // The wait ends early when this proxy stops, so that the connection can close.
        let _ = OrderWatch::new(waiting, &client.watched, &[WatchOrder::Leave, WatchOrder::Drain]).await;
        slice = purges.slice(query.log, query.after);
    }
    let text = message::encode(&slice);
    let code = link.secret.sign(&response_parts(from.nonce, &text));
    let mut response = text_response(StatusCode::OK, text.into());
    let code = HeaderValue::try_from(code).expect("a code is hexadecimal digits");
    response.headers_mut().insert(CODE_FIELD, code);
    response
}

fn refusal(status: StatusCode, text: String) -> Response<ResponseBody> {
    tracing::debug!(%status, text = text.trim_end(), "a request for the log of purges was refused");
    text_response(status, text.into())
}
