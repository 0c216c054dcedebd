//! Forwards a request and its response without storing: unsafe methods, HEAD, and all requests that the cache cannot
//! help with.
//!
//! The response to a HEAD updates the stored response to GET, although it is not stored itself (RFC 9111 4.3.5).
//! Invariants: hop-by-hop fields are not forwarded (RFC 9110 7.6.1), and a request with a body is sent once. Cost:
//! bodies are streamed both ways by reference.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, StatusCode, header, response};
use larder_cache::http::fetcher::RequestEdits;
use larder_http::{
    CacheStatus,
    cache_status::{Forward, RequestHandling},
    fields::strip_hop_by_hop,
    ruling,
    storable::Exchange,
    validate::{self, HeadVerdict},
};

use crate::{
    cache::{
        confirmation::{self, Confirmation},
        entry::CACHE_STATUS,
        lookup::FoundResponse,
        storing::{self, StorePlace},
    },
    client::response_body::ResponseBody,
    clock,
    errors::Failure,
    marks::ResponseMarkers,
    origin::{
        body::OriginBody,
        pool::{ReplayableRequest, RetryRule},
        request_body::{ClientBody, RequestBody},
    },
    outcome::{MissReason, Outcome},
    request::{
        admitted::AdmittedRequest, exchange::ClientExchange, hit, plan::FetchPlan, served::ServedResponse,
        steps::Onward,
    },
};

/// An origin's response that is being forwarded to a client.
pub(crate) struct PassedResponse {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) body: OriginBody,
}

impl ClientExchange {
    /// Forwards the request, as planned if it has a key.
    ///
    /// # Errors
    /// The origin may not be contacted, is unreachable, or its response is malformed.
    pub(super) async fn pass(&mut self) -> Result<Onward, Failure> {
        let plan = self.plan.take();
        let admitted = self.admitted();
        let served = match plan {
            Some(plan) => admitted.pass_planned(&plan).await,
            None => admitted.pass_unplanned(Forward::Bypass).await,
        };
        served.map(Onward::Served)
    }
}

impl AdmittedRequest {
    /// Forwards a request that its stored response does not answer.
    async fn pass_planned(&self, plan: &FetchPlan) -> Result<ServedResponse, Failure> {
        let updates = plan.before.as_ref().filter(|_| self.asked.method == Method::HEAD);
        let passed = match updates {
            Some(updates) => Box::pin(self.pass_head(&plan.primary, updates, plan.forward)).await,
            None => self.pass(plan.forward).await,
        };
        self.or_stale(passed, plan.before.as_ref().filter(|_| plan.may_serve_on_error))
    }

    /// Forwards a request that the cache cannot answer, because its target has no key or for the reason in `forward`.
    ///
    /// # Errors
    /// The origin may not be contacted, is unreachable, or its response is malformed.
    pub(super) async fn pass_unplanned(&self, forward: Forward) -> Result<ServedResponse, Failure> {
        self.check_may_ask()?;
        self.pass(CacheStatus::forwarded(forward)).await
    }

    /// Forwards a request unchanged.
    ///
    /// # Errors
    /// The origin is unreachable, or its response is malformed.
    pub(crate) async fn pass(&self, status: CacheStatus) -> Result<ServedResponse, Failure> {
        // Boxed, because it is large and rarely needed, and would enlarge every future that may need it.
        let (head, body) = Box::pin(self.ask(None)).await?;
        let status = with_origin_status(status, head.status);
        Ok(self.respond(PassedResponse { status: head.status, fields: head.headers, body }, status))
    }

