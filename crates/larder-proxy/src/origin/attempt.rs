//! One attempt to send a request on a connection.
//!
//! Owns: the choice between our own HTTP/1.1 code and the HTTP library. HTTP/1.1 requests whose body is present use our
//! own code. The library takes over a connection for a body that a client is still sending, because the origin may
//! respond before it has arrived. Retries are decided elsewhere. Invariant: the origin's deadline runs until its
//! response has begun.

use std::{future::poll_fn, sync::Arc, task::Poll};

use http::{Method, Request, Response, header::HOST};

use crate::{
    errors::Failure,
    origin::{
        body::ArrivingBody,
        connect::{self, NewLink},
        expectation::Expectation,
        fault::FaultReport,
        http1::{ExchangeFault, Http1Body, Http1Exchange, head::ResponseFault},
        library,
        origins::OriginRouter,
        parent,
        pool::{Http1Speaker, Lease, OutgoingRequest, OwnConnection, PooledConnection, SendFailure},
        request_body::RequestBody,
        target::Origin,
    },
    watch::WatchOrder,
};

/// Sends an upgrade request, on a connection of its own (RFC 9110 7.8).
pub(crate) async fn send_upgrade(
    origins: &Arc<OriginRouter>,
    origin: &Origin,
    request: Request<RequestBody>,
) -> Result<(Response<ArrivingBody>, Lease), Failure> {
    let ends = request.extensions().get().copied();
    let sent = async {
        // A connection that is upgraded cannot be given to waiting requests.
        let NewLink { stream, watched, requests, .. } = connect::connect(origins, origin, false, ends).await?;
        let sender = library::start_upgradeable(origins, origin, stream, &watched).await?;
        let speaker = Http1Speaker::Library(sender);
        let own = OwnConnection { room: origins.shared.rooms.of(origin), speaker, watched, requests };
        attempt(origins, origin, PooledConnection::Own(own), Box::new(request)).await.map_err(|failed| failed.failure)
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
) -> Result<(Response<ArrivingBody>, Lease), SendFailure> {
    if let Some(host) = &origin.host_field {
        request.headers_mut().insert(HOST, host.clone());
    }
    let parent = parent::address(origins.shared.parent_of(origin), origin, &mut request);
    let fate = request.body().fate();
    let expectation = request.body().expectation();
    let patience = origins.shared.limits.origin_response;
    let is_head = *request.method() == Method::HEAD;
    let (response, connection) = match connection {
        PooledConnection::Own(mut own) => {
            own.watched.arm(patience);
            let response = match begin(&mut own, request) {
                Ok(exchange) => receive(origin, exchange, &mut own).await?.map(ArrivingBody::Own),
                // Boxed, because it is large, and most requests have no body that a client is still sending.
                Err(request) => Box::pin(library::send(origins, origin, &mut own, request)).await?,
            };
            own.watched.disarm();
            if let Some(failure) = parent.and_then(|parent| parent::refusal(response.status(), parent)) {
                return Err(SendFailure { failure, unsent: None, unprocessed: false, answered: true });
            }
            (response, PooledConnection::Own(own))
        }
        PooledConnection::Shared(mut stream) => {
            // The HTTP library does not report interim responses over HTTP/2, so the body cannot wait for one.
            if let Some(expectation) = &expectation {
                expectation.grant();
            }
            match Box::pin(stream.send(*request, patience)).await {
                Some(Ok(response)) => (library::received(response, is_head), PooledConnection::Shared(stream)),
                Some(Err(refused)) => {
                    let failure = library::failure_of(origin, &refused.error, fate.as_ref());
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
    Ok((response, Lease { connection, origin: origin.clone(), origins: Arc::clone(origins), refusal }))
}

/// Begins an exchange on our own connection, unless the request needs the HTTP library.
fn begin(own: &mut OwnConnection, mut request: OutgoingRequest) -> Result<Http1Exchange, OutgoingRequest> {
    let Http1Speaker::Own { connection, .. } = &mut own.speaker else { return Err(request) };
    let Some(body) = request.body_mut().take_whole() else { return Err(request) };
    own.requests.note();
    Ok(connection.begin(request.map(|_| body)))
}

/// Waits for the head of a response on our own connection.
async fn receive(
    origin: &Origin,
    mut exchange: Http1Exchange,
    own: &mut OwnConnection,
) -> Result<Response<Http1Body>, SendFailure> {
    let Http1Speaker::Own { connection, .. } = &mut own.speaker else {
        unreachable!("the exchange has begun on our own connection")
    };
    let mut is_known = false;
    let answered = poll_fn(|context| {
        if !std::mem::replace(&mut is_known, true) {
            own.watched.remember(context);
        }
        if own.watched.order() == WatchOrder::Expire {
            return Poll::Ready(None);
        }
        exchange.poll_response(connection, context).map(Some)
    });
    let failure = match answered.await {
        Some(Ok(response)) => return Ok(response),
        Some(Err(ExchangeFault::Response(ResponseFault::Framing(error)))) => {
            Failure::Broken { host: origin.to_string(), why: error.to_string() }
        }
        Some(Err(fault)) => Failure::Unusable { host: origin.to_string(), fault: FaultReport::of_exchange(&fault) },
        None => Failure::Timeout { host: origin.to_string() },
    };
    Err(SendFailure { failure, unsent: None, unprocessed: false, answered: exchange.answered })
}
