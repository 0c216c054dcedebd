//! Answers GET and HEAD through the cache: from the store if the stored response may be used, otherwise by a flight.
//!
//! Owns: collecting the facts for the decision, and executing it. `larder_http::route` decides.

use std::{borrow::Borrow, ops::ControlFlow, sync::Arc, time::Instant};

use http::{HeaderMap, header};
use larder_cache::http::fetch::{
    presence::{self, Availability, ReadyAnswer},
    task,
};
use larder_http::{
    CacheStatus, Reason, Reuse, StoredHead,
    cache_status::{Forward, Tier},
    reuse::Age,
    route::{self, AvailableExtent, JudgedResponse, RequestTerms, Route, RouteFacts, StoredState, UnstoredRoute},
};

use crate::{
    cache::{
        Cache,
        entry::{CHUNK_BYTES, EntryBody, ResourceMarker},
        lookup::{self, FoundResponse, LookupResult},
    },
    clock,
    errors::Failure,
    fetcher::OriginFetcher,
    listings,
    outcome::{MissReason, Outcome},
    request::{
        access::{self, AccessAnswer, Permission},
        admitted::AdmittedRequest,
        exchange::ClientExchange,
        hit::{self, HitRequest},
        plan::FetchPlan,
        reading,
        served::ServedResponse,
        steps::{Onward, Step, Verdict},
    },
};

/// A request's place in the cache: the stored response found for it, if any.
struct SeenResponse {
    stored: StoredState<FoundResponse>,
    presence: Availability<OriginFetcher>,
    marker: Option<Arc<ResourceMarker>>,
    /// Why the request goes to the origin if the body proves unavailable.
    lost: Forward,
}

/// The answer of the cache.
#[expect(clippy::large_enum_variant, reason = "the larger one is the usual one, and is taken at once")]
enum CacheAnswer {
    Served(Result<ServedResponse, Failure>),
    /// None: the request goes to the origin by this step.
    Onward(Step, Box<FetchPlan>),
}

/// The answer of a stored response that may be used.
#[expect(clippy::large_enum_variant, reason = "the larger one is the usual one, and is taken at once")]
enum StoredAnswer {
    Served(ServedResponse),
    /// Only the origin can evaluate the request's preconditions (RFC 9111 4.3.2).
    ForOrigin,
    /// The body is unavailable.
    Lost,
}

impl ClientExchange {
    /// Answers with the stored response, or plans the way to the origin.
    ///
    /// # Errors
    /// No stored response may be used, and the origin may not be contacted.
    pub(super) async fn look_in_cache(&mut self) -> Result<Onward, Failure> {
        let mut verdict = Verdict::Passed;
        let answer = self.admitted().answer_or_plan(&mut verdict).await;
        self.trace.note(verdict);
        match answer {
            CacheAnswer::Served(served) => served.map(Onward::Served),
            CacheAnswer::Onward(step, plan) => {
                self.plan = Some(plan);
                Ok(Onward::To(step))
            }
        }
    }
}

