//! Sends requests to origins: the one path for all of them.
//!
//! Owns: their counters, and the check of the response's framing. Invariant: every fault of the origin, from the
//! connection to the head of its response, is counted once as a failure, and nothing else is.

use std::{sync::Arc, time::Instant};

use http::{HeaderMap, HeaderName, Request, Response, StatusCode, Version, response};
use larder_http::fields::{FramingError, settle_response, strip_own};

use crate::{
    ground::{errors::Failure, target::Origin, watch::WatchedConnection},
    origins::{
        access::OriginRouter,
        attempt::{self, UpgradeSent},
        body::OriginBody,
        http1::SwitchedStream,
        pool::{AskingClient, ReplayableRequest},
        request_body::RequestBody,
    },
};

/// A connection whose origin has switched to another protocol.
pub(crate) struct SwitchedOrigin {
    /// The fields of the origin's 101 (Switching Protocols).
    pub(crate) fields: HeaderMap,
    pub(crate) stream: SwitchedStream,
    /// The deadline of `stream`. The task that uses the stream must extend it.
    pub(crate) watched: Arc<WatchedConnection>,
}

/// The origin's reply to an upgrade request.
pub(crate) enum UpgradeAnswer {
    /// The origin switched protocols, so the connection no longer carries HTTP.
    Switched(SwitchedOrigin),
    /// The origin declined with an ordinary response.
    Declined(response::Parts, OriginBody),
}

impl OriginRouter {
    /// Sends a request to an origin, and returns the response's head and body.
    ///
    /// # Errors
    /// The origin is unreachable, or its response is malformed.
    pub(crate) fn ask<M>(
        self: &Arc<Self>,
        mut outgoing: ReplayableRequest<'_, M>,
    ) -> impl Future<Output = Result<(response::Parts, OriginBody), Failure>> + Send
    where
        M: FnMut() -> Request<RequestBody> + Send,
    {
        let started = Instant::now();
        // Not an `async fn`, which would keep a second copy of the arguments while it waits.
        async move {
            self.check_line(&outgoing.origin)?;
            self.metrics.origin_requests.add(1);
            let answered = outgoing.send(self).await;
            if answered.is_ok() {
                self.metrics.origin_first_byte_seconds.note(started.elapsed());
            }
            self.count(answered.and_then(|response| settle(&outgoing.origin, response)))
        }
    }

    /// Sends a request to another node of the fleet. It is not counted as a request to an origin.
    ///
    /// `proof` is the field in which the node proves itself. It stays in the response for the caller to check.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::ask`].
    pub(crate) async fn ask_sibling<M>(
        self: &Arc<Self>,
        mut outgoing: ReplayableRequest<'_, M>,
        proof: &'static HeaderName,
    ) -> Result<(response::Parts, OriginBody), Failure>
    where
        M: FnMut() -> Request<RequestBody> + Send,
    {
        let host = outgoing.origin.clone();
        let mut response = outgoing.send(self).await?;
        let value = response.headers_mut().remove(proof);
        let (mut head, body) = settle(&host, response)?;
        head.headers.extend(value.map(|value| (proof.clone(), value)));
        Ok((head, body))
    }

    /// Sends an upgrade request to an origin.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::ask`].
    pub(crate) async fn ask_upgrade(
        self: &Arc<Self>,
        origin: &Origin,
        client: &AskingClient,
        request: Request<RequestBody>,
    ) -> Result<UpgradeAnswer, Failure> {
        self.check_line(origin)?;
        self.metrics.origin_requests.add(1);
        let answered = attempt::send_upgrade(self, origin, client, request).await;
        self.count(answered.and_then(|sent| {
            let response = match sent {
                UpgradeSent::Switched(switched) => return Ok(UpgradeAnswer::Switched(switched)),
                UpgradeSent::Answered(response) => response,
            };
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                return switched(origin, response).map(UpgradeAnswer::Switched);
            }
            settle(origin, response).map(|(head, body)| UpgradeAnswer::Declined(head, body))
        }))
    }

    /// Refuses a request if the operator forbids contacting origins, even if the request was admitted before that.
    fn check_line(&self, origin: &Origin) -> Result<(), Failure> {
        if self.shared.uplink.is_shut() { Err(Failure::Offline { host: origin.to_string() }) } else { Ok(()) }
    }

    fn count<T>(&self, answered: Result<T, Failure>) -> Result<T, Failure> {
        answered.inspect_err(|failure| {
            if failure.is_origin_failure() {
                self.metrics.origin_failures.add(1);
            }
        })
    }
}

/// Checks the framing of a response, if that was not done yet. Then returns its connection to the pool if the body has
/// arrived.
fn settle(origin: &Origin, response: Response<OriginBody>) -> Result<(response::Parts, OriginBody), Failure> {
    let (mut head, mut body) = response.into_parts();
    strip_own(&mut head.headers);
    // Over HTTP/1.1, the framing was checked when it was read.
    let checked = match head.status {
        StatusCode::SWITCHING_PROTOCOLS => Err(FramingError::Switch),
        status if head.version > Version::HTTP_11 => settle_response(status, &mut head.headers, head.version).map(drop),
        _ => Ok(()),
    };
    checked.map_err(|error| Failure::Broken { host: origin.to_string(), why: error.to_string() })?;
    body.release_if_ended();
    Ok((head, body))
}

/// Takes the connection on which an origin has sent a 101, with the octets that follow its head.
fn switched(origin: &Origin, response: Response<OriginBody>) -> Result<SwitchedOrigin, Failure> {
    let (head, body) = response.into_parts();
    let broken = || Failure::Broken { host: origin.to_string(), why: "it switches before it has the request".into() };
    let (stream, watched) = body.into_switched().ok_or_else(broken)?;
    Ok(SwitchedOrigin { fields: head.headers, stream, watched })
}
