//! Sends upgrades to origins of HTTP/2, such as to WebSocket, as an extended CONNECT (RFC 8441).
//!
//! Owns: the translation of an HTTP/1.1 upgrade into an extended CONNECT, and of its success into a 101. Invariant: an
//! extended CONNECT is sent only if the origin's settings permit it. Cost: one stream; a new connection waits for the
//! settings.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use h2::{RecvStream, ext::Protocol};
use http::{
    HeaderMap, HeaderValue, Method, Request, Response,
    header::{HOST, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE},
};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use crate::{
    ground::{errors::Failure, http2::pipe::Http2Pipe, target::Origin},
    origins::{
        access::OriginRouter,
        ask::SwitchedOrigin,
        attempt,
        http1::switched_stream,
        pool::{self, PooledConnection},
        proxy_header::ClientEnds,
        request_body::RequestBody,
        shared::{SharedStream, to_http2},
        stream::{OriginStream, Transport},
    },
};

/// The reply to an extended CONNECT.
pub(super) enum ExtendedReply {
    /// The stream now carries the other protocol.
    Switched(SwitchedOrigin),
    Declined(Response<RecvStream>, SharedStream),
}

/// Sends an upgrade request as an extended CONNECT. Returns `None` if the origin does not support that.
pub(super) async fn ask(
    origins: &Arc<OriginRouter>,
    origin: &Origin,
    ends: Option<ClientEnds>,
    request: &Request<RequestBody>,
) -> Option<Result<ExtendedReply, Failure>> {
    let connect = extended(origin, request)?;
    let limits = &origins.policy.limits;
    let mut stream = match stream(origins, origin, ends).await? {
        Ok(stream) => stream,
        Err(failure) => return Some(Err(failure)),
    };
    if !stream.takes_other_protocols(limits.origin_connect).await {
        return None;
    }
    let secure = stream.is_secure();
    let (head, _) = to_http2(connect, secure).into_parts();
    let (response, sending) = match stream.open(Request::from_parts(head, ()), limits.origin_response).await {
        Some(Ok(opened)) => opened,
        Some(Err(error)) => return Some(Err(attempt::failure_of(origin, &error, None))),
        None => return Some(Err(Failure::Timeout { host: origin.to_string() })),
    };
    if !response.status().is_success() {
        return Some(Ok(ExtendedReply::Declined(response, stream)));
    }
    let (head, receiving) = response.into_parts();
    let watched = Arc::new(origins.watches.register());
    let transport = Transport::Http2(Box::new(Http2Pipe::new(sending, receiving).with_place(stream)));
    let stream = OriginStream::new(transport, Arc::clone(&watched), limits.stall);
    let fields = as_switched(head.headers, request.headers());
    Some(Ok(ExtendedReply::Switched(SwitchedOrigin { fields, stream: switched_stream(stream, Bytes::new()), watched })))
}

/// Opens a stream to an origin that is known to speak HTTP/2. `None` for others, which get the upgrade over HTTP/1.1.
async fn stream(
    origins: &Arc<OriginRouter>,
    origin: &Origin,
    ends: Option<ClientEnds>,
) -> Option<Result<SharedStream, Failure>> {
    let connection = match origins.pool.take_shared(origin) {
        Some(stream) => return Some(Ok(stream)),
        None if origin.prior_http2 && origins.shared.http2 => pool::obtain(origins, origin, ends).await,
        None => return None,
    };
    match connection {
        Ok((PooledConnection::Shared(stream), _)) => Some(Ok(stream)),
        Ok((PooledConnection::Own(_), _)) => None,
        Err(failure) => Some(Err(failure)),
    }
}

/// Translates an upgrade into an extended CONNECT. Returns `None` if the upgrade offers several protocols.
fn extended(origin: &Origin, request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    let protocol = request.headers().get(UPGRADE)?.to_str().ok()?.trim();
    if protocol.contains(',') {
        return None;
    }
    let mut connect = Request::new(RequestBody::none());
    *connect.method_mut() = Method::CONNECT;
    *connect.uri_mut() = request.uri().clone();
    *connect.headers_mut() = request.headers().clone();
    connect.headers_mut().remove(SEC_WEBSOCKET_KEY);
    if let Some(host) = &origin.host_field {
        connect.headers_mut().insert(HOST, host.clone());
    }
    connect.extensions_mut().insert(Protocol::from(protocol));
    Some(connect)
}

/// Returns the fields of a 101 for the success of an extended CONNECT. `asked` are those of the upgrade request.
fn as_switched(mut fields: HeaderMap, asked: &HeaderMap) -> HeaderMap {
    fields.extend(asked.get(UPGRADE).map(|protocol| (UPGRADE, protocol.clone())));
    let key = asked.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok());
    if let Some(accepted) = key.and_then(|key| HeaderValue::from_str(&accepted_key(key)).ok()) {
        fields.insert(SEC_WEBSOCKET_ACCEPT, accepted);
    }
    fields
}

/// Returns the Sec-WebSocket-Accept by which a server accepts a client's key (RFC 6455 4.2.2).
pub(crate) fn accepted_key(key: &str) -> String {
    let joined = format!("{}258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key.trim());
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, joined.as_bytes()))
}
