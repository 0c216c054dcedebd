//! One attempt to send a request on a connection.
//!
//! Owns: the exchange up to the head of the response, over HTTP/1.1 or HTTP/2. Retries are decided elsewhere.
//! Invariant: the origin's deadline runs until its response has begun.

use std::{future::poll_fn, sync::Arc, task::Poll};

use h2::RecvStream;
use http::{Method, Request, Response, StatusCode, header::HOST};
use larder_wire::WireFault;

use crate::{
    ground::{
        errors::Failure,
        fault::FaultReport,
        received_body::{Http2Body, IncomingBody, ReceivedBody},
        target::Origin,
        watch::WatchOrder,
    },
    origins::{
        access::OriginRouter,
        ask::SwitchedOrigin,
        body::{ArrivingBody, OriginBody},
        connect::{self, NewLink},
        expectation::Expectation,
        http1::{ExchangeFault, Http1Body, Http1Exchange},
        other_protocol::{self, ExtendedReply},
        parent,
        pool::{AskingClient, Lease, OutgoingRequest, OwnConnection, PooledConnection, SendFailure},
        request_body::{BodyFate, BodyFault, RequestBody},
    },
};

/// The reply to an upgrade request that was sent.
pub(crate) enum UpgradeSent {
    /// The origin accepted an extended CONNECT, so the stream of its HTTP/2 connection carries the new protocol.
    Switched(SwitchedOrigin),
    /// The origin sent a response. With status 101, its HTTP/1.1 connection carries the new protocol.
    Answered(Response<OriginBody>),
}

/// Sends an upgrade request: over HTTP/2 if the origin supports that, otherwise on a new connection (RFC 9110 7.8).
pub(crate) async fn send_upgrade(
    origins: &Arc<OriginRouter>,
    origin: &Origin,
    client: &AskingClient,
    request: Request<RequestBody>,
) -> Result<UpgradeSent, Failure> {
    let ends = client.ends;
    let sent = async {
        match other_protocol::ask(origins, origin, ends, &request).await {
            Some(Ok(ExtendedReply::Switched(switched))) => return Ok(UpgradeSent::Switched(switched)),
            Some(Ok(ExtendedReply::Declined(response, stream))) => {
                let connection = PooledConnection::Shared(stream);
                let lease = Lease { connection, origin: origin.clone(), origins: Arc::clone(origins), refusal: None };
                let answered = received(response, false).map(|body| OriginBody::new(body, lease, &origins.metrics));
                return Ok(UpgradeSent::Answered(answered));
            }
            Some(Err(failure)) => return Err(failure),
            None => {}
        }
        // A connection that will be upgraded never returns to the pool, so it is opened outside of it.
        let NewLink { stream, watched, .. } = connect::connect(origins, origin, false, ends).await?;
        let own = OwnConnection::new(origins, origins.shared.rooms.of(origin), stream, (watched, None));
        let answered = attempt(origins, origin, PooledConnection::Own(own), Box::new(request), Some(client)).await;
        answered.map(UpgradeSent::Answered).map_err(|failed| failed.failure)
    };
    let sent = sent.await;
    origins.shared.note(origin, sent.as_ref());
    sent
}