    /// Forwards a HEAD. Its response confirms or removes the stored response to GET (RFC 9111 4.3.5).
    ///
    /// # Errors
    /// The same as for [`Self::pass`].
    pub(crate) async fn pass_head(
        &self,
        primary: &Arc<[u8]>,
        found: &FoundResponse,
        status: CacheStatus,
    ) -> Result<ServedResponse, Failure> {
        let Self { worker, asked } = self;
        let work = worker.cache.shared.begin(primary);
        let request_time = clock::now();
        let (head, body) = self.ask(None).await?;
        let settings = &worker.cache.http;
        let answer = Exchange {
            method: &asked.method,
            request_fields: &asked.fields,
            status: head.status,
            response_fields: &head.headers,
            request_time,
            response_time: clock::now(),
        };
        let mut updated = None;
        match validate::judge_head(&found.entry.head, &answer, settings) {
            HeadVerdict::Holds(fresh) => {
                // The stored fields complete those that the response to HEAD lacks.
                let mut fields = fresh.fields().clone();
                hit::add(&mut fields, &validate::first_askers_own(&head.headers, &fresh));
                updated = Some(fields);
                let fresh = fresh.after_purges(work.purge_count);
                let place = StorePlace::renewed(primary, found, &fresh, &asked.fields, settings);
                confirmation::confirm(&worker.cache, &asked.fields, found, Confirmation { place, head: fresh, work })
                    .await;
            }
            HeadVerdict::Changed => drop(storing::remove(&worker.cache, &found.key).await),
            HeadVerdict::Silent => {}
        }
        let status = with_origin_status(status, head.status);
        let fields = updated.unwrap_or(head.headers);
        Ok(self.respond(PassedResponse { status: head.status, fields, body }, status))
    }

    /// Sends the request to the origin, and checks the framing of the response.
    ///
    /// # Errors
    /// The same as for [`Self::pass`].
    pub(crate) async fn ask(&self, body: Option<ClientBody>) -> Result<(response::Parts, OriginBody), Failure> {
        let Self { worker, asked } = self;
        if body.as_ref().is_none_or(ClientBody::is_empty)
            && matches!(asked.method, Method::GET | Method::HEAD)
            && !asked.has_body()
        {
            return worker.flights.fetcher.ask_any(asked, &RequestEdits::default()).await;
        }
        let repeat = match &body {
            Some(body) if !body.is_empty() => RetryRule::Never,
            _ if asked.method.is_idempotent() => RetryRule::Safe,
            _ => RetryRule::IfUnprocessed,
        };
        let mut body = body;
        let outgoing = ReplayableRequest {
            origin: asked.origin.clone(),
            choice: asked.choice.clone(),
            key: asked.key.clone(),
            repeat,
            client: asked.asking_client(),
            make: || {
                let request = asked.outgoing(&worker.shared.marks, &RequestEdits::default());
                let body = body.take();
                request.map(|none| {
                    body.map_or(none, |body| {
                        let limits = &worker.policy.limits;
                        RequestBody::of_client(body, asked.expectation(), limits, &worker.watches)
                    })
                })
            },
        };
        let (mut head, body) = worker.origins.ask(outgoing).await?;
        asked.put_ruling(&worker.cache.shared.rules, head.status, &mut head.headers);
        Ok((head, body))
    }

    /// Creates a response with an origin's status, fields and body.
    pub(crate) fn respond(&self, passed: PassedResponse, cache_status: CacheStatus) -> ServedResponse {
        let Self { worker, asked } = self;
        let PassedResponse { status, fields, body } = passed;
        let fields = prepared(&worker.shared.marks, fields, cache_status);
        let response = hit::respond(status, fields, ResponseBody::origin(body));
        let origin = Some(asked.origin.host.clone());
        ServedResponse { response, outcome: Outcome::Miss, origin, why: MissReason::of(cache_status) }
    }
}

/// Adds the origin's status to a Cache-Status.
pub(crate) fn with_origin_status(mut cache_status: CacheStatus, origin: StatusCode) -> CacheStatus {
    if let RequestHandling::Forwarded { status, .. } = &mut cache_status.handling {
        *status = Some(origin);
    }
    cache_status
}

/// Prepares an origin's fields for the connection to the client.
pub(crate) fn prepared(marks: &ResponseMarkers, mut fields: HeaderMap, cache_status: CacheStatus) -> HeaderMap {
    strip_hop_by_hop(&mut fields);
    fields.remove(ruling::FIELD);
    if let Some(via) = &marks.via {
        fields.append(header::VIA, HeaderValue::clone(via));
    }
    if marks.add_cache_status {
        fields.append(&CACHE_STATUS, cache_status.to_value(&marks.cache_name));
    }
    fields
}
