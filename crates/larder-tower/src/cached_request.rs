//! One GET or HEAD: waits for the fetch of another request or asks the origin, and stores the response.
//!
//! Invariants: a request with demands of its own, such as a range or Cache-Control, neither waits nor makes others
//! wait. While an origin fails, at most [`LEADS_MAX`] of the requests that wait for a response ask it at a time.

use crate::{
    DoNotStore, HttpCache, Origin,
    body::{BodyError, CacheBody},
    entries::{EntryWrite, Lookup, StoredResponse},
    fill_writer::FillWriter,
    filled_body::{FilledBody, SharedFill},
    http_cache::ValidationMark,
    origin,
    plan::{self, AskPlan, Plan, RequestFacts},
    serving,
    shared_fetch::{DriveFill, FetchEnd, FetchLead, FetchRole},
    target::Target,
};
use http::{
    HeaderMap, HeaderName, Method, Request, Response, StatusCode,
    header::{CACHE_CONTROL, PRAGMA, RANGE},
    response,
};
use http_body::Body;
use larder_cache::Cache;
use larder_http::{
    BodyPlace, CacheStatus, Reason, ReceivedHead, Settings, Storability, StoredHead, Timestamp,
    cache_status::Forward,
    fields::{BodyLength, check_response},
    framing::BodyMeter,
    reuse::{self, Age, Reuse},
    storable::{self, Exchange},
    validate::{self, HeadVerdict},
};
use std::sync::Arc;

/// Number of fetches that may fail before the requests that wait for them divide into groups, which ask at once.
const WAITS_TOGETHER: u32 = 3;
/// Most groups. With each further failure there are twice as many, so that a thousand requests need not wait for a
/// thousand failures one after the other.
const LEADS_MAX: u64 = 8;

/// A GET or HEAD whose response may be stored.
pub(crate) struct CachedRequest<'a> {
    cache: &'a HttpCache,
    target: Target,
    method: Method,
    lookup: Lookup,
    /// Set if other requests wait for this one.
    lead: Option<FetchLead>,
}

/// A response of the origin.
struct Answer<B> {
    head: AnswerHead,
    body: B,
}

/// The head of the origin's response, and when it was requested and received.
struct AnswerHead {
    parts: response::Parts,
    request_time: Timestamp,
    response_time: Timestamp,
}

/// The answer of the cache to a request.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once, and never stored")]
pub(crate) enum CacheAnswer<'a, R> {
    Served(Response<CacheBody<R>>),
    /// The origin must be asked, see [`OriginRequest::answer`].
    Ask(CachedRequest<'a>, AskPlan),
}