/// Sends a request on a connection, and waits for the head of its response.
pub(super) async fn attempt(
    origins: &Arc<OriginRouter>,
    origin: &Origin,
    connection: PooledConnection,
    mut request: OutgoingRequest,
    client: Option<&AskingClient>,
) -> Result<Response<OriginBody>, SendFailure> {
    if let Some(host) = &origin.host_field {
        request.headers_mut().insert(HOST, host.clone());
    }
    let parent = parent::address(origins.shared.parent_of(origin), origin, &mut request);
    let fate = request.body().fate();
    let expectation = request.body().expectation();
    let patience = origins.policy.limits.origin_response;
    let is_head = *request.method() == Method::HEAD;
    let (response, connection) = match connection {
        PooledConnection::Own(mut own) => {
            own.watched.arm(patience);
            own.connection.set_patience(patience);
            let request = request.map(|body| body.with_deadline(&own.watched, patience));
            let mut exchange = own.connection.begin(request, client.and_then(|client| client.interim.clone()));
            let response = receive(origin, &mut exchange, &mut own).await?.map(ArrivingBody::Http1);
            own.watched.disarm();
            if let Some(failure) = parent.and_then(|parent| parent::refusal(response.status(), parent)) {
                return Err(SendFailure { failure, unsent: None, unprocessed: false, answered: true });
            }
            (response, PooledConnection::Own(own))
        }
        PooledConnection::Shared(mut stream) => {
            // Some servers send no 100 over HTTP/2, and refusing a body there ends only its stream. So the body is sent
            // at once.
            if let Some(expectation) = &expectation {
                expectation.grant();
            }
            let interim = client.and_then(|client| client.interim.clone());
            match Box::pin(stream.send(*request, patience, interim)).await {
                Some(Ok(response)) => (received(response, is_head), PooledConnection::Shared(stream)),
                Some(Err(refused)) => {
                    let failure = failure_of(origin, &refused.error, fate.as_ref());
                    let unsent = refused.unsent.map(Box::new);
                    let unprocessed = refused.unprocessed;
                    return Err(SendFailure { failure, unsent, unprocessed, answered: false });
                }
                None => {
                    let failure = Failure::Timeout { host: origin.to_string() };
                    return Err(SendFailure { failure, unsent: None, unprocessed: false, answered: false });
                }
            }
        }
    };
    if let Some(fate) = fate {
        fate.note_answered();
    }
    let refusal = expectation.as_ref().and_then(Expectation::refuse);
    let lease = Lease { connection, origin: origin.clone(), origins: Arc::clone(origins), refusal };
    Ok(response.map(|body| OriginBody::new(body, lease, &origins.metrics)))
}

/// Sends a request over HTTP/1.1, and waits for the head of its response.
async fn receive(
    origin: &Origin,
    exchange: &mut Http1Exchange,
    own: &mut OwnConnection,
) -> Result<Response<Http1Body>, SendFailure> {
    let OwnConnection { connection, watched, .. } = own;
    let mut is_known = false;
    let answered = poll_fn(|context| {
        if !std::mem::replace(&mut is_known, true) {
            watched.remember(context);
        }
        if watched.order() == WatchOrder::Expire {
            return Poll::Ready(None);
        }
        exchange.poll_response(connection, context).map(Some)
    });
    let failure = match answered.await {
        Some(Ok(response)) => return Ok(response),
        Some(Err(ExchangeFault::Response(WireFault::Framing(error)))) => {
            Failure::Broken { host: origin.to_string(), why: error.to_string() }
        }
        Some(Err(ExchangeFault::RequestBody(fault))) => fault.into(),
        Some(Err(fault)) => Failure::Unusable { host: origin.to_string(), fault: FaultReport::of_exchange(&fault) },
        None => Failure::Timeout { host: origin.to_string() },
    };
    Err(SendFailure { failure, unsent: None, unprocessed: false, answered: exchange.answered })
}

/// Wraps the body of an HTTP/2 response, so that it reports its end only if it is complete.
fn received(response: Response<RecvStream>, is_head: bool) -> Response<ArrivingBody> {
    let (head, body) = response.into_parts();
    let has_content = !is_head && !matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let body = IncomingBody::Http2(Http2Body::new(body, &head.headers));
    let body = ReceivedBody::new(body, (head.version, &head.headers), has_content);
    Response::from_parts(head, ArrivingBody::Http2(Box::new(body)))
}

/// Returns the failure for an error of an HTTP/2 exchange. If the client's own body broke off, the client is at fault.
pub(super) fn failure_of(origin: &Origin, error: &h2::Error, fate: Option<&Arc<BodyFate>>) -> Failure {
    match fate.and_then(|fate| fate.fault()) {
        Some(fault @ (BodyFault::BrokenOff | BodyFault::TooSlow)) => fault.into(),
        Some(BodyFault::NotWanted) | None => {
            Failure::Unusable { host: origin.to_string(), fault: FaultReport::of_http2(error) }
        }
    }
}
