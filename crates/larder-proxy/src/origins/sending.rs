//! Sends a request: over a kept or a new connection, then by the other ways to the origin, then to the other origins of
//! its group.
//!
//! Owns: what is tried next, and whether a retry is allowed. `pool` keeps the connections. Invariants: a request is
//! sent again only if it was never sent, if the origin reported that it did not process it, or if it is safe to repeat.
//! A parent's credentials go to that parent alone.

use std::sync::Arc;

use http::{Request, Response, header::PROXY_AUTHORIZATION};

use crate::{
    ground::{errors::Failure, target::Origin},
    origins::{
        access::OriginRouter,
        attempt::attempt,
        body::OriginBody,
        pool::{OutgoingRequest, ReplayableRequest, RetryRule, SendFailure, obtain},
        request_body::RequestBody,
        ways::OriginWays,
    },
};

impl<M> ReplayableRequest<'_, M>
where
    M: FnMut() -> Request<RequestBody> + Send,
{
    /// Sends the request and waits for the head of its response, with retries.
    pub(crate) async fn send(&mut self, origins: &Arc<OriginRouter>) -> Result<Response<OriginBody>, Failure> {
        let mut request = Box::new((self.make)());
        let mut tried = Vec::new();
        loop {
            let sent = self.send_by_ways(origins, request).await;
            origins.shared.note(&self.origin, sent.as_ref().map_err(|failed| &failed.failure));
            let Some(choice) = &self.choice else { return sent.map_err(|failed| failed.failure) };
            let failed = match sent {
                Ok(answered) => {
                    choice.note(&self.origin, true);
                    return Ok(answered);
                }
                Err(failed) => failed,
            };
            if !failed.failure.is_origin_failure() {
                return Err(failed.failure);
            }
            choice.note(&self.origin, false);
            let may = self.repeat.allows(&failed);
            tried.push(self.origin.clone());
            let other = choice.other(&tried).filter(|_| may && tried.len() < ORIGIN_COUNT_MAX);
            self.origin = other.ok_or(failed.failure)?;
            request = failed.unsent.unwrap_or_else(|| Box::new((self.make)()));
        }
    }

    /// Sends the request to the chosen origin, directly or through its parents in turn.
    async fn send_by_ways(
        &mut self,
        origins: &Arc<OriginRouter>,
        request: OutgoingRequest,
    ) -> Result<Response<OriginBody>, SendFailure> {
        match origins.shared.ways(&self.origin, self.key.as_deref()) {
            None => self.send_to(origins, None, request).await,
            // Boxed, because parents are rare, and each request that waits for an origin would reserve space for this
            // future.
            Some(ways) => Box::pin(self.send_by_parents(origins, ways, request)).await,
        }
    }

    /// Sends the request to the chosen origin through its parents in turn.
    async fn send_by_parents(
        &mut self,
        origins: &Arc<OriginRouter>,
        mut ways: OriginWays,
        mut request: OutgoingRequest,
    ) -> Result<Response<OriginBody>, SendFailure> {
        let target = request.uri().clone();
        loop {
            let sent = self.send_to(origins, Some(ways.origin()), request).await;
            let may = sent.as_ref().is_err_and(|failed| self.repeat.allows(failed));
            let leads_on = ways.note(sent.as_ref().map_err(|failed| &failed.failure), may);
            let failed = match sent {
                Err(failed) if leads_on => failed,
                sent => return sent,
            };
            request = match failed.unsent {
                Some(mut unsent) => {
                    // The credentials are those of the failed parent and must not reach the next one.
                    unsent.headers_mut().remove(PROXY_AUTHORIZATION);
                    *unsent.uri_mut() = target.clone();
                    unsent
                }
                None => Box::new((self.make)()),
            };
        }
    }

    /// Sends the request to the chosen origin, or to the parent `by` that leads to it. Retries once after a dead
    /// connection.
    async fn send_to(
        &mut self,
        origins: &Arc<OriginRouter>,
        by: Option<&Origin>,
        mut request: OutgoingRequest,
    ) -> Result<Response<OriginBody>, SendFailure> {
        let origin = by.unwrap_or(&self.origin);
        let mut is_resent = false;
        loop {
            let kept = if is_resent { None } else { origins.pool.take(origin) };
            let (connection, is_kept) = match kept {
                Some(connection) => (connection, true),
                None => match Box::pin(obtain(origins, origin, self.client.and_then(|client| client.ends))).await {
                    Ok(obtained) => obtained,
                    Err(failure) => {
                        return Err(SendFailure { failure, unsent: Some(request), unprocessed: true, answered: false });
                    }
                },
            };
            let failed = match attempt(origins, origin, connection, request, self.client).await {
                Ok(answered) => return Ok(answered),
                Err(failed) => failed,
            };
            let died = is_kept && !failed.answered && !matches!(failed.failure, Failure::Timeout { .. });
            let SendFailure { unprocessed, answered, .. } = failed;
            request = match (failed.unsent, self.repeat) {
                (Some(request), _) if is_kept => request,
                (_, RetryRule::Safe) if !is_resent && (died || unprocessed) => {
                    is_resent = true;
                    Box::new((self.make)())
                }
                (_, RetryRule::IfUnprocessed) if !is_resent && unprocessed => {
                    is_resent = true;
                    Box::new((self.make)())
                }
                (unsent, _) => return Err(SendFailure { failure: failed.failure, unsent, unprocessed, answered }),
            };
        }
    }
}

impl RetryRule {
    /// Returns whether a request may be sent again, to another server, after this failure.
    fn allows(self, failed: &SendFailure) -> bool {
        match self {
            _ if failed.unsent.is_some() => true,
            // After a time-out, the request is not sent again, because the client has waited long enough.
            Self::Safe => failed.unprocessed || !matches!(failed.failure, Failure::Timeout { .. }),
            Self::IfUnprocessed => failed.unprocessed,
            Self::Never => false,
        }
    }
}

/// Maximum number of a group's origins that are tried for one request.
const ORIGIN_COUNT_MAX: usize = 3;
