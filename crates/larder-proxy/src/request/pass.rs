//! Forwards a request and its response without storing: unsafe methods, HEAD, and all requests that the cache cannot
//! help with.
//!
//! The response to a HEAD updates the stored response to GET, although it is not stored itself (RFC 9111 4.3.5).
//! Invariants: hop-by-hop fields are not forwarded (RFC 9110 7.6.1), and a request with a body is sent once. Cost:
//! bodies are streamed both ways by reference.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, StatusCode, header, response};
use larder_http::{
    CacheStatus,
    cache_status::RequestHandling,
    fields::strip_hop_by_hop,
    ruling,
    storable::Exchange,
    validate::{self, HeadVerdict},
};

use crate::{
    asked::{RequestEdits, RequestHead},
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
    request::{hit, served::ServedResponse},
    worker::Worker,
};

/// Forwards a request unchanged.
///
/// # Errors
/// The origin is unreachable, or its response is malformed.
pub(crate) async fn pass(
    worker: &Arc<Worker>,
    asked: &Arc<RequestHead>,
    body: Option<ClientBody>,
    status: CacheStatus,
) -> Result<ServedResponse, Failure> {
    // Boxed, because it is large and rarely needed, and would enlarge every future that may need it.
    let (head, body) = Box::pin(ask(worker, asked, body)).await?;
    let status = with_origin_status(status, head.status);
    Ok(respond(worker, asked, PassedResponse { status: head.status, fields: head.headers, body }, status))
}

/// Forwards a HEAD. Its response confirms or removes the stored response to GET (RFC 9111 4.3.5).
///
/// # Errors
/// The same as for [`pass`].
pub(crate) async fn pass_head(
    worker: &Arc<Worker>,
    asked: &Arc<RequestHead>,
    primary: &Arc<[u8]>,
    found: &FoundResponse,
    status: CacheStatus,
) -> Result<ServedResponse, Failure> {
    let work = worker.cache.shared.begin(primary);
    let request_time = clock::now();
    let (head, body) = ask(worker, asked, None).await?;
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
            confirmation::confirm(&worker.cache, &asked.fields, found, Confirmation { place, head: fresh, work }).await;
        }
        HeadVerdict::Changed => drop(storing::remove(&worker.cache, &found.key).await),
        HeadVerdict::Silent => {}
    }
    let status = with_origin_status(status, head.status);
    Ok(respond(
        worker,
        asked,
        PassedResponse { status: head.status, fields: updated.unwrap_or(head.headers), body },
        status,
    ))
}

/// Sends the request to the origin, and checks the framing of the response.
///
/// # Errors
/// The same as for [`pass`].
pub(crate) async fn ask(
    worker: &Arc<Worker>,
    asked: &Arc<RequestHead>,
    body: Option<ClientBody>,
) -> Result<(response::Parts, OriginBody), Failure> {
    if body.as_ref().is_none_or(ClientBody::is_empty)
        && matches!(asked.method, Method::GET | Method::HEAD)
        && !asked.has_body()
    {
        return worker.flights.means.ask(asked, &RequestEdits::default()).await;
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

/// An origin's response that is being forwarded to a client.
pub(crate) struct PassedResponse {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) body: OriginBody,
}

/// Creates a response with an origin's status, fields and body.
pub(crate) fn respond(
    worker: &Arc<Worker>,
    asked: &RequestHead,
    passed: PassedResponse,
    cache_status: CacheStatus,
) -> ServedResponse {
    let PassedResponse { status, fields, body } = passed;
    let fields = prepared(&worker.shared.marks, fields, cache_status);
    let response = hit::respond(status, fields, ResponseBody::origin(body));
    let origin = Some(asked.origin.host.clone());
    ServedResponse { response, outcome: Outcome::Miss, origin, why: MissReason::of(cache_status) }
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
