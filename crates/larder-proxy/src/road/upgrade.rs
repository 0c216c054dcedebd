//! Forwards requests that ask to switch to another protocol, such as WebSocket (RFC 9110 7.8).
//!
//! Owns: the differences between such an exchange and an ordinary one. `tunnel` copies the bytes that follow.
//! Invariant: the client learns of the switch only after the origin has switched. Over HTTP/2, clients and origins use
//! an extended CONNECT (RFC 8441), whose success is a 200; `origins::other_protocol` sends it to origins. Cost: one
//! connection to the origin per upgrade, or one stream of an HTTP/2 connection.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode, Version,
    header::{CONNECTION, CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE},
};
use http_body::Body;
use larder_cache::http::{answer::pass::with_origin_status, fetcher::RequestEdits};
use larder_http::{CacheStatus, cache_status::Forward, fields::asks_to_switch};
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::{
    figures::outcome::Outcome,
    ground::{errors::Failure, watch::WatchedConnection},
    origins::{
        self, SwitchedStream,
        ask::{SwitchedOrigin, UpgradeAnswer},
    },
    road::{
        admitted::AdmittedRequest,
        client::{opaque::PendingOpaque, response_body::ResponseBody},
        exchange::ClientExchange,
        pass::PassedResponse,
        served::{self, ServedResponse},
        steps::Onward,
        tunnel::TunnelTarget,
    },
    targets::asked::RequestHead,
};

/// The origin's reply to an upgrade request.
enum UpgradeReply {
    /// The origin switched protocols.
    Switched(Box<SwitchedConnection>),
    /// The origin sent an ordinary response.
    Declined(ServedResponse),
}

/// Both sides of an upgrade: the client, and an origin that has switched protocols.
struct SwitchedConnection {
    response: Response<ResponseBody>,
    client_side: PendingOpaque,
    origin_side: SwitchedStream,
    /// The deadline of the connection to the origin.
    watched: Arc<WatchedConnection>,
}

impl ClientExchange {
    /// Returns whether a request asks to switch to a protocol whose upgrades Larder forwards.
    pub(super) fn asks_to_switch(request: &Request<impl Body>) -> bool {
        // Over HTTP/2, only an extended CONNECT has an Upgrade field, which `door::http2` adds.
        request.version() >= Version::HTTP_11 && asks_to_switch(request.headers()) && request.body().is_end_stream()
    }

    /// Forwards an upgrade request. If the origin switches protocols, starts the task that copies the bytes.
    ///
    /// # Errors
    /// The request is refused, the origin is unreachable, or its response is malformed.
    pub(super) async fn switch(&mut self) -> Result<Onward, Failure> {
        let mut request = self.take_request();
        let asked = self.admit_head(&mut request).await?;
        asked.check_line()?;
        let admitted = AdmittedRequest { worker: Arc::clone(&self.worker), asked };
        let switched = match admitted.ask_to_switch(PendingOpaque::of(&mut request, &self.client.switch)).await? {
            UpgradeReply::Switched(switched) => switched,
            UpgradeReply::Declined(served) => return Ok(Onward::Served(served)),
        };
        self.client.count(Outcome::Tunnel);
        let SwitchedConnection { response, client_side, origin_side, watched } = *switched;
        let origin = Some(admitted.asked.origin.host.clone());
        let served = ServedResponse { response: Box::new(response), outcome: Outcome::Tunnel, origin, why: None };
        let pacer = self.account.take_pacer();
        let patience = self.worker.policy.limits.stall;
        self.carry(client_side, TunnelTarget { stream: origin_side, watched, pacer, patience }, &served);
        Ok(Onward::Switched(served.response))
    }
}

