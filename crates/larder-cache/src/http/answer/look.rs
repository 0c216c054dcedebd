//! Answers from the store if the stored response may be used, or plans the way to the origin.
//!
//! Owns: collecting the facts for the decision, and executing it. [`larder_http::route`] decides.

use std::{borrow::Borrow, ops::ControlFlow, sync::Arc, time::Instant};

use http::{HeaderMap, header};
use larder_device::pinned;
use larder_http::{
    CacheStatus, Reason, Reuse, StoredHead, Timestamp,
    cache_status::{Forward, Tier},
    reuse::Age,
    route::{self, AvailableExtent, JudgedResponse, RequestTerms, Route, RouteFacts, StoredState, UnstoredRoute},
};

use super::{
    hit,
    marks::ResponseMarks,
    plan::FetchPlan,
    query::{Answer, AnswerKind, AnswerResponse, CacheQuery},
    reading,
};
use crate::http::{
    ResponseCache,
    entry::{CHUNK_BYTES, EntryBody, ResourceMarker},
    fetch::{
        presence::{self, Availability, ReadyAnswer},
        task::is_origin_error,
    },
    fetcher::{AccessAnswer, ClientRequest as _, Fetcher, Refusal},
    lookup::{self, FoundResponse, LookupResult},
};

/// The result of looking up a request in the cache: a verdict, and an answer or a plan.
pub struct LookResult<F: Fetcher> {
    /// The kind of the result, without its data.
    pub verdict: LookVerdict,
    /// The answer, or the plan to get one from the origin.
    pub answer: CacheAnswer<F>,
}

/// The verdict of the cache on a request: whether a stored response answers it, and under which condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookVerdict {
    /// A stored response answers the request.
    Hit,
    /// A stale stored response answers the request, and is validated in the background.
    Stale,
    /// A stored response may answer the request, but the origin must confirm it first.
    Validate,
    /// No stored response answers the request, so it goes to the origin.
    Miss,
    /// The request must go to the origin, whatever is stored.
    Bypass,
    /// The request accepts only a stored response, and none may be used.
    OnlyIfCached,
    /// No stored response may answer the request, and the origin cannot be contacted at present.
    Offline,
}

/// The answer of the cache, or the plan to get one from the origin.
pub enum CacheAnswer<F: Fetcher> {
    /// The answer to the request, or the reason why the request fails.
    Answered(Result<Answer<F>, F::Failure>),
    /// There is no answer yet. Call [`CacheQuery::fetch`] with this plan: it fetches the response, shared with other
    /// requests.
    Fetch(Box<FetchPlan<F>>),
    /// There is no answer yet. Call [`CacheQuery::pass_planned`] with this plan: it passes the request on to the
    /// origin.
    Pass(Box<FetchPlan<F>>),
}

/// The stored response that a lookup found, if any, and how much of its body is available.
struct SeenResponse<F: Fetcher> {
    stored: StoredState<FoundResponse>,
    presence: Availability<F>,
    marker: Option<Arc<ResourceMarker>>,
    /// The reason for contacting the origin if the body turns out to be lost.
    lost: Forward,
}

/// The outcome of answering with a stored response that may be used.
enum StoredAnswer<F: Fetcher> {
    Served(Answer<F>),
    /// Nothing was answered: only the origin can evaluate the request's preconditions (RFC 9111 4.3.2).
    ForOrigin,
    /// Nothing was answered: the stored body is no longer available.
    Lost,
}

