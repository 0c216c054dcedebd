//! Forwards a request and its response without storing: unsafe methods, and all requests that the cache cannot help
//! with.
//!
//! Invariants: hop-by-hop fields are not forwarded (RFC 9110 7.6.1), and a request with a body is sent once. Cost:
//! bodies are streamed both ways by reference.

use http::{HeaderMap, Method, StatusCode, response};
use larder_cache::http::{answer::pass::with_origin_status, fetcher::RequestEdits};
use larder_device::pinned;
use larder_http::{CacheStatus, cache_status::Forward};

use crate::{
    figures::outcome::{MissReason, Outcome},
    ground::errors::Failure,
    origins::{
        RetryRule,
        body::OriginBody,
        request_body::{ClientBody, RequestBody},
    },
    road::{
        admitted::AdmittedRequest,
        client::response_body::ResponseBody,
        exchange::ClientExchange,
        served::{ServedResponse, respond},
        steps::Onward,
    },
};

/// A response of an origin, while it is forwarded to a client without being stored.
pub(crate) struct PassedResponse {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) body: OriginBody,
}

impl ClientExchange {
    /// Forwards a request without storing its response. A request with a key follows the cache's plan.
    ///
    /// # Errors
    /// The origin must not be contacted, is unreachable, or sends a malformed response.
    pub(super) async fn pass(&mut self) -> Result<Onward, Failure> {
        let plan = self.plan.take();
        let admitted = self.admitted();
        let served = match plan {
            Some(plan) => ServedResponse::of(admitted.query().pass_planned(&plan).await?, admitted),
            None => admitted.pass_unplanned().await?,
        };
        Ok(Onward::Served(served))
    }
}

impl AdmittedRequest {
    /// Forwards a request that has no cache key.
    ///
    /// # Errors
    /// The origin must not be contacted, is unreachable, or sends a malformed response.
    async fn pass_unplanned(&self) -> Result<ServedResponse, Failure> {
        self.query().check_may_ask()?;
        // The future is large and rarely needed. Boxed, it does not enlarge the futures that contain it.
        let (head, body) = pinned(|| self.ask(None)).await?;
        let status = with_origin_status(CacheStatus::forwarded(Forward::Bypass), head.status);
        Ok(self.respond(PassedResponse { status: head.status, fields: head.headers, body }, status))
    }

    /// Sends the request to the origin, and returns the response's head and body.
    ///
    /// # Errors
    /// The origin is unreachable, or its response is malformed.
    pub(crate) async fn ask(&self, body: Option<ClientBody>) -> Result<(response::Parts, OriginBody), Failure> {
        let Self { worker, asked } = self;
        if body.as_ref().is_none_or(ClientBody::is_empty)
            && matches!(asked.method, Method::GET | Method::HEAD)
            && !asked.has_body()
        {
            return worker.http.fetcher.ask_any(asked, &RequestEdits::default()).await;
        }
        let repeat = match &body {
            Some(body) if !body.is_empty() => RetryRule::Never,
            _ if asked.method.is_idempotent() => RetryRule::Safe,
            _ => RetryRule::IfUnprocessed,
        };
        let mut body = body;
        let outgoing = asked.replayable(repeat, || {
            let request = asked.outgoing(&worker.shared.marks, &RequestEdits::default());
            let body = body.take();
            request.map(|none| {
                body.map_or(none, |body| {
                    let limits = &worker.policy.limits;
                    RequestBody::of_client(body, asked.expectation(), limits, &worker.watches)
                })
            })
        });
        let (mut head, body) = worker.origins.ask(outgoing).await?;
        asked.put_ruling(&worker.cache.shared.rules, head.status, &mut head.headers);
        Ok((head, body))
    }

    /// Creates the client's response from the status, fields and body that an origin sent.
    pub(crate) fn respond(&self, passed: PassedResponse, cache_status: CacheStatus) -> ServedResponse {
        let Self { worker, asked } = self;
        let PassedResponse { status, fields, body } = passed;
        let fields = worker.shared.marks.response.forwarded_fields(fields, cache_status);
        let response = respond(status, fields, ResponseBody::origin(body));
        let origin = Some(asked.origin.host.clone());
        ServedResponse {
            response: Box::new(response),
            outcome: Outcome::Miss,
            origin,
            why: MissReason::of(cache_status),
        }
    }
}
