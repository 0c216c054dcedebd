//! Answers GET and HEAD through the cache: from the store if the stored response may be used, otherwise by a flight.
//!
//! Owns: collecting the facts for the decision, and executing it. `route` and `larder_http` decide.

use std::sync::Arc;

use http::{HeaderMap, Method};
use larder_http::{
    CacheStatus, Reason, Reuse, StoredHead,
    cache_status::{Forward, Tier},
    reuse::{self, Age},
};

use crate::{
    asked::RequestHead,
    cache::{
        Cache,
        entry::{EntryBody, ResourceMarker},
        lookup::{self, FoundResponse, LookupResult},
    },
    clock,
    errors::Failure,
    flight::{
        presence::{self, Availability, AvailableExtent, ReadyAnswer},
        source::BodySource,
    },
    origin::uplink::UplinkState,
    outcome::{MissReason, Outcome},
    request::{
        access::{self, AccessAnswer},
        hit::{self, HitRequest},
        pass,
        route::{self, Route, RouteFacts, StoredState},
        served::ServedResponse,
        share::{self, FetchPlan},
    },
    worker::Worker,
};

/// The stored response found for a request.
struct SeenResponse {
    found: Option<FoundResponse>,
    presence: Availability,
    marker: Option<Arc<ResourceMarker>>,
    stored: StoredState,
    /// The stored state to fall back on if the body is unavailable.
    otherwise: StoredState,
}

/// Answers from the store, or from the origin.
///
/// # Errors
/// No stored response may be used, and the origin is unreachable.
pub(crate) async fn from_cache(
    worker: &Arc<Worker>,
    asked: &Arc<RequestHead>,
    key: &Arc<[u8]>,
) -> Result<ServedResponse, Failure> {
    // Futures of several kilobytes that end soon are boxed, here and in the callers. Otherwise every request that waits
    // for an origin would keep their memory.
    let SeenResponse { found, presence, marker, stored, otherwise } = Box::pin(see(worker, asked, key)).await;
    let decide = |stored| route::decide(&facts(&worker.cache, AnswerTerms::of(asked), key, stored));
    let route = decide(stored);
    let mut permission = None;
    // The origin must grant access before a response fetched with another client's credentials is served, even if the
    // response is fresh.
    if asked.before.checks_authorization && access::is_asked_about(&route, found.as_ref()) {
        let forward = CacheStatus::forwarded(Forward::Request).because(Reason::Authorization);
        match Box::pin(access::ask(worker, asked, found.as_ref())).await {
            Ok(AccessAnswer::Granted(granted)) => permission = Some(Arc::new(granted)),
            // The origin has another response for these credentials. Storing it would replace the shared response.
            Ok(AccessAnswer::Differs) => {
                return Box::pin(share::fly(worker, asked, FetchPlan::alone(key, forward))).await;
            }
            Ok(AccessAnswer::Refused) => return pass::pass(worker, asked, None, forward).await,
            Err(failure) => {
                let stale = found.filter(|found| access::may_stand_in(&route, found));
                return or_stale(worker, asked, Err(failure), stale.as_ref());
            }
        }
    }
    let route = match (route, found.clone()) {
        (Route::Stored { age, reason }, Some(found)) => {
            match fresh(worker, asked, &UsableResponse { found: &found, age, reason }, presence).await {
                Some(served) => return served,
                // The body was lost between the lookup and its first read, by reclaim or corruption. Nothing was sent
                // yet, so the request can still take another route.
                None => decide(otherwise),
            }
        }
        (Route::Meanwhile { age }, Some(found)) => {
            let usable = UsableResponse { found: &found, age, reason: Reason::StaleWhileRevalidate };
            let served = fresh(worker, asked, &usable, presence).await;
            return meanwhile(worker, asked, key, found, served).await;
        }
        (route, _) => route,
    };
    let primary = Arc::clone(key);
    match route {
        Route::Pass { forward, stands_in } => {
            let passed = pass::pass(worker, asked, None, forward).await;
            or_stale(worker, asked, passed, found.filter(|_| stands_in).as_ref())
        }
        Route::PassHead { forward, stands_in } => {
            let passed = match &found {
                Some(found) => Box::pin(pass::pass_head(worker, asked, key, found, forward)).await,
                None => pass::pass(worker, asked, None, forward).await,
            };
            or_stale(worker, asked, passed, found.filter(|_| stands_in).as_ref())
        }
        Route::Fly { forward, validates, stands_in: may_serve_on_error, is_reload } => {
            // Only a response that the fetch validates may be confirmed by a 304.
            let before = found.filter(|_| validates);
            let sharing = FetchPlan { primary, before, may_serve_on_error, marker, forward, is_reload, permission };
            share::fly(worker, asked, sharing).await
        }
        Route::Refuse => Err(Failure::OnlyIfCached),
        Route::Offline => Err(asked.offline()),
        // Unreachable: these routes need a stored response, and were executed above if there is one.
        Route::Stored { .. } | Route::Meanwhile { .. } => {
            pass::pass(worker, asked, None, CacheStatus::forwarded(Forward::Miss)).await
        }
    }
}