impl AdmittedRequest {
    /// Answers a request, or plans its way to the origin. Sets the verdict on what is stored.
    async fn answer_or_plan(&self, verdict: &mut Verdict) -> CacheAnswer {
        let Self { worker, asked } = self;
        let key = asked.key.as_ref().expect("only a request with a key asks the cache");
        let SeenResponse { stored, presence, marker, lost } = Box::pin(self.see(key)).await;
        let is_part = asked.fields.contains_key(header::RANGE) && stored.is_absent();
        let knows_digest = is_part && Box::pin(listings::knows_digest(&worker.flights.fetcher, asked, key)).await;
        let is_never_stored = asked.before.is_never_stored;
        let facts = RouteFacts { knows_digest, is_never_stored, ..facts(&worker.cache, asked.terms(), key) };
        let route = route::decide(&facts, stored.as_ref());
        *verdict = Verdict::from(&route);
        // The origin must grant access before a response fetched with another client's credentials is served, even if
        // the response is fresh.
        let permission = if asked.before.checks_authorization && access::is_asked_about(&route) {
            match Box::pin(self.permit(key, &route, stored.response())).await {
                ControlFlow::Continue(permission) => Some(Arc::new(permission)),
                ControlFlow::Break(answer) => return answer,
            }
        } else {
            None
        };
        let route = match route {
            Route::Stored { response: found, age, reason } => {
                match self.fresh(&UsableResponse { found, age, reason }, presence).await {
                    StoredAnswer::Served(served) => return CacheAnswer::Served(Ok(served)),
                    StoredAnswer::ForOrigin => {
                        *verdict = Verdict::Bypass;
                        return self.bypass(key, CacheStatus::forwarded(Forward::Request));
                    }
                    // The body was lost between the lookup and its first read, by reclaim or corruption. Nothing was
                    // sent yet, so the request can still take another route.
                    StoredAnswer::Lost => route::decide_without(&facts, lost),
                }
            }
            Route::Meanwhile { response: found, age } => {
                // A validation before the response would make the client wait, although its directives permit this age.
                let usable = UsableResponse { found, age, reason: Reason::StaleWhileRevalidate };
                let stored = self.fresh(&usable, presence).await;
                return self.meanwhile(key, found.clone(), stored);
            }
            Route::Unstored(route) => route,
        };
        *verdict = Verdict::from(&route);
        let primary = Arc::clone(key);
        let plan = match route {
            UnstoredRoute::Pass { forward, stands_in } => {
                FetchPlan { before: stands_in.cloned(), may_serve_on_error: true, ..FetchPlan::alone(key, forward) }
            }
            // Not a flight: the response to a HEAD has no body to share or to store.
            UnstoredRoute::PassHead { forward, updates, stands_in } => FetchPlan {
                before: Some(updates.clone()),
                may_serve_on_error: stands_in,
                ..FetchPlan::alone(key, forward)
            },
            // Only a response that the fetch validates may be confirmed by a 304.
            UnstoredRoute::Fly { forward, validates, stands_in: may_serve_on_error, is_reload } => {
                let before = validates.cloned();
                FetchPlan { primary, before, may_serve_on_error, marker, forward, is_reload, permission }
            }
            UnstoredRoute::Refuse => return CacheAnswer::Served(Err(Failure::OnlyIfCached)),
            UnstoredRoute::Offline => return CacheAnswer::Served(Err(asked.offline())),
        };
        CacheAnswer::Onward(Step::from(&route), Box::new(plan))
    }

    /// Leads a request to the origin, which alone can answer it.
    fn bypass(&self, key: &Arc<[u8]>, forward: CacheStatus) -> CacheAnswer {
        match self.check_may_ask() {
            Ok(()) => CacheAnswer::Onward(Step::Pass, Box::new(FetchPlan::alone(key, forward))),
            Err(failure) => CacheAnswer::Served(Err(failure)),
        }
    }

    /// Asks the origin for permission to serve a response that was fetched with other credentials. If it grants none,
    /// breaks with the answer to the request.
    async fn permit(
        &self,
        key: &Arc<[u8]>,
        route: &Route<&FoundResponse>,
        found: Option<&FoundResponse>,
    ) -> ControlFlow<CacheAnswer, Permission> {
        let forward = CacheStatus::forwarded(Forward::Request).because(Reason::Authorization);
        let onward = |step| CacheAnswer::Onward(step, Box::new(FetchPlan::alone(key, forward)));
        ControlFlow::Break(match self.ask_permission(found).await {
            Ok(AccessAnswer::Granted(permission)) => return ControlFlow::Continue(permission),
            // The origin has another response for these credentials. Storing it would replace the shared response.
            Ok(AccessAnswer::Differs) => onward(Step::Fetch),
            Ok(AccessAnswer::Refused) => onward(Step::Pass),
            Err(failure) => CacheAnswer::Served(self.or_stale(Err(failure), access::stand_in(route))),
        })
    }
}

