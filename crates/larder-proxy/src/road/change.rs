//! Handles requests that may change something at the origin: forwards them, and drops the responses they invalidate.
//!
//! Owns: the order of steps. First the stored response is removed (RFC 9111 4.4). Then the response to a POST is stored
//! for later GETs if it says that it represents its target (RFC 9110 9.3.3). Requests are not repeated.
//!
//! Invariant: a response is stored only if it was received completely, for a request sent after the invalidation. Cost:
//! a response to store is collected before it is sent, so it is at most one chunk long.

use http::{Method, StatusCode};
use larder_cache::http::answer::pass::with_origin_status;
use larder_http::{
    BodyPlace, CacheStatus, ReceivedHead, Storability, StoredHead, VaryRule,
    cache_status::{Forward, RequestHandling},
    invalidate::{self, MoveDestination},
    storable::{self, Exchange},
};

use crate::{
    figures::outcome::{MissReason, Outcome},
    ground::{
        cache::{
            committed_body::CommittedBody,
            entry::CHUNK_BYTES,
            purges::PurgeMode,
            storing::{self, StorePlace},
            work::ResourceWork,
        },
        clock,
        errors::Failure,
    },
    origins::request_body::ClientBody,
    road::{
        admitted::AdmittedRequest,
        client::response_body::ResponseBody,
        exchange::ClientExchange,
        invalidation::{self, InvalidatedBy, Invalidation, InvalidationSubject},
        pass::PassedResponse,
        served::{self, ServedResponse},
        steps::Onward,
    },
    run::worker::Worker,
};

impl ClientExchange {
    /// Forwards a request that may change something at the origin, and invalidates or stores responses accordingly.
    ///
    /// # Errors
    /// The origin is unreachable, or breaks off a response that was to be stored.
    pub(super) async fn change(&mut self) -> Result<Onward, Failure> {
        let body = self.body.take().expect("an admitted change has its body");
        self.admitted().change(*body).await.map(Onward::Served)
    }
}

impl AdmittedRequest {
    /// Does the work of [`ClientExchange::change`] for an admitted request with this body.
    ///
    /// # Errors
    /// The origin is unreachable, or breaks off a response that was to be stored.
    async fn change(&self, body: ClientBody) -> Result<ServedResponse, Failure> {
        let Self { worker, asked } = self;
        let work = asked.key.as_ref().map(|primary| worker.cache.shared.begin(primary));
        let request_time = clock::now();
        let (head, body) = self.ask(Some(body)).await?;
        let status = head.status;
        let fields = head.headers;
        let cache_status = with_origin_status(CacheStatus::forwarded(Forward::Method), status);
        let target = asked.uri().filter(|_| !invalidate::is_safe(&asked.method));
        let moved = target.as_ref().and_then(|uri| MoveDestination::of(&asked.method, uri, &asked.fields));
        let moved = moved.filter(|_| MoveDestination::is_written(status));
        let targets = target.iter().flat_map(|uri| invalidate::targets(&asked.method, uri, status, &fields));
        for target in targets.chain(moved.iter().map(|moved| moved.uri.clone())) {
            forget(worker, InvalidationSubject::Url(&target)).await;
        }
        if let Some(moved) = &moved {
            let left = target.as_ref().filter(|_| moved.leaves_target);
            let below = [Some(&moved.uri), left].into_iter().flatten().collect();
            Box::pin(forget(worker, InvalidationSubject::Below(below))).await;
        }
        let received = ReceivedHead { status, fields, request_time, response_time: clock::now() };
        let kept = target.and_then(|target| self.rule_if_kept(&target, &received));
        let len = body.remaining().filter(|len| *len <= CHUNK_BYTES).and_then(|len| usize::try_from(len).ok());
        let (Some(rule), Some(len)) = (kept, len) else {
            return Ok(self.respond(PassedResponse { status, fields: received.fields, body }, cache_status));
        };
        let broken = || Failure::Broken { host: asked.origin.to_string(), why: "its response ended early".to_owned() };
        let (bytes, completed) = body.collect(len).await.ok_or_else(broken)?;
        let fields = received.fields.clone();
        let body = CommittedBody::Whole(completed, vec![bytes.clone()]);
        let stored = self.keep(KeptPost { rule: &rule, received, work }, body).await;
        let cache_status = told(cache_status, stored);
        let fields = worker.shared.marks.response.forwarded_fields(fields, cache_status);
        let response = served::respond(status, fields, ResponseBody::full(bytes));
        let origin = Some(asked.origin.host.clone());
        Ok(ServedResponse {
            response: Box::new(response),
            outcome: Outcome::Miss,
            origin,
            why: MissReason::of(cache_status),
        })
    }
}

/// Invalidates the stored responses that a request has changed.
///
/// Errors are ignored, because an invalidation takes effect in memory even if the store cannot write it.
async fn forget(worker: &Worker, subject: InvalidationSubject<'_>) {
    let invalidation = Invalidation { subject, effect: PurgeMode::Hard, by: InvalidatedBy::Request };
    drop(invalidation::invalidate(worker, invalidation).await);
}

impl AdmittedRequest {
    /// Returns the Vary rule of a response to POST, if the response may be stored for later GETs of its target.
    fn rule_if_kept(&self, target: &http::Uri, received: &ReceivedHead) -> Option<VaryRule> {
        let Self { worker, asked } = self;
        if asked.method != Method::POST || received.status == StatusCode::NO_CONTENT {
            return None;
        }
        let exchange = Exchange {
            method: &asked.method,
            request_fields: &asked.fields,
            status: received.status,
            response_fields: &received.fields,
            request_time: received.request_time,
            response_time: received.response_time,
        };
        match storable::decide_post(&exchange, target, &worker.cache.http) {
            Storability::Store { rule, .. } => Some(rule),
            Storability::Refuse { .. } => None,
        }
    }
}

/// A response to POST that is to be stored for later GETs.
struct KeptPost<'a> {
    rule: &'a VaryRule,
    received: ReceivedHead,
    /// The registration of this request as work on the resource. `None` if the resource has no key.
    work: Option<ResourceWork>,
}

impl AdmittedRequest {
    /// Stores a response to POST for later GETs of its target. Returns whether that succeeded.
    async fn keep(&self, kept: KeptPost<'_>, body: CommittedBody) -> bool {
        let Self { worker, asked } = self;
        let KeptPost { rule, received, work } = kept;
        let settings = &worker.cache.http;
        let Some((primary, work)) = asked.key.as_ref().zip(work) else { return false };
        // This request invalidated the resource itself, which must not count against its own response. Later purges
        // must count.
        let work = work.after_own_change();
        let place = StorePlace::new(primary, rule, &asked.fields, None, settings);
        let Some((place, selecting)) = place.zip(rule.select(&asked.fields, settings)) else { return false };
        let head = StoredHead::new(received, BodyPlace::Whole { len: body.stored_len() }, selecting, &settings.targets);
        let head = head.after_purges(work.purge_count);
        storing::commit(&worker.cache, &place, &head, body, &work).await
    }
}

fn told(mut cache_status: CacheStatus, is_stored: bool) -> CacheStatus {
    if let RequestHandling::Forwarded { stored, .. } = &mut cache_status.handling {
        *stored = is_stored;
    }
    cache_status
}
