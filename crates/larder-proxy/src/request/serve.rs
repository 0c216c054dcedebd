//! Answers GET and HEAD through the cache: from the store if the stored response may be used, otherwise by a flight.
//!
//! Owns: collecting the facts for the decision, and executing it. `route` and `larder_http` decide.

use std::{borrow::Borrow, ops::ControlFlow, sync::Arc, time::Instant};

use http::{HeaderMap, header};
use larder_http::{
    CacheStatus, Reason, Reuse, StoredHead,
    cache_status::{Forward, Tier},
    reuse::Age,
};

use crate::{
    asked::{RequestHead, RequestTerms},
    cache::{
        Cache,
        entry::{EntryBody, ResourceMarker},
        lookup::{self, FoundResponse, LookupResult},
    },
    clock,
    errors::Failure,
    flight::presence::{self, Availability, AvailableExtent, ReadyAnswer},
    listings,
    outcome::{MissReason, Outcome},
    request::{
        access::{self, AccessAnswer, Permission},
        hit::{self, HitRequest},
        pass, reading,
        route::{self, JudgedResponse, Route, RouteFacts, StoredState, UnstoredRoute},
        served::ServedResponse,
        share::{self, FetchPlan},
    },
    worker::Worker,
};

/// A request's place in the cache: the stored response found for it, if any.
struct SeenResponse {
    stored: StoredState<FoundResponse>,
    presence: Availability,
    marker: Option<Arc<ResourceMarker>>,
    /// Why the request goes to the origin if the body proves unavailable.
    lost: Forward,
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
    let sharing = match Box::pin(answer_or_plan(worker, asked, key)).await {
        ControlFlow::Break(served) => return served,
        ControlFlow::Continue(sharing) => sharing,
    };
    share::fly(worker, asked, sharing).await
}

/// Answers a request without a flight, or continues with the plan of one.
async fn answer_or_plan(
    worker: &Arc<Worker>,
    asked: &Arc<RequestHead>,
    key: &Arc<[u8]>,
) -> ControlFlow<Result<ServedResponse, Failure>, Box<FetchPlan>> {
    let SeenResponse { stored, presence, marker, lost } = Box::pin(see(worker, asked, key)).await;
    let is_part = asked.fields.contains_key(header::RANGE) && stored.is_absent();
    let knows_digest = is_part && Box::pin(listings::knows_digest(&worker.flights.means, asked, key)).await;
    let is_never_stored = asked.before.is_never_stored;
    let facts = RouteFacts { knows_digest, is_never_stored, ..facts(&worker.cache, asked.terms(), key) };
    let route = route::decide(&facts, stored.as_ref());
    // The origin must grant access before a response fetched with another client's credentials is served, even if the
    // response is fresh.
    let permission = if asked.before.checks_authorization && access::is_asked_about(&route) {
        match Box::pin(permit(worker, asked, key, &route, stored.response())).await {
            ControlFlow::Continue(permission) => Some(Arc::new(permission)),
            ControlFlow::Break(served) => return ControlFlow::Break(served),
        }
    } else {
        None
    };
    let route = match route {
        Route::Stored { response: found, age, reason } => {
            match fresh(worker, asked, &UsableResponse { found, age, reason }, presence).await {
                Some(served) => return ControlFlow::Break(served),
                // The body was lost between the lookup and its first read, by reclaim or corruption. Nothing was sent
                // yet, so the request can still take another route.
                None => route::decide_without(&facts, lost),
            }
        }
        Route::Meanwhile { response: found, age } => {
            // A validation before the response would make the client wait, although its directives permit this age.
            let usable = UsableResponse { found, age, reason: Reason::StaleWhileRevalidate };
            let served = fresh(worker, asked, &usable, presence).await;
            return ControlFlow::Break(meanwhile(worker, asked, key, found.clone(), served).await);
        }
        Route::Unstored(route) => route,
    };
    ControlFlow::Break(match route {
        UnstoredRoute::Pass { forward, stands_in } => {
            let passed = pass::pass(worker, asked, None, forward).await;
            or_stale(worker, asked, passed, stands_in)
        }
        UnstoredRoute::PassHead { forward, updates, stands_in } => {
            // Not a flight: the response to a HEAD has no body to share or to store.
            let passed = Box::pin(pass::pass_head(worker, asked, key, updates, forward)).await;
            or_stale(worker, asked, passed, stands_in.then_some(updates))
        }
        UnstoredRoute::Fly { forward, validates, stands_in: may_serve_on_error, is_reload } => {
            // Only a response that the fetch validates may be confirmed by a 304.
            let primary = Arc::clone(key);
            let before = validates.cloned();
            let sharing = FetchPlan { primary, before, may_serve_on_error, marker, forward, is_reload, permission };
            return ControlFlow::Continue(Box::new(sharing));
        }
        UnstoredRoute::Refuse => Err(Failure::OnlyIfCached),
        UnstoredRoute::Offline => Err(asked.offline()),
    })
}

/// Asks the origin for permission to serve a response that was fetched with other credentials. If it grants none,
/// breaks with the response to the request.
async fn permit(
    worker: &Arc<Worker>,
    asked: &Arc<RequestHead>,
    key: &Arc<[u8]>,
    route: &Route<&FoundResponse>,
    found: Option<&FoundResponse>,
) -> ControlFlow<Result<ServedResponse, Failure>, Permission> {
    let forward = CacheStatus::forwarded(Forward::Request).because(Reason::Authorization);
    let served = match access::ask(worker, asked, found).await {
        Ok(AccessAnswer::Granted(permission)) => return ControlFlow::Continue(permission),
        // The origin has another response for these credentials. Storing it would replace the shared response.
        Ok(AccessAnswer::Differs) => share::fly(worker, asked, Box::new(FetchPlan::alone(key, forward))).await,
        Ok(AccessAnswer::Refused) => pass::pass(worker, asked, None, forward).await,
        Err(failure) => or_stale(worker, asked, Err(failure), access::stand_in(route)),
    };
    ControlFlow::Break(served)
}