/// Collects the facts for a decision.
pub(crate) fn facts<'a>(
    cache: &'a Cache,
    asking: AnswerTerms<'a>,
    primary: &[u8],
    stored: StoredState,
) -> RouteFacts<'a> {
    let AnswerTerms { method, fields, line } = asking;
    let (is_uncollapsible, has_store) = (cache.shared.uncollapsible.contains(primary), cache.shared.store.is_some());
    RouteFacts { method, fields, settings: &cache.http, stored, is_uncollapsible, has_store, line }
}

/// The properties of a request that determine how it is answered.
#[derive(Clone, Copy)]
pub(crate) struct AnswerTerms<'a> {
    pub(crate) method: &'a Method,
    pub(crate) fields: &'a HeaderMap,
    /// The state of the uplink to the request's origin.
    pub(crate) line: UplinkState,
}

impl<'a> AnswerTerms<'a> {
    fn of(asked: &'a RequestHead) -> Self {
        Self { method: &asked.method, fields: &asked.fields, line: asked.line }
    }
}

/// Looks up the stored response for a request.
async fn see(worker: &Arc<Worker>, asked: &Arc<RequestHead>, key: &Arc<[u8]>) -> SeenResponse {
    let nothing =
        |marker, stored| SeenResponse { found: None, presence: Availability::Gone, marker, stored, otherwise: stored };
    let (found, variants) = match lookup::find(&worker.cache, key, &asked.fields).await {
        LookupResult::Nothing => return nothing(None, StoredState::Nothing),
        LookupResult::Found(found) => (found, None),
        LookupResult::OtherVariants(marker) => {
            match lookup::find_by_language(&worker.cache, key, &marker, &asked.fields).await {
                Some(found) => (found, Some(marker)),
                None => return nothing(Some(marker), StoredState::OtherVariants),
            }
        }
    };
    let presence = presence::look(&worker.flights.means, asked, &found.key, &found.entry).await;
    let stored = stored(&worker.cache, AnswerTerms::of(asked), &found, presence.extent());
    match variants {
        // A variant that was found by its language is served without validation or not at all.
        Some(_) if !is_as_it_is(stored) => nothing(variants, StoredState::OtherVariants),
        Some(_) => SeenResponse {
            found: Some(found),
            presence,
            marker: variants,
            stored,
            otherwise: StoredState::OtherVariants,
        },
        None => {
            let marker = found.marker.clone();
            SeenResponse { found: Some(found), presence, marker, stored, otherwise: stored.gone() }
        }
    }
}