impl<'a> CachedRequest<'a> {
    /// Looks a request up. If it can be answered by the fetch of another request, waits for that.
    pub(crate) async fn look_up<R>(
        cache: &'a HttpCache,
        target: Target,
        method: Method,
        may_wait: bool,
    ) -> CacheAnswer<'a, R> {
        let mut may_wait = may_wait;
        let mut failure_count = 0;
        let mut waited: Option<CacheStatus> = None;
        let mut ended_before = cache.fetches().ended_count();
        let lookup = Lookup::new(cache.cache(), cache.settings(), &target).await;
        let mut this = Self { cache, target, method, lookup, lead: None };
        loop {
            let ask = match this.plan() {
                Plan::Serve { age, status } => {
                    return CacheAnswer::Served(this.serve_stored(age, waited.map_or(status, serving::collapsed)));
                }
                Plan::Unsatisfiable => {
                    let status = CacheStatus::forwarded(Forward::Miss);
                    return CacheAnswer::Served(serving::unsatisfiable(cache.status_value(status)));
                }
                Plan::Ask(ask) => ask,
            };
            if this.lead.is_some() || !may_wait {
                return CacheAnswer::Ask(this, ask);
            }
            let key = this.lookup.fetch_key(cache.fetch_hasher(), cache.settings(), &this.target);
            match cache.fetches().join(key, groups_after(failure_count)) {
                FetchRole::Lead(lead) => {
                    this.lead = Some(lead);
                    // Otherwise the fetch of another request ended after the lookup, and may have stored the response.
                    if cache.fetches().ended_count() == ended_before {
                        return CacheAnswer::Ask(this, ask);
                    }
                }
                FetchRole::Wait(wait) => {
                    waited = Some(ask.status);
                    match wait.end(|head| head.matches(&this.target.fields, cache.settings())).await {
                        FetchEnd::Failed => failure_count += 1,
                        FetchEnd::Stored | FetchEnd::Unshared => may_wait = false,
                    }
                }
            }
            ended_before = cache.fetches().ended_count();
            this.lookup = Lookup::new(cache.cache(), cache.settings(), &this.target).await;
        }
    }

    fn plan(&self) -> Plan {
        let facts = RequestFacts {
            method: &self.method,
            fields: &self.target.fields,
            now: self.cache.now(),
            stored: self.lookup.response.as_ref().map(|response| &response.head),
            has_variants: self.lookup.has_variants(),
            is_being_validated: self.cache.validated().contains(&self.target.key),
        };
        plan::decide(&facts, self.settings())
    }

    /// Serves the stored response.
    fn serve_stored<R>(self, age: Age, status: CacheStatus) -> Response<CacheBody<R>> {
        let stored = self.lookup.response.expect("a plan to serve a stored response has one");
        let value = self.cache.status_value(status);
        serving::response((&self.method, &self.target.fields), stored, age, value)
    }

    /// Updates the stored response by a 304, and serves it (RFC 9111 4.3.4).
    async fn confirm<R>(
        self,
        stored: StoredResponse,
        answer: AnswerHead,
        status: CacheStatus,
    ) -> Response<CacheBody<R>> {
        let Self { cache, target, method, lookup, lead } = self;
        let settings = cache.settings();
        let exchange = answer.exchange(&Method::GET, &target.fields);
        let head = validate::freshen(&stored.head, &exchange, settings);
        let is_stored = match storable::decide_updated(&target.fields, &head, settings) {
            Storability::Store { .. } => {
                let write = lookup.write(cache.cache(), settings, &target, head.clone());
                store_head(write, &stored).await
            }
            Storability::Refuse { reason } => {
                if !is_about_client(reason) {
                    remove(cache.cache(), &target.key).await;
                }
                false
            }
        };
        let age = match reuse::decide(&method, &HeaderMap::new(), &head, cache.now(), settings) {
            Reuse::Fresh { age, .. } | Reuse::Stale { age, .. } | Reuse::MustValidate { age, .. } => age,
            Reuse::NotUsable { .. } => Age { age_secs: 0, ttl_secs: 0 },
        };
        if let Some(lead) = lead {
            lead.end(if is_stored { FetchEnd::Stored } else { FetchEnd::Unshared });
        }
        let value = cache.status_value(serving::answered(status, StatusCode::NOT_MODIFIED, is_stored));
        serving::response((&method, &target.fields), StoredResponse { head, body: stored.body }, age, value)
    }

    /// Passes the origin's response on, and stores it if it may be stored.
    async fn accept<R>(mut self, answer: Answer<R>, status: CacheStatus) -> Response<CacheBody<R>>
    where
        R: Body<Error: Into<BodyError>> + Send + 'static,
    {
        let Answer { head, body } = answer;
        let cache = self.cache;
        let is_head = self.method == Method::HEAD;
        let lead = self.lead.take();
        let write = match head.may_be_stored() {
            true if is_head => {
                self.accept_head(&head).await;
                None
            }
            true => self.entry_write(&head).await,
            false => None,
        };
        let value = cache.status_value(serving::answered(status, head.parts.status, write.is_some()));
        let body = match write {
            None => {
                // After an error of the server, another request may get a response that can be shared.
                if let Some(lead) = lead.filter(|_| !head.parts.status.is_server_error()) {
                    lead.end(FetchEnd::Unshared);
                }
                CacheBody::passed(body)
            }
            Some(write) => {
                let meter = meter_of(&head.parts, &body);
                filled((body, meter), write, lead).await
            }
        };
        serving::with_cache_fields(Response::from_parts(head.parts, body), None, value)
    }

    /// Returns the entry in which the origin's response is to be stored. A response that may not be stored removes the
    /// one that it replaces.
    async fn entry_write(self, answer: &AnswerHead) -> Option<EntryWrite> {
        let settings = self.settings();
        let exchange = answer.exchange(&self.method, &self.target.fields);
        match storable::decide(&exchange, settings) {
            Storability::Store { rule, .. } => {
                let selecting = rule.select(&self.target.fields, settings)?;
                let received = ReceivedHead {
                    status: exchange.status,
                    fields: exchange.response_fields.clone(),
                    request_time: exchange.request_time,
                    response_time: exchange.response_time,
                };
                let head = StoredHead::new(received, BodyPlace::Whole { len: 0 }, selecting, &settings.targets);
                self.lookup.write(self.cache.cache(), settings, &self.target, head)
            }
            Storability::Refuse { reason } => {
                let is_whole = exchange.status.is_success() && exchange.status != StatusCode::PARTIAL_CONTENT;
                if is_whole && self.lookup.response.is_some() && !is_about_client(reason) {
                    remove(self.cache.cache(), &self.target.key).await;
                }
                None
            }
        }
    }

    /// Updates or removes the stored response by a response to HEAD (RFC 9111 4.3.5).
    async fn accept_head(mut self, answer: &AnswerHead) {
        let Some(stored) = self.lookup.response.take() else { return };
        let cache = self.cache.cache();
        let settings = self.cache.settings();
        let exchange = answer.exchange(&Method::HEAD, &self.target.fields);
        match validate::judge_head(&stored.head, &exchange, settings) {
            HeadVerdict::Holds(head) => {
                let write = self.lookup.write(cache, settings, &self.target, *head);
                store_head(write, &stored).await;
            }
            HeadVerdict::Changed => remove(cache, &self.target.key).await,
            HeadVerdict::Silent => {}
        }
    }

    fn settings(&self) -> &'a Settings {
        self.cache.settings()
    }
}