impl<S> From<&Route<S>> for Verdict {
    fn from(route: &Route<S>) -> Self {
        match route {
            Route::Stored { .. } => Self::Hit,
            Route::Meanwhile { .. } => Self::Stale,
            Route::Unstored(route) => Self::from(route),
        }
    }
}

impl<S> From<&UnstoredRoute<S>> for Verdict {
    fn from(route: &UnstoredRoute<S>) -> Self {
        match route {
            UnstoredRoute::Fly { validates: Some(_), .. } => Self::Validate,
            UnstoredRoute::Fly { validates: None, .. } => Self::Miss,
            UnstoredRoute::Pass { .. } | UnstoredRoute::PassHead { .. } => Self::Bypass,
            UnstoredRoute::Refuse => Self::OnlyIfCached,
            UnstoredRoute::Offline => Self::Offline,
        }
    }
}

impl<S> From<&Route<S>> for Step {
    fn from(route: &Route<S>) -> Self {
        match route {
            Route::Stored { .. } | Route::Meanwhile { .. } => Self::Deliver,
            Route::Unstored(route) => Self::from(route),
        }
    }
}

impl<S> From<&UnstoredRoute<S>> for Step {
    fn from(route: &UnstoredRoute<S>) -> Self {
        match route {
            UnstoredRoute::Fly { .. } => Self::Fetch,
            UnstoredRoute::Pass { .. } | UnstoredRoute::PassHead { .. } => Self::Pass,
            UnstoredRoute::Refuse | UnstoredRoute::Offline => Self::Deliver,
        }
    }
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
        near_bytes: CHUNK_BYTES,
    }
}