impl<F: Fetcher> CacheQuery<'_, F> {
    /// Answers the request with a stored response, or plans how it goes to the origin.
    ///
    /// # Panics
    /// The request's resource has no key.
    #[doc(hidden)] // for larder-proxy, which looks and fetches in separate steps
    pub async fn look(self) -> LookResult<F> {
        let Self { http, asked } = self;
        let key = asked.key().expect("only a request with a key asks the cache");
        let since = self.cache().shared.hot.moment();
        let SeenResponse { stored, presence, marker, lost } = pinned(|| self.see(key)).await;
        let is_part = asked.has(&header::RANGE) && stored.is_absent();
        let knows_digest = is_part && Box::pin(http.fetcher.knows_digest(asked, key)).await;
        let is_never_stored = asked.is_never_stored();
        let facts = RouteFacts { knows_digest, is_never_stored, ..facts(self.cache(), asked.terms(), key) };
        let route = route::decide(&facts, stored.as_ref());
        let verdict = LookVerdict::from(&route);
        let answered = |answer| LookResult { verdict, answer };
        // The origin must grant access before a response fetched with another client's credentials is served, even if
        // the response is fresh.
        let permission = if asked.checks_access() && is_asked_about(&route) {
            match Box::pin(self.permit(key, &route, stored.response())).await {
                ControlFlow::Continue(permission) => Some(Arc::new(permission)),
                ControlFlow::Break(answer) => return answered(answer),
            }
        } else {
            None
        };
        let route = match route {
            Route::Stored { response: found, age, reason } => {
                match self.fresh(&UsableResponse { found, age, reason }, presence).await {
                    StoredAnswer::Served(served) => return answered(CacheAnswer::Answered(Ok(served))),
                    StoredAnswer::ForOrigin => {
                        let answer = self.bypass(key, CacheStatus::forwarded(Forward::Request));
                        return LookResult { verdict: LookVerdict::Bypass, answer };
                    }
                    // The body was lost between the lookup and its first read, by reclaim or corruption. Nothing was
                    // sent yet, so the request can still take another route.
                    StoredAnswer::Lost => route::decide_without(&facts, lost),
                }
            }
            Route::Meanwhile { response: found, age } => {
                if !http.fetcher.can_refresh() && !http.flights.is_flying(&found.key) {
                    let plan = FetchPlan::alone(key, CacheStatus::forwarded(Forward::Stale));
                    let before = Some(found.clone());
                    let plan = FetchPlan { before, marker, may_serve_on_error: true, permission, ..plan };
                    return LookResult { verdict: LookVerdict::Validate, answer: CacheAnswer::Fetch(Box::new(plan)) };
                }
                // A validation before the response would make the client wait, although its directives permit this age.
                let usable = UsableResponse { found, age, reason: Reason::StaleWhileRevalidate };
                let stored = self.fresh(&usable, presence).await;
                return answered(self.meanwhile(key, found.clone(), stored));
            }
            Route::Unstored(route) => route,
        };
        let verdict = LookVerdict::from(&route);
        let answer = match route {
            UnstoredRoute::Pass { forward, stands_in } => {
                let before = stands_in.cloned();
                let plan = FetchPlan { before, may_serve_on_error: true, ..FetchPlan::alone(key, forward) };
                CacheAnswer::Pass(Box::new(plan))
            }
            // Not a flight: the response to a HEAD has no body to share or to store.
            UnstoredRoute::PassHead { forward, updates, stands_in: may_serve_on_error } => {
                let before = Some(updates.clone());
                CacheAnswer::Pass(Box::new(FetchPlan { before, may_serve_on_error, ..FetchPlan::alone(key, forward) }))
            }
            // Only a response that the fetch validates may be confirmed by a 304.
            UnstoredRoute::Fly { forward, validates, stands_in: may_serve_on_error, is_reload } => {
                let before = validates.cloned();
                let absent_since = (before.is_none() && marker.is_none()).then_some(since);
                let plan = FetchPlan { before, may_serve_on_error, marker, ..FetchPlan::alone(key, forward) };
                CacheAnswer::Fetch(Box::new(FetchPlan { is_reload, permission, absent_since, ..plan }))
            }
            UnstoredRoute::Refuse => CacheAnswer::Answered(Err(F::refuse(asked, Refusal::OnlyIfCached))),
            UnstoredRoute::Offline => CacheAnswer::Answered(Err(F::refuse(asked, Refusal::Offline))),
        };
        LookResult { verdict, answer }
    }

    /// Plans to pass a request on to the origin, the only one that can answer it. Answers with an error if the origin
    /// may not be contacted.
    fn bypass(self, key: &Arc<[u8]>, forward: CacheStatus) -> CacheAnswer<F> {
        match self.check_may_ask() {
            Ok(()) => CacheAnswer::Pass(Box::new(FetchPlan::alone(key, forward))),
            Err(failure) => CacheAnswer::Answered(Err(failure)),
        }
    }

    /// Asks the origin whether the client may receive a response that was fetched with another client's credentials.
    ///
    /// If the origin refuses, or cannot be asked, returns what to do with the request in `Break`.
    async fn permit(
        self,
        key: &Arc<[u8]>,
        route: &Route<&FoundResponse>,
        found: Option<&FoundResponse>,
    ) -> ControlFlow<CacheAnswer<F>, F::Permission> {
        let forward = CacheStatus::forwarded(Forward::Request).because(Reason::Authorization);
        let alone = || Box::new(FetchPlan::alone(key, forward));
        let answer = match self.check_may_ask() {
            Ok(()) => self.http.fetcher.ask_permission(self.asked, found.filter(|found| is_protected(found))).await,
            Err(failure) => Err(failure),
        };
        ControlFlow::Break(match answer {
            Ok(AccessAnswer::Granted(permission)) => return ControlFlow::Continue(permission),
            // The origin has another response for these credentials. Storing it would replace the shared response.
            Ok(AccessAnswer::Differs) => CacheAnswer::Fetch(alone()),
            Ok(AccessAnswer::Refused) => CacheAnswer::Pass(alone()),
            Err(failure) => CacheAnswer::Answered(self.or_stale(Err(failure), stand_in(route))),
        })
    }

    /// Returns the cache.
    #[inline]
    pub(super) fn cache(&self) -> &Arc<ResponseCache> {
        self.http.fetcher.cache()
    }

    /// Returns the present time.
    #[inline]
    pub(super) fn now(&self) -> Timestamp {
        self.http.fetcher.now()
    }

    /// Returns what the cache adds to responses, such as its name in Via.
    #[inline]
    pub(super) fn marks(&self) -> &ResponseMarks {
        self.http.fetcher.marks()
    }
}