/// A request, and the origin that can answer it.
pub(crate) struct OriginRequest<'o, B, O> {
    pub(crate) request: Request<B>,
    pub(crate) origin: &'o mut O,
}

impl<B: Default + Send, O: Origin<B>> OriginRequest<'_, B, O> {
    /// Sends the request to the origin, and answers by its response or a stored one.
    ///
    /// # Errors
    /// The error of the origin, if no stored response may replace it.
    pub(crate) async fn answer(
        self,
        mut cached: CachedRequest<'_>,
        ask: AskPlan,
    ) -> Result<Response<CacheBody<O::Body>>, O::Error> {
        let Self { request, origin } = self;
        let (mut head, body) = request.into_parts();
        let unconditional = ask.validates.then(|| head.clone());
        if let Some(stored) = cached.lookup.response.as_ref().filter(|_| ask.validates) {
            head.headers.extend(validate::request_fields(&stored.head));
        }
        let mark = ask.validates.then(|| ValidationMark::new(cached.cache, &cached.target.key));
        let sent = OriginRequest { request: Request::from_parts(head, body), origin: &mut *origin };
        let answer = sent.send(cached.cache).await;
        let replaces = |status: StatusCode| matches!(status.as_u16(), 500 | 502 | 503 | 504);
        let answer = match (answer, ask.fallback) {
            (Ok(answer), Some(age)) if replaces(answer.head.parts.status) => {
                let status = serving::answered(ask.status, answer.head.parts.status, false);
                return Ok(cached.serve_stored(age, status));
            }
            (Ok(answer), _) => answer,
            (Err(_), Some(age)) => return Ok(cached.serve_stored(age, ask.status)),
            (Err(error), None) => return Err(error),
        };
        let Some(unconditional) = unconditional.filter(|_| answer.head.parts.status == StatusCode::NOT_MODIFIED) else {
            return Ok(cached.accept(answer, ask.status).await);
        };
        let stored = cached.lookup.response.take().expect("only a stored response is validated");
        if answer.head.may_be_stored() && validate::selects(&answer.head.parts.headers, &stored.head) {
            return Ok(cached.confirm(stored, answer.head, ask.status).await);
        }
        drop((stored, mark));
        // The 304 does not fit the stored response, so the whole response is fetched (RFC 9111 4.3.3).
        let again = OriginRequest { request: Request::from_parts(unconditional, B::default()), origin };
        let answer = again.send(cached.cache).await?;
        Ok(cached.accept(answer, ask.status).await)
    }

    async fn send(self, cache: &HttpCache) -> Result<Answer<O::Body>, O::Error> {
        let request_time = cache.now();
        let (parts, body) = origin::ask(self.origin, self.request).await?.into_parts();
        Ok(Answer { head: AnswerHead { parts, request_time, response_time: cache.now() }, body })
    }
}