/// Collects the facts for a decision that follow from a request's terms.
pub(crate) fn facts<'a>(cache: &'a Cache, terms: RequestTerms<'a>, primary: &[u8]) -> RouteFacts<'a> {
    let tags = &cache.shared.tag_changes;
    RouteFacts {
        terms,
        settings: &cache.http,
        is_uncollapsible: cache.shared.uncollapsible.contains(primary),
        has_store: cache.shared.store.is_some(),
        knows_digest: false,
        do_tags_differ: tags.are_known() && tags.are_frequent(primary, Instant::now()),
        is_never_stored: false,
    }
}

/// Looks up the stored response for a request.
async fn see(worker: &Arc<Worker>, asked: &Arc<RequestHead>, key: &Arc<[u8]>) -> SeenResponse {
    let LocatedResponse { found, variants } = locate(&worker.cache, key, &asked.fields).await;
    let nothing = |marker, stored| SeenResponse { stored, presence: Availability::Gone, marker, lost: Forward::Miss };
    match (found, variants) {
        (None, None) => nothing(None, StoredState::Nothing),
        (None, marker) => nothing(marker, StoredState::OtherVariants),
        (Some(found), variants) => {
            let presence = presence::look(&worker.flights.means, asked, &found.key, &found.entry).await;
            let judged = judged(&worker.cache, asked.terms(), found, presence.extent());
            match variants {
                // A variant that was found by its language is served without validation or not at all.
                Some(_) if !judged.answers_as_it_is() => nothing(variants, StoredState::OtherVariants),
                Some(_) => {
                    let stored = StoredState::Response(judged);
                    SeenResponse { stored, presence, marker: variants, lost: Forward::VaryMiss }
                }
                None => {
                    let marker = judged.response.marker.clone();
                    SeenResponse { stored: StoredState::Response(judged), presence, marker, lost: Forward::Miss }
                }
            }
        }
    }
}

/// The result of a lookup by the selecting fields, and then by language.
pub(crate) struct LocatedResponse {
    pub(crate) found: Option<FoundResponse>,
    /// The marker of the resource's variants, if none is stored for the selecting fields themselves.
    pub(crate) variants: Option<Arc<ResourceMarker>>,
}

/// Finds the stored response for a request, or the variant in the one language that it prefers.
pub(crate) async fn locate(cache: &Cache, primary: &[u8], request_fields: &HeaderMap) -> LocatedResponse {
    match lookup::find(cache, primary, request_fields).await {
        LookupResult::Nothing => LocatedResponse { found: None, variants: None },
        LookupResult::Found(found) => LocatedResponse { found: Some(found), variants: None },
        LookupResult::OtherVariants(marker) => {
            let found = lookup::find_by_language(cache, primary, &marker, request_fields).await;
            LocatedResponse { found, variants: Some(marker) }
        }
    }
}

/// Returns a stored response, of which `extent` is available, with the decision of the caching rules.
pub(crate) fn judged<S: Borrow<FoundResponse>>(
    cache: &Cache,
    terms: RequestTerms<'_>,
    response: S,
    extent: AvailableExtent,
) -> JudgedResponse<S> {
    let head = &response.borrow().entry.head;
    let decision = terms.judge(head, cache);
    let covers_what_is_told = head.selecting().cover_what_is_told(terms.fields);
    JudgedResponse { response, decision, extent, covers_what_is_told }
}

/// Forwards a request that the cache cannot answer, because its target has no key or for the reason in `forward`.
///
/// # Errors
/// The same as for [`from_cache`].
pub(crate) async fn from_origin(
    worker: &Arc<Worker>,
    asked: &Arc<RequestHead>,
    forward: Forward,
) -> Result<ServedResponse, Failure> {
    check_may_ask(worker, asked)?;
    pass::pass(worker, asked, None, CacheStatus::forwarded(forward)).await
}

/// Checks that the origin may be contacted at all (RFC 9111 5.2.1.7).
pub(crate) fn check_may_ask(worker: &Worker, asked: &RequestHead) -> Result<(), Failure> {
    asked.check_line()?;
    let is_forbidden = asked.terms().is_only_if_cached(&worker.cache.http);
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
    let body = presence::attach(&worker.flights.means, asked, &found.key, &found.entry);
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
    match asked.terms().judge(&found.entry.head, &worker.cache) {
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
    let marker = found.marker.clone();
    let forward = CacheStatus::forwarded(Forward::Stale);
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
            Box::pin(share::fly(worker, asked, Box::new(sharing))).await
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
    if found.from_memory {
        lookup::note_memory_hit(&worker.cache, &found.entry, &found.key);
    }
    let hit = CacheStatus::hit(age.ttl_secs).from_tier(if is_in_memory { Tier::Memory } else { Tier::Disk });
    let status = continued.map_or(hit, reading::completed);
    let status = if stale { status.because(reason) } else { status };
    let wanted = HitRequest::by(&worker.shared.marks, asked, age.age_secs, status);
    let Some(answered) = hit::answer(&wanted, &found.entry, body) else {
        // Only the origin can evaluate these preconditions (RFC 9111 4.3.2).
        return Some(from_origin(worker, asked, Forward::Request).await);
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