/// Returns whether the origin must grant the client access before this route is taken.
///
/// No grant is needed if the stored response was fetched without credentials, or if the origin itself answers this
/// request.
fn is_asked_about(route: &Route<&FoundResponse>) -> bool {
    match route {
        Route::Stored { response, .. } | Route::Meanwhile { response, .. } => is_protected(response),
        Route::Unstored(UnstoredRoute::Fly { .. } | UnstoredRoute::PassHead { .. }) => true,
        Route::Unstored(UnstoredRoute::Pass { stands_in, .. }) => stands_in.is_some(),
        Route::Unstored(UnstoredRoute::Refuse | UnstoredRoute::Offline) => false,
    }
}

/// Returns the stored response to serve if the origin cannot be reached, and so cannot grant access either. Only a
/// response that was fetched without credentials may be served then.
fn stand_in<'a>(route: &Route<&'a FoundResponse>) -> Option<&'a FoundResponse> {
    let stand_in = match *route {
        Route::Unstored(UnstoredRoute::Pass { stands_in, .. }) => stands_in,
        Route::Unstored(UnstoredRoute::PassHead { updates, stands_in, .. }) => stands_in.then_some(updates),
        Route::Unstored(UnstoredRoute::Fly { validates, stands_in, .. }) => validates.filter(|_| stands_in),
        Route::Unstored(UnstoredRoute::Refuse | UnstoredRoute::Offline)
        | Route::Stored { .. }
        | Route::Meanwhile { .. } => None,
    };
    stand_in.filter(|found| !is_protected(found))
}

/// Returns whether a stored response was fetched with credentials.
fn is_protected(found: &FoundResponse) -> bool {
    found.entry.head.freshness().checks_authorization
}

impl<S> From<&Route<S>> for LookVerdict {
    fn from(route: &Route<S>) -> Self {
        match route {
            Route::Stored { .. } => Self::Hit,
            Route::Meanwhile { .. } => Self::Stale,
            Route::Unstored(route) => Self::from(route),
        }
    }
}

