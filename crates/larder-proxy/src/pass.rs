//! Passing a request on and its response back, without storing: unsafe methods, HEAD, and whatever the cache
//! cannot help with.
//!
//! Invariant: what belongs to one connection stays on it (RFC 9110 7.6.1); a request with a body is sent
//! once. Cost: bodies are streamed both ways by reference.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper::body::Incoming;
use larder_http::{
    CacheStatus,
    cache_status::Handling,
    fields::{check_response, strip_hop_by_hop},
};

use crate::{
    asked::{Asked, Edits},
    cache::{entry::CACHE_STATUS, hit},
    client::response_body::ResponseBody,
    errors::Failure,
    exchange::Served,
    origin::{
        body::OriginBody,
        pool::{self, Outgoing},
        request_body::RequestBody,
    },
    outcome::Outcome,
    server::Shared,
    worker::Worker,
};

/// Passes a request on as it is.
///
/// # Errors
/// The origin cannot be reached, or its response makes no sense.
pub(crate) async fn pass(
    worker: &Arc<Worker>,
    asked: &Arc<Asked>,
    body: Option<Incoming>,
    status: CacheStatus,
) -> Result<Served, Failure> {
    let repeatable = body.is_none() && asked.method.is_idempotent();
    let mut body = body;
    let outgoing = Outgoing {
        origin: asked.origin.clone(),
        repeatable,
        make: || {
            let request = asked.outgoing(&worker.shared, &Edits::default());
            let body = body.take();
            request.map(|none| body.map_or(none, RequestBody::of_client))
        },
    };
    worker.metrics.origin_requests.add(1);
    let (response, lease) =
        pool::send(worker, outgoing).await.inspect_err(|_| worker.metrics.origin_failures.add(1))?;
    let (head, incoming) = response.into_parts();
    check_response(&head.headers, head.version)
        .map_err(|error| Failure::Broken { host: asked.origin.to_string(), why: error.to_string() })?;
    let body = OriginBody::new(incoming, lease, Arc::clone(worker));
    let status = with_origin_status(status, head.status);
    Ok(respond(worker, asked, (head.status, head.headers, body), status))
}

/// A response with an origin's status, fields and body.
pub(crate) fn respond(
    worker: &Arc<Worker>,
    asked: &Asked,
    (status, mut fields, body): (StatusCode, HeaderMap, OriginBody),
    cache_status: CacheStatus,
) -> Served {
    prepare(&worker.shared, &mut fields, cache_status);
    let response = hit::respond(status, fields, ResponseBody::origin(body));
    Served { response, outcome: Outcome::Miss, origin: Some(asked.origin.host.clone()) }
}

/// Adds the origin's status to a Cache-Status.
pub(crate) fn with_origin_status(mut cache_status: CacheStatus, origin: StatusCode) -> CacheStatus {
    if let Handling::Forwarded { status, .. } = &mut cache_status.handling {
        *status = Some(origin);
    }
    cache_status
}

/// Makes an origin's fields fit for the client's connection.
fn prepare(shared: &Shared, fields: &mut HeaderMap, cache_status: CacheStatus) {
    strip_hop_by_hop(fields);
    if let Some(via) = &shared.via {
        fields.append(header::VIA, HeaderValue::clone(via));
    }
    if shared.config.add_cache_status {
        fields.append(&CACHE_STATUS, cache_status.to_value());
    }
}