impl AdmittedRequest {
    /// Looks up the stored response for a request.
    async fn see(&self, key: &Arc<[u8]>) -> SeenResponse {
        let Self { worker, asked } = self;
        let LocatedResponse { found, variants } = locate(&worker.cache, key, &asked.fields).await;
        let nothing =
            |marker, stored| SeenResponse { stored, presence: Availability::Gone, marker, lost: Forward::Miss };
        match (found, variants) {
            (None, None) => nothing(None, StoredState::Nothing),
            (None, marker) => nothing(marker, StoredState::OtherVariants),
            (Some(found), variants) => {
                let presence = presence::look(&worker.flights.fetcher, asked, &found.key, &found.entry).await;
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
    let decision = cache.judge(&terms, head, clock::now());
    let covers_what_is_told = head.selecting().cover_what_is_told(terms.fields);
    JudgedResponse { response, decision, extent, covers_what_is_told }
}

impl AdmittedRequest {
    /// Checks that the origin may be contacted at all (RFC 9111 5.2.1.7).
    pub(crate) fn check_may_ask(&self) -> Result<(), Failure> {
        let Self { worker, asked } = self;
        asked.check_line()?;
        let is_forbidden = asked.terms().is_only_if_cached(&worker.cache.http);
        if is_forbidden { Err(Failure::OnlyIfCached) } else { Ok(()) }
    }

    /// Replaces an error with the stale response, if that may be served (RFC 9111 4.2.4).
    pub(crate) fn or_stale(
        &self,
        served: Result<ServedResponse, Failure>,
        stale: Option<&FoundResponse>,
    ) -> Result<ServedResponse, Failure> {
        match (served, stale) {
            (Err(failure), Some(found)) if failure.is_origin_failure() => self.stale_answer(found).ok_or(failure),
            (Ok(served), Some(found)) if task::is_origin_error(served.response.status()) => {
                Ok(self.stale_answer(found).unwrap_or(served))
            }
            (served, _) => served,
        }
    }

    /// Answers with a stale stored response, because the origin failed.
    pub(crate) fn stale_answer(&self, found: &FoundResponse) -> Option<ServedResponse> {
        let Self { worker, asked } = self;
        let age = age_of(&worker.cache, &found.entry.head);
        let status = CacheStatus::hit(age.ttl_secs).because(Reason::Expired);
        let wanted = HitRequest::by(&worker.shared.marks, asked, age.age_secs, status);
        let body = presence::attach(&worker.flights.fetcher, asked, &found.key, &found.entry);
        let answered = hit::answer(&wanted, &found.entry, body)?;
        let origin = Some(asked.origin.host.clone());
        Some(ServedResponse {
            response: answered.response,
            outcome: Outcome::RefreshFailed,
            origin,
            why: MissReason::of(status),
        })
    }
}

/// Returns the age of a stored response and its remaining lifetime.
pub(crate) fn age_of(cache: &Cache, head: &StoredHead) -> Age {
    let freshness = head.freshness();
    let age_millis = freshness.age_millis(clock::now());
    let left = freshness.left_millis(clock::now(), &cache.http);
    Age { age_secs: (age_millis / 1000).unsigned_abs(), ttl_secs: left.div_euclid(1000) }
}

impl AdmittedRequest {
    /// Answers from a stored response if it may be used without validation.
    pub(crate) async fn if_fresh(&self, found: &FoundResponse) -> Option<Result<ServedResponse, Failure>> {
        let Self { worker, asked } = self;
        match worker.cache.judge(&asked.terms(), &found.entry.head, clock::now()) {
            Reuse::Fresh { age, reason } => {
                let presence = Box::pin(presence::look(&worker.flights.fetcher, asked, &found.key, &found.entry)).await;
                match self.fresh(&UsableResponse { found, age, reason }, presence).await {
                    StoredAnswer::Served(served) => Some(Ok(served)),
                    StoredAnswer::ForOrigin => Some(self.pass_unplanned(Forward::Request).await),
                    StoredAnswer::Lost => None,
                }
            }
            Reuse::Stale { .. } | Reuse::MustValidate { .. } | Reuse::NotUsable { .. } => None,
        }
    }

    /// Answers with a stale response, and validates it in the background (RFC 5861 3). If its body proves unavailable,
    /// it is fetched.
    fn meanwhile(&self, key: &Arc<[u8]>, found: FoundResponse, stored: StoredAnswer) -> CacheAnswer {
        let marker = found.marker.clone();
        let forward = CacheStatus::forwarded(Forward::Stale);
        let plan = FetchPlan { marker, ..FetchPlan::alone(key, forward) };
        let validating = FetchPlan { before: Some(found), may_serve_on_error: true, ..plan.clone() };
        match stored {
            StoredAnswer::Served(served) => {
                self.refresh(&validating);
                CacheAnswer::Served(Ok(served))
            }
            StoredAnswer::ForOrigin => {
                self.refresh(&validating);
                self.bypass(key, CacheStatus::forwarded(Forward::Request))
            }
            StoredAnswer::Lost => CacheAnswer::Onward(Step::Fetch, Box::new(plan)),
        }
    }
}

/// A stored response that may be used, and the reason.
struct UsableResponse<'a> {
    found: &'a FoundResponse,
    age: Age,
    reason: Reason,
}

impl AdmittedRequest {
    /// Answers from the stored response.
    async fn fresh(&self, usable: &UsableResponse<'_>, presence: Availability<OriginFetcher>) -> StoredAnswer {
        let Self { worker, asked } = self;
        let &UsableResponse { found, age, reason } = usable;
        // Every chunk is verified before the status is sent. If a gap were found later, the response would have to
        // break off.
        let Some(ReadyAnswer { body, continued }) = presence.ready().await else { return StoredAnswer::Lost };
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
        let Some(answered) = hit::answer(&wanted, &found.entry, body) else { return StoredAnswer::ForOrigin };
        let outcome = match (answered.conditional, stale, found.from_memory) {
            // Part of the body comes from the origin, so this is not a hit.
            _ if continued.is_some() => Outcome::Miss,
            (true, _, _) => Outcome::ConditionalHit,
            (_, true, _) => Outcome::StaleHit,
            (_, _, true) => Outcome::MemoryHit,
            (_, _, false) => Outcome::Hit,
        };
        let origin = continued.map(|_| asked.origin.host.clone());
        let why = MissReason::of(status);
        StoredAnswer::Served(ServedResponse { response: answered.response, outcome, origin, why })
    }
}
