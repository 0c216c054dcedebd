//! Sending a request: over a kept or a new connection, by one way to its origin after the other, to one origin of a group
//! after the other.
//!
//! Owns: what is tried next, and whether it may be. Does not: keep connections, see `pool`. Invariant: a request is sent
//! again only if it never left, if the origin says that it did not process it, or if it is safe to repeat; credentials
//! for a parent go to that parent alone.

use std::sync::Arc;

use http::{Request, Response, header::PROXY_AUTHORIZATION};
use hyper::body::Incoming;

use crate::{
    errors::Failure,
    origin::{
        origins::OriginRouter,
        pool::{Lease, ReplayableRequest, RetryRule, SendFailure, attempt, obtain},
        request_body::RequestBody,
    },
};

/// Sends a request and waits for the head of its response.
pub(crate) async fn send<M>(
    origins: &Arc<OriginRouter>,
    mut outgoing: ReplayableRequest<M>,
) -> Result<(Response<Incoming>, Lease), Failure>
where
    M: FnMut() -> Request<RequestBody> + Send,
{
    let mut request = (outgoing.make)();
    let mut tried = Vec::new();
    loop {
        let sent = send_by_ways(origins, &mut outgoing, request).await;
        origins.shared.note(&outgoing.origin, sent.as_ref().map_err(|failed| &failed.failure));
        let Some(choice) = &outgoing.choice else { return sent.map_err(|failed| failed.failure) };
        let SendFailure { failure, unsent, unprocessed, .. } = match sent {
            Ok(answered) => {
                choice.note(&outgoing.origin, true);
                return Ok(answered);
            }
            Err(failed) => failed,
        };
        if !failure.is_origin_failure() {
            return Err(failure);
        }
        choice.note(&outgoing.origin, false);
        let may = outgoing.repeat.allows(unsent.is_some(), unprocessed, &failure);
        tried.push(outgoing.origin.clone());
        let other = choice.other(&tried).filter(|_| may && tried.len() < ORIGIN_COUNT_MAX);
        outgoing.origin = other.ok_or(failure)?;
        request = unsent.unwrap_or_else(&mut outgoing.make);
    }
}

/// Sends a request to the origin that was chosen, by one way to it after the other.
async fn send_by_ways<M>(
    origins: &Arc<OriginRouter>,
    outgoing: &mut ReplayableRequest<M>,
    mut request: Request<RequestBody>,
) -> Result<(Response<Incoming>, Lease), SendFailure>
where
    M: FnMut() -> Request<RequestBody> + Send,
{
    let (chosen, target) = (outgoing.origin.clone(), request.uri().clone());
    let mut ways = origins.shared.ways(&chosen, outgoing.key.as_deref());
    loop {
        outgoing.origin = ways.origin().clone();
        let sent = send_to(origins, outgoing, request).await;
        outgoing.origin = chosen.clone();
        let failed = match sent {
            Ok(answered) => {
                ways.note_good();
                return Ok(answered);
            }
            Err(failed) => failed,
        };
        let is_parents = ways.note_failed(&failed.failure);
        let may = outgoing.repeat.allows(failed.unsent.is_some(), failed.unprocessed, &failed.failure);
        if !(is_parents && may && ways.advance()) {
            return Err(failed);
        }
        request = match failed.unsent {
            Some(mut unsent) => {
                // The parent's credentials are for it alone.
                unsent.headers_mut().remove(PROXY_AUTHORIZATION);
                *unsent.uri_mut() = target.clone();
                unsent
            }
            None => (outgoing.make)(),
        };
    }
}

/// Sends a request to the origin that was chosen, by the way that was chosen.
async fn send_to<M>(
    origins: &Arc<OriginRouter>,
    outgoing: &mut ReplayableRequest<M>,
    mut request: Request<RequestBody>,
) -> Result<(Response<Incoming>, Lease), SendFailure>
where
    M: FnMut() -> Request<RequestBody> + Send,
{
    let mut is_resent = false;
    loop {
        let kept = if is_resent { None } else { origins.pool.take(&outgoing.origin) };
        let (connection, is_kept) = match kept {
            Some(connection) => (connection, true),
            None => match Box::pin(obtain(origins, &outgoing.origin)).await {
                Ok(obtained) => obtained,
                Err(failure) => {
                    return Err(SendFailure { failure, unsent: Some(request), unprocessed: true, answered: false });
                }
            },
        };
        let failed = match attempt(origins, &outgoing.origin, connection, request).await {
            Ok(answered) => return Ok(answered),
            Err(failed) => failed,
        };
        let died = is_kept && !failed.answered && !matches!(failed.failure, Failure::Timeout { .. });
        let SendFailure { unprocessed, answered, .. } = failed;
        request = match (failed.unsent, outgoing.repeat) {
            (Some(request), _) if is_kept => request,
            (_, RetryRule::Safe) if !is_resent && (died || unprocessed) => {
                is_resent = true;
                (outgoing.make)()
            }
            (_, RetryRule::IfUnprocessed) if !is_resent && unprocessed => {
                is_resent = true;
                (outgoing.make)()
            }
            (unsent, _) => return Err(SendFailure { failure: failed.failure, unsent, unprocessed, answered }),
        };
    }
}

impl RetryRule {
    /// Returns whether a request that failed at one server may be sent to another.
    fn allows(self, is_unsent: bool, is_unprocessed: bool, failure: &Failure) -> bool {
        match self {
            _ if is_unsent => true,
            // A request that has waited once until the server's time was up does not wait again.
            Self::Safe => is_unprocessed || !matches!(failure, Failure::Timeout { .. }),
            Self::IfUnprocessed => is_unprocessed,
            Self::Never => false,
        }
    }
}

/// Most origins of a group that one request is tried with.
const ORIGIN_COUNT_MAX: usize = 3;