/// Returns whether the stored response answers without validation.
pub(crate) fn is_as_it_is(stored: StoredState) -> bool {
    matches!(
        stored,
        StoredState::Response {
            decision: Reuse::Fresh { .. },
            extent: AvailableExtent::Whole | AvailableExtent::Lacking,
            ..
        }
    )
}

/// Returns the state of a stored response, of which `extent` is available.
pub(crate) fn stored(
    cache: &Cache,
    asking: AnswerTerms<'_>,
    found: &FoundResponse,
    extent: AvailableExtent,
) -> StoredState {
    let AnswerTerms { method, fields, line } = asking;
    let (head, now, settings) = (&found.entry.head, clock::now(), &cache.http);
    let decision = match line {
        UplinkState::Up => reuse::decide(method, fields, head, now, settings),
        UplinkState::Down(allowed) => reuse::decide_disconnected(method, head, now, settings, allowed),
    };
    let covers_what_is_told = found.entry.head.selecting().cover_what_is_told(fields);
    StoredState::Response { decision, extent, covers_what_is_told }
}

/// Forwards a request whose target cannot have a key.
///
/// # Errors
/// The same as for [`from_cache`].
pub(crate) async fn from_origin(worker: &Arc<Worker>, asked: &Arc<RequestHead>) -> Result<ServedResponse, Failure> {
    check_may_ask(worker, asked)?;
    pass::pass(worker, asked, None, CacheStatus::forwarded(Forward::Bypass)).await
}

/// Checks that the origin may be contacted at all (RFC 9111 5.2.1.7).
pub(crate) fn check_may_ask(worker: &Worker, asked: &RequestHead) -> Result<(), Failure> {
    if asked.line.is_down() {
        return Err(asked.offline());
    }
    let is_forbidden = reuse::is_only_if_cached(&asked.fields, &worker.cache.http);
    if is_forbidden { Err(Failure::OnlyIfCached) } else { Ok(()) }
}

/// Replaces an error with the stale response, if that may be served (RFC 9111 4.2.4).
pub(crate) fn or_stale(
    worker: &Arc<Worker>,
    asked: &Arc<RequestHead>,
    served: Result<ServedResponse, Failure>,
    stale: Option<&FoundResponse>,
) -> Result<ServedResponse, Failure> {
    match (served, stale) {
        (Err(failure), Some(found)) if failure.is_origin_failure() => stale_answer(worker, asked, found).ok_or(failure),
        (Ok(served), Some(found)) if crate::flight::fetch::is_origin_error(served.response.status()) => {
            Ok(stale_answer(worker, asked, found).unwrap_or(served))
        }
        (served, _) => served,
    }
}

/// Answers with a stale stored response, because the origin failed.
pub(crate) fn stale_answer(
    worker: &Arc<Worker>,
    asked: &Arc<RequestHead>,
    found: &FoundResponse,
) -> Option<ServedResponse> {
    let age = age_of(worker, &found.entry.head);
    let status = CacheStatus::hit(age.ttl_secs).because(Reason::Expired);
    let wanted = HitRequest::by(&worker.shared.marks, asked, age.age_secs, status);
    let body = BodySource::of(&worker.flights.means, asked, &found.key, &found.entry).map(Arc::new);
    let answered = hit::answer(&wanted, &found.entry, body)?;
    let origin = Some(asked.origin.host.clone());
    Some(ServedResponse {
        response: answered.response,
        outcome: Outcome::RefreshFailed,
        origin,
        why: MissReason::of(status),
    })
}

/// Returns the age of a stored response and its remaining lifetime.
pub(crate) fn age_of(worker: &Worker, head: &StoredHead) -> Age {
    let freshness = head.freshness();
    let age_millis = freshness.age_millis(clock::now());
    let left = freshness.left_millis(clock::now(), &worker.cache.http);
    Age { age_secs: (age_millis / 1000).unsigned_abs(), ttl_secs: left.div_euclid(1000) }
}