/// Returns whether a request asks to switch to WebSocket.
fn asks_websocket(asked: &RequestHead) -> bool {
    let mut offered = asked.fields.get_all(UPGRADE).iter();
    offered.any(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Returns whether a request asks for a WebSocket version other than 13, the only one (RFC 6455 4.2.2, 4.4).
fn asks_unknown_version(asked: &RequestHead) -> bool {
    let versions = asked.fields.get_all(SEC_WEBSOCKET_VERSION);
    asks_websocket(asked) && versions.iter().any(|version| version.as_bytes().trim_ascii() != b"13")
}

/// The Sec-WebSocket-Key by which an origin proves that it supports WebSocket (RFC 6455 4.1). HTTP/2 clients send none.
struct WebSocketKey(String);

impl WebSocketKey {
    fn new() -> Self {
        let mut octets = [0; 16];
        SystemRandom::new().fill(&mut octets).expect("the system has random octets");
        Self(STANDARD.encode(octets))
    }

    /// Returns whether an origin's response proves that it received the key (RFC 6455 4.2.2).
    fn is_accepted(&self, fields: &HeaderMap) -> bool {
        let accepted = origins::accepted_key(&self.0);
        fields.get(SEC_WEBSOCKET_ACCEPT).is_some_and(|value| value.as_bytes() == accepted.as_bytes())
    }
}

impl AdmittedRequest {
    /// Sends the upgrade request to the origin.
    ///
    /// # Errors
    /// The origin is unreachable, its response is malformed, or the request is for an unknown version of WebSocket.
    async fn ask_to_switch(&self, client_side: PendingOpaque) -> Result<UpgradeReply, Failure> {
        let Self { worker, asked } = self;
        if asks_unknown_version(asked) {
            return Err(Failure::WebSocketVersion);
        }
        let mut request = asked.outgoing(&worker.shared.marks, &RequestEdits::default());
        let fields = request.headers_mut();
        fields.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        if let Some(protocol) = asked.fields.get(UPGRADE) {
            fields.insert(UPGRADE, protocol.clone());
        }
        let is_http2 = asked.version == Version::HTTP_2;
        let key = (is_http2 && asks_websocket(asked)).then(WebSocketKey::new);
        if let Some(key) = &key {
            fields.insert(SEC_WEBSOCKET_KEY, HeaderValue::from_str(&key.0).expect("base64 is a field value"));
        }
        let broken = |why: &str| Failure::Broken { host: asked.origin.to_string(), why: why.to_owned() };
        let switched = match worker.origins.ask_upgrade(&asked.origin, &asked.asking, request).await? {
            UpgradeAnswer::Switched(switched) => switched,
            // A 2xx to an extended CONNECT means that the origin has switched, so one with a body is malformed.
            UpgradeAnswer::Declined(head, _) if is_http2 && head.status.is_success() => {
                return Err(broken("it does not switch protocols"));
            }
            UpgradeAnswer::Declined(head, body) => {
                let status = with_origin_status(CacheStatus::forwarded(Forward::Bypass), head.status);
                let passed = PassedResponse { status: head.status, fields: head.headers, body };
                return Ok(UpgradeReply::Declined(self.respond(passed, status)));
            }
        };
        let SwitchedOrigin { fields, stream: origin_side, watched } = switched;
        let protocol = fields.get(UPGRADE).cloned().ok_or_else(|| broken("it switches to an unknown protocol"))?;
        if key.is_some_and(|key| !key.is_accepted(&fields)) {
            return Err(broken("it does not accept the key of WebSocket"));
        }
        let mut fields = worker.shared.marks.response.forwarded_fields(fields, CacheStatus::forwarded(Forward::Bypass));
        fields.remove(CONTENT_LENGTH);
        let status = if is_http2 {
            fields.remove(SEC_WEBSOCKET_ACCEPT);
            StatusCode::OK
        } else {
            fields.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            fields.insert(UPGRADE, protocol);
            StatusCode::SWITCHING_PROTOCOLS
        };
        let response = served::respond(status, fields, ResponseBody::empty());
        Ok(UpgradeReply::Switched(Box::new(SwitchedConnection { response, client_side, origin_side, watched })))
    }
}