impl<S> From<&UnstoredRoute<S>> for LookVerdict {
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

/// Derives the facts on which a request's route is decided from the terms of the request.
pub fn facts<'a>(cache: &'a ResponseCache, terms: RequestTerms<'a>, primary: &[u8]) -> RouteFacts<'a> {
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

impl<F: Fetcher> CacheQuery<'_, F> {
    /// Looks up the stored response for a request, and checks how much of its body is available.
    async fn see(self, key: &Arc<[u8]>) -> SeenResponse<F> {
        let Self { http, asked } = self;
        let cache = self.cache();
        let LocatedResponse { found, variants } = locate(cache, key, asked.fields()).await;
        let nothing =
            |marker, stored| SeenResponse { stored, presence: Availability::Gone, marker, lost: Forward::Miss };
        match (found, variants) {
            (None, None) => nothing(None, StoredState::Nothing),
            (None, marker) => nothing(marker, StoredState::OtherVariants),
            (Some(found), variants) => {
                let presence = presence::look(&http.fetcher, asked, &found.key, &found.entry).await;
                let judged = judged(cache, asked.terms(), found, presence.extent(), self.now());
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

/// The result of [`locate`], which looks a response up by its selecting fields, and then by language.
pub struct LocatedResponse {
    /// The stored response, if one was found.
    pub found: Option<FoundResponse>,
    /// The marker that lists the resource's variants. `None` if the selecting fields already led to a response, or if
    /// nothing is stored.
    pub variants: Option<Arc<ResourceMarker>>,
}

/// Finds the stored response for a request. If its selecting fields lead to none, looks for the variant in the language
/// that the request prefers.
pub async fn locate(cache: &ResponseCache, primary: &Arc<[u8]>, request_fields: &HeaderMap) -> LocatedResponse {
    let since = cache.shared.hot.moment();
    match lookup::find(cache, primary, request_fields).await {
        LookupResult::Nothing => LocatedResponse { found: None, variants: None },
        LookupResult::Found(found) => LocatedResponse { found: Some(found), variants: None },
        LookupResult::OtherVariants(marker) => {
            let found = lookup::find_by_language(cache, primary, &marker, request_fields, since).await;
            LocatedResponse { found, variants: Some(marker) }
        }
    }
}

/// Adds to a stored response what the caching rules decide about it at `now`. `extent` is how much of its body is
/// available.
pub fn judged<S: Borrow<FoundResponse>>(
    cache: &ResponseCache,
    terms: RequestTerms<'_>,
    response: S,
    extent: AvailableExtent,
    now: Timestamp,
) -> JudgedResponse<S> {
    let head = &response.borrow().entry.head;
    let decision = cache.judge(&terms, head, now);
    let covers_what_is_told = head.selecting().cover_what_is_told(terms.fields);
    JudgedResponse { response, decision, extent, covers_what_is_told }
}

impl<F: Fetcher> CacheQuery<'_, F> {
    /// Checks that the origin may be contacted for this request: the cache is not offline, and the request is not
    /// `only-if-cached` (RFC 9111 5.2.1.7).
    ///
    /// # Errors
    /// The origin may not be contacted.
    pub fn check_may_ask(self) -> Result<(), F::Failure> {
        let terms = self.asked.terms();
        if terms.line.is_down() {
            return Err(F::refuse(self.asked, Refusal::Offline));
        }
        let is_forbidden = terms.is_only_if_cached(&self.cache().http);
        if is_forbidden { Err(F::refuse(self.asked, Refusal::OnlyIfCached)) } else { Ok(()) }
    }

    /// Replaces a failure of the origin, or its error response, with the stale response `stale` if that may be served
    /// (RFC 9111 4.2.4).
    pub(super) fn or_stale(
        self,
        served: Result<Answer<F>, F::Failure>,
        stale: Option<&FoundResponse>,
    ) -> Result<Answer<F>, F::Failure> {
        match (served, stale) {
            (Err(failure), Some(found)) if F::is_origin_failure(&failure) => self.stale_answer(found).ok_or(failure),
            (Ok(served), Some(found)) if is_origin_error(served.response.status()) => {
                Ok(self.stale_answer(found).unwrap_or(served))
            }
            (served, _) => served,
        }
    }

    /// Answers with a stale stored response, because the origin failed. Returns `None` if the stored response cannot
    /// answer this request.
    pub(super) fn stale_answer(self, found: &FoundResponse) -> Option<Answer<F>> {
        let age = self.age_of(&found.entry.head);
        let status = CacheStatus::hit(age.ttl_secs).because(Reason::Expired);
        let wanted = self.hit(age.age_secs, status);
        let body = presence::attach(&self.http.fetcher, self.asked, &found.key, &found.entry);
        let response = AnswerResponse::Made(hit::answer(&wanted, &found.entry, body)?.response);
        Some(Answer { response, kind: AnswerKind::RefreshFailed, status, is_from_origin: true })
    }

    /// Returns the age of a stored response and its remaining lifetime, in seconds at present.
    pub(super) fn age_of(self, head: &StoredHead) -> Age {
        age_of(self.cache(), head, self.now())
    }
}

/// Returns the age of a stored response and its remaining lifetime, in seconds at `now`.
pub fn age_of(cache: &ResponseCache, head: &StoredHead, now: Timestamp) -> Age {
    let freshness = head.freshness();
    let age_millis = freshness.age_millis(now);
    let left = freshness.left_millis(now, &cache.http);
    Age { age_secs: (age_millis / 1000).unsigned_abs(), ttl_secs: left.div_euclid(1000) }
}

impl<F: Fetcher> CacheQuery<'_, F> {
    /// Answers with a stored response if it is fresh. Returns `None` if it is not, or if its body is no longer
    /// available.
    pub(super) async fn if_fresh(self, found: &FoundResponse) -> Option<Result<Answer<F>, F::Failure>> {
        let Self { http, asked } = self;
        match self.cache().judge(&asked.terms(), &found.entry.head, self.now()) {
            Reuse::Fresh { age, reason } => {
                let presence = Box::pin(presence::look(&http.fetcher, asked, &found.key, &found.entry)).await;
                match self.fresh(&UsableResponse { found, age, reason }, presence).await {
                    StoredAnswer::Served(served) => Some(Ok(served)),
                    StoredAnswer::ForOrigin => Some(self.pass_unplanned().await),
                    StoredAnswer::Lost => None,
                }
            }
            Reuse::Stale { .. } | Reuse::MustValidate { .. } | Reuse::NotUsable { .. } => None,
        }
    }

    /// Answers with a stale response, and validates it in the background (RFC 5861 3). If the stale response's body is
    /// no longer available, plans a fetch.
    fn meanwhile(self, key: &Arc<[u8]>, found: FoundResponse, stored: StoredAnswer<F>) -> CacheAnswer<F> {
        let plan = || FetchPlan::alone(key, CacheStatus::forwarded(Forward::Stale));
        let marker = found.marker.clone();
        if !matches!(stored, StoredAnswer::Lost) {
            let before = Some(found);
            self.refresh(&FetchPlan { marker: marker.clone(), before, may_serve_on_error: true, ..plan() });
        }
        match stored {
            StoredAnswer::Served(served) => CacheAnswer::Answered(Ok(served)),
            StoredAnswer::ForOrigin => self.bypass(key, CacheStatus::forwarded(Forward::Request)),
            StoredAnswer::Lost => CacheAnswer::Fetch(Box::new(FetchPlan { marker, ..plan() })),
        }
    }
}

/// A stored response that may be used, and the rule that permits it.
struct UsableResponse<'a> {
    found: &'a FoundResponse,
    age: Age,
    reason: Reason,
}

impl<F: Fetcher> CacheQuery<'_, F> {
    /// Answers with a stored response that may be used.
    async fn fresh(self, usable: &UsableResponse<'_>, presence: Availability<F>) -> StoredAnswer<F> {
        let &UsableResponse { found, age, reason } = usable;
        // Every chunk is verified before the status is sent. If a gap were found later, the response would have to
        // break off.
        let Some(ReadyAnswer { body, continued }) = presence.ready().await else { return StoredAnswer::Lost };
        let stale = matches!(reason, Reason::RequestMaxStale | Reason::StaleWhileRevalidate | Reason::Offline);
        // The body of a long response is on disk, even if its head is in memory.
        let is_in_memory = found.from_memory && matches!(found.entry.body, EntryBody::Whole(_));
        if found.from_memory {
            lookup::note_memory_hit(self.cache(), &found.key);
        }
        let hit = CacheStatus::hit(age.ttl_secs).from_tier(if is_in_memory { Tier::Memory } else { Tier::Disk });
        let status = continued.map_or(hit, reading::completed);
        let status = if stale { status.because(reason) } else { status };
        let wanted = self.hit(age.age_secs, status);
        let (response, is_conditional) = match &found.entry.body {
            EntryBody::Whole(bytes)
                if self.asked.takes_plain() && hit::is_plain(&wanted, &found.entry.head, bytes.len()) =>
            {
                (AnswerResponse::stored(&found.entry, bytes, age.age_secs), false)
            }
            _ => match hit::answer(&wanted, &found.entry, body) {
                Some(answered) => (AnswerResponse::Made(answered.response), answered.is_conditional),
                None => return StoredAnswer::ForOrigin,
            },
        };
        let kind = match (is_conditional, stale, found.from_memory) {
            // Part of the body comes from the origin, so this is not a hit.
            _ if continued.is_some() => AnswerKind::Miss,
            (true, _, _) => AnswerKind::ConditionalHit,
            (_, true, _) => AnswerKind::StaleHit,
            (_, _, true) => AnswerKind::MemoryHit,
            (_, _, false) => AnswerKind::Hit,
        };
        let is_from_origin = continued.is_some();
        StoredAnswer::Served(Answer { response, kind, status, is_from_origin })
    }
}
