//! Forwards requests that ask to switch to another protocol, such as WebSocket (RFC 9110 7.8).
//!
//! Owns: the differences between such a request or its 101 and an ordinary exchange. `tunnel` copies the bytes that
//! follow. Invariant: the client gets the 101 only after the origin has sent it. HTTP/2 has no Upgrade. Cost: one
//! connection to the origin per upgrade.

use std::sync::Arc;

use http::{
    HeaderValue, Request, Response, StatusCode, Version,
    header::{CONNECTION, CONTENT_LENGTH, SEC_WEBSOCKET_VERSION, UPGRADE},
};
use http_body::Body as _;
use larder_http::{CacheStatus, cache_status::Forward, fields::asks_to_switch};

use crate::{
    asked::{RequestEdits, RequestHead},
    client::{opaque::PendingOpaque, response_body::ResponseBody},
    errors::Failure,
    origin::{
        ask::{SwitchedOrigin, UpgradeAnswer},
        http1::SwitchedStream,
    },
    received_body::IncomingBody,
    request::{
        pass::{self, PassedResponse},
        served::ServedResponse,
    },
    watch::WatchedConnection,
    worker::Worker,
};

/// The origin's reply to an upgrade request.
#[expect(clippy::large_enum_variant, reason = "the larger one is the usual one, and is taken at once")]
pub(crate) enum UpgradeReply {
    /// The origin switched protocols.
    Switched(Box<SwitchedConnection>),
    /// The origin answered over HTTP.
    Declined(ServedResponse),
}

/// Both sides of a connection that has switched protocols.
pub(crate) struct SwitchedConnection {
    pub(crate) response: Response<ResponseBody>,
    pub(crate) client_side: PendingOpaque,
    pub(crate) origin_side: SwitchedStream,
    /// The deadline of the connection to the origin.
    pub(crate) watched: Arc<WatchedConnection>,
}

/// Returns whether a request asks to switch to a protocol that the proxy forwards.
pub(crate) fn is_asked(request: &Request<IncomingBody>) -> bool {
    request.version() == Version::HTTP_11 && asks_to_switch(request.headers()) && request.body().is_end_stream()
}

/// Returns whether a request asks for a version of WebSocket other than 13, the only one (RFC 6455 4.2.2, 4.4).
fn asks_unknown_version(asked: &RequestHead) -> bool {
    let mut offered = asked.fields.get_all(UPGRADE).iter();
    let versions = asked.fields.get_all(SEC_WEBSOCKET_VERSION);
    offered.any(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && versions.iter().any(|version| version.as_bytes().trim_ascii() != b"13")
}

/// Sends the request to the origin.
///
/// # Errors
/// The origin is unreachable, its response is malformed, or the request is for an unknown version of WebSocket.
pub(crate) async fn ask(
    worker: &Arc<Worker>,
    asked: &RequestHead,
    client_side: PendingOpaque,
) -> Result<UpgradeReply, Failure> {
    if asks_unknown_version(asked) {
        return Err(Failure::WebSocketVersion);
    }
    let mut request = asked.outgoing(&worker.shared.marks, &RequestEdits::default());
    let fields = request.headers_mut();
    fields.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(protocol) = asked.fields.get(UPGRADE) {
        fields.insert(UPGRADE, protocol.clone());
    }
    let switched = match worker.origins.ask_upgrade(&asked.origin, request).await? {
        UpgradeAnswer::Switched(switched) => switched,
        UpgradeAnswer::Declined(head, body) => {
            let status = pass::with_origin_status(CacheStatus::forwarded(Forward::Bypass), head.status);
            return Ok(UpgradeReply::Declined(pass::respond(
                worker,
                asked,
                PassedResponse { status: head.status, fields: head.headers, body },
                status,
            )));
        }
    };
    let broken = |why: String| Failure::Broken { host: asked.origin.to_string(), why };
    let SwitchedOrigin { fields, stream: origin_side, watched } = switched;
    let protocol = fields.get(UPGRADE).cloned().ok_or_else(|| broken("it switches to an unknown protocol".into()))?;
    let mut fields = pass::prepared(&worker.shared.marks, fields, CacheStatus::forwarded(Forward::Bypass));
    fields.remove(CONTENT_LENGTH);
    fields.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    fields.insert(UPGRADE, protocol);
    let response = crate::request::hit::respond(StatusCode::SWITCHING_PROTOCOLS, fields, ResponseBody::empty());
    Ok(UpgradeReply::Switched(Box::new(SwitchedConnection { response, client_side, origin_side, watched })))
}