impl AnswerHead {
    /// Returns whether the response is that of the requested resource.
    fn may_be_stored(&self) -> bool {
        self.parts.extensions.get::<DoNotStore>().is_none()
    }

    fn exchange<'a>(&'a self, method: &'a Method, request_fields: &'a HeaderMap) -> Exchange<'a> {
        Exchange {
            method,
            request_fields,
            status: self.parts.status,
            response_fields: &self.parts.headers,
            request_time: self.request_time,
            response_time: self.response_time,
        }
    }
}

/// Returns whether a response is not stored only because of what its client sent, which says nothing about the stored
/// one.
fn is_about_client(reason: Reason) -> bool {
    matches!(reason, Reason::RequestNoStore | Reason::Authorization)
}

/// Returns the number of groups of waiting requests, of which one asks each, after this number of failed fetches.
fn groups_after(failure_count: u32) -> u64 {
    1_u64.checked_shl(failure_count.saturating_sub(WAITS_TOGETHER)).unwrap_or(LEADS_MAX).min(LEADS_MAX)
}

/// Returns whether a request may wait for another request's fetch: it must make no demands that the other one does not.
pub(crate) fn may_wait(method: &Method, fields: &HeaderMap) -> bool {
    let is_demand =
        |name: &HeaderName| [CACHE_CONTROL, PRAGMA, RANGE].contains(name) || name.as_str().starts_with("if-");
    *method == Method::GET && !fields.keys().any(is_demand)
}

/// Returns the meter of a response's body. Its length is the one that the response states, or that of the body.
fn meter_of(head: &response::Parts, body: &impl Body) -> BodyMeter {
    let stated = match check_response(&head.headers, head.version) {
        Ok(BodyLength::Length(len)) => Some(len),
        _ => body.size_hint().exact(),
    };
    BodyMeter::of_message(head.version, &head.headers, stated)
}

/// Returns a body that is stored in `write` while it passes through.
async fn filled<R>((body, meter): (R, BodyMeter), write: EntryWrite, lead: Option<FetchLead>) -> CacheBody<R>
where
    R: Body<Error: Into<BodyError>> + Send + 'static,
{
    // Nobody reads a body that has ended already.
    if body.is_end_stream() {
        if let Ok(completed) = meter.end_reported(true) {
            FillWriter::new(write).finish(completed).await;
            lead.into_iter().for_each(|lead| lead.end(FetchEnd::Stored));
        }
        return CacheBody::passed(body);
    }
    let head = write.head().clone();
    let fill = Arc::new(SharedFill::new(body, meter, FillWriter::new(write)));
    let shared = lead.and_then(|lead| lead.begin_filling(head, Arc::clone(&fill) as Arc<dyn DriveFill>));
    CacheBody::filled(FilledBody::new(fill, shared))
}

/// Stores an updated head with the body of the stored response. Returns whether it was stored.
async fn store_head(write: Option<EntryWrite>, stored: &StoredResponse) -> bool {
    let Some(write) = write else { return false };
    match write.finish_with(&stored.body).await {
        Ok(is_stored) => is_stored,
        Err(error) => {
            tracing::debug!(%error, "an updated response could not be stored");
            false
        }
    }
}

async fn remove(cache: &Cache, key: &[u8]) {
    if let Err(error) = cache.remove(key).await {
        tracing::debug!(%error, "a response could not be removed");
    }
}