/// Answers from a stored response if it may be used without validation.
pub(crate) async fn if_fresh(
    worker: &Arc<Worker>,
    asked: &Arc<RequestHead>,
    found: &FoundResponse,
) -> Option<Result<ServedResponse, Failure>> {
    let settings = &worker.cache.http;
    match reuse::decide(&asked.method, &asked.fields, &found.entry.head, clock::now(), settings) {
        Reuse::Fresh { age, reason } => {
            let presence = Box::pin(presence::look(&worker.flights.means, asked, &found.key, &found.entry)).await;
            fresh(worker, asked, &UsableResponse { found, age, reason }, presence).await
        }
        Reuse::Stale { .. } | Reuse::MustValidate { .. } | Reuse::NotUsable { .. } => None,
    }
}

/// Answers with a stale response, and validates it in the background (RFC 5861 3). If its body proves unavailable,
/// answers by a flight.
async fn meanwhile(
    worker: &Arc<Worker>,
    asked: &Arc<RequestHead>,
    key: &Arc<[u8]>,
    found: FoundResponse,
    served: Option<Result<ServedResponse, Failure>>,
) -> Result<ServedResponse, Failure> {
    let (marker, forward) = (found.marker.clone(), CacheStatus::forwarded(Forward::Stale));
    let primary = Arc::clone(key);
    let before = Some(found);
    let sharing =
        FetchPlan { primary, before, may_serve_on_error: true, marker, forward, is_reload: false, permission: None };
    match served {
        Some(served) => {
            share::refresh(worker, asked, &sharing);
            served
        }
        None => {
            let sharing = FetchPlan { before: None, may_serve_on_error: false, ..sharing };
            Box::pin(share::fly(worker, asked, sharing)).await
        }
    }
}

/// A stored response that may be used, and the reason.
struct UsableResponse<'a> {
    found: &'a FoundResponse,
    age: Age,
    reason: Reason,
}

/// Answers from the stored response. Returns `None` if its body proves unavailable.
async fn fresh(
    worker: &Arc<Worker>,
    asked: &Arc<RequestHead>,
    usable: &UsableResponse<'_>,
    presence: Availability,
) -> Option<Result<ServedResponse, Failure>> {
    let &UsableResponse { found, age, reason } = usable;
    // Every chunk is verified before the status is sent. If a gap were found later, the response would have to break
    // off.
    let ReadyAnswer { body, continued } = presence.ready().await?;
    let stale = matches!(reason, Reason::RequestMaxStale | Reason::StaleWhileRevalidate | Reason::Offline);
    // The body of a long response is on disk, even if its head is in memory.
    let is_in_memory = found.from_memory && matches!(found.entry.body, EntryBody::Whole(_));
    let hit = CacheStatus::hit(age.ttl_secs).from_tier(if is_in_memory { Tier::Memory } else { Tier::Disk });
    let status = continued.map_or(hit, share::completed);
    let status = if stale { status.because(reason) } else { status };
    let wanted = HitRequest::by(&worker.shared.marks, asked, age.age_secs, status);
    let Some(answered) = hit::answer(&wanted, &found.entry, body) else {
        // Only the origin can evaluate these preconditions (RFC 9111 4.3.2).
        return Some(match check_may_ask(worker, asked) {
            Ok(()) => pass::pass(worker, asked, None, CacheStatus::forwarded(Forward::Request)).await,
            Err(failure) => Err(failure),
        });
    };
    let outcome = match (answered.conditional, stale, found.from_memory) {
        // Part of the body comes from the origin, so this is not a hit.
        _ if continued.is_some() => Outcome::Miss,
        (true, _, _) => Outcome::ConditionalHit,
        (_, true, _) => Outcome::StaleHit,
        (_, _, true) => Outcome::MemoryHit,
        (_, _, false) => Outcome::Hit,
    };
    let origin = continued.map(|_| asked.origin.host.clone());
    Some(Ok(ServedResponse { response: answered.response, outcome, origin, why: MissReason::of(status) }))
}
