//! HTTP/1.1 connections to origins that the HTTP library drives, each in a task of its own.
//!
//! The library carries the exchanges that our own code does not: upgrade requests, and bodies that a client is still
//! sending, because the origin may respond before they have arrived. Owns: that task, and the translation of the
//! library's errors. Cost: a read and a write buffer for as long as the connection lives.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Method, Response, StatusCode};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;

use crate::{
    errors::Failure,
    origin::{
        body::ArrivingBody,
        fault::FaultReport,
        http1::InterimListener,
        origins::OriginRouter,
        pool::{Http1Speaker, OutgoingRequest, OwnConnection, SendFailure},
        request_body::{BodyFate, BodyFault, RequestBody},
        room::RoomPlace,
        stream::OriginStream,
        target::Origin,
    },
    received_body::ReceivedBody,
    watch::{WatchOrder, WatchedConnection},
};

/// Opens a connection for an upgrade request. It does not count towards the origin's limit.
pub(super) async fn start_upgradeable(
    origins: &OriginRouter,
    origin: &Origin,
    stream: OriginStream,
    watched: &Arc<WatchedConnection>,
) -> Result<SendRequest<RequestBody>, Failure> {
    let (sender, connection) = handshake(origins, origin, stream.into_tunnel()).await?;
    let connection = connection.with_upgrades();
    tokio::spawn(PooledTask { connection, watched: Arc::clone(watched), started: false, _place: None });
    Ok(sender)
}

/// Sends a request on an HTTP/1.1 connection. The library takes the connection over if our own code drives it.
pub(super) async fn send(
    origins: &OriginRouter,
    origin: &Origin,
    own: &mut OwnConnection,
    mut request: OutgoingRequest,
) -> Result<Response<ArrivingBody>, SendFailure> {
    if let Err(failure) = take_over(origins, origin, own).await {
        return Err(SendFailure { failure, unsent: Some(request), unprocessed: true, answered: false });
    }
    let Http1Speaker::Library(sender) = &mut own.speaker else {
        unreachable!("the library has taken the connection over")
    };
    if let Some(InterimListener(listener)) = request.extensions_mut().remove() {
        hyper::ext::on_informational(&mut *request, move |interim| listener(interim.status(), interim.headers()));
    }
    let fate = request.body().fate();
    let patience = origins.shared.limits.origin_response;
    let request = request.map(|body| body.with_deadline(&own.watched, patience));
    let is_head = *request.method() == Method::HEAD;
    own.requests.note();
    match sender.try_send_request(request).await {
        Ok(response) => Ok(received(response, is_head)),
        Err(mut failed) => {
            let unsent = failed.take_message().map(Box::new);
            let failure = if own.watched.order() == WatchOrder::Expire {
                Failure::Timeout { host: origin.to_string() }
            } else {
                failure_of(origin, failed.error(), fate.as_ref())
            };
            Err(SendFailure { failure, unsent, unprocessed: false, answered: failed.error().is_parse() })
        }
    }
}

/// Returns a response of the library with a body that reports its end only if it is complete.
pub(super) fn received(response: Response<Incoming>, is_head: bool) -> Response<ArrivingBody> {
    let (head, body) = response.into_parts();
    let has_content = !is_head && !matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let body = ReceivedBody::new(body, (head.version, &head.headers), has_content);
    Response::from_parts(head, ArrivingBody::Library(body))
}

/// Hands a connection that our own code drives to the library, between two exchanges.
async fn take_over(origins: &OriginRouter, origin: &Origin, own: &mut OwnConnection) -> Result<(), Failure> {
    let (connection, place) = match std::mem::replace(&mut own.speaker, Http1Speaker::Nobody) {
        Http1Speaker::Own { connection, place } => (connection, place),
        other => {
            own.speaker = other;
            return Ok(());
        }
    };
    let (sender, connection) = handshake(origins, origin, connection.into_stream()).await?;
    let watched = Arc::clone(&own.watched);
    let place = Some(place);
    tokio::spawn(PooledTask { connection, watched, started: false, _place: place });
    own.speaker = Http1Speaker::Library(sender);
    Ok(())
}

/// Returns the failure of an exchange. The origin is at fault, unless the client's own body did not arrive.
pub(super) fn failure_of(origin: &Origin, error: &hyper::Error, fate: Option<&Arc<BodyFate>>) -> Failure {
    match fate.and_then(|fate| fate.fault()) {
        Some(fault @ (BodyFault::BrokenOff | BodyFault::TooSlow)) => fault.into(),
        Some(BodyFault::NotWanted) | None => {
            Failure::Unusable { host: origin.to_string(), fault: FaultReport::of_http(error) }
        }
    }
}

type Handshaken = (SendRequest<RequestBody>, http1::Connection<TokioIo<OriginStream>, RequestBody>);

async fn handshake(origins: &OriginRouter, origin: &Origin, stream: OriginStream) -> Result<Handshaken, Failure> {
    let limits = &origins.shared.limits;
    let handshake = http1::Builder::new()
        .max_headers(limits.header_count_max)
        .max_header_size(limits.header_bytes_max)
        .max_buf_size(ORIGIN_BUFFER_BYTES_MAX.max(limits.header_bytes_max))
        .handshake(TokioIo::new(stream));
    handshake.await.map_err(|error| Failure::Unusable { host: origin.to_string(), fault: FaultReport::of_http(&error) })
}

/// A connection's own task: drives it, and closes it when its deadline has passed.
struct PooledTask<C> {
    connection: C,
    watched: Arc<WatchedConnection>,
    started: bool,
    /// The connection's place in the origin's limit, while it has one.
    _place: Option<RoomPlace<OwnConnection>>,
}

impl<C: Future + Unpin> Future for PooledTask<C> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if !self.started {
            self.started = true;
            self.watched.remember(context);
        }
        if self.watched.order() == WatchOrder::Expire {
            return Poll::Ready(());
        }
        // The request's own future reports errors.
        Pin::new(&mut self.connection).poll(context).map(|_| ())
    }
}

/// Read buffer per connection; larger pieces make long bodies cheaper, and cost memory per fetch.
const ORIGIN_BUFFER_BYTES_MAX: usize = 256 << 10;
