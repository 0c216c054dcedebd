//! The HTTP cache: looks a request up, asks the origin where it must, and stores responses.
//!
//! Invariant: a failure of the cache below never becomes an error. The request then goes to the origin.

use crate::{
    DoNotStore, HttpCacheBuilder, Origin,
    body::{BodyError, CacheBody},
    entries::{EntryWrite, Lookup, StoredResponse},
    fill_writer::FillWriter,
    plan::{self, AskPlan, Plan, RequestFacts},
    serving,
    target::{Target, key_of},
};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, request, response};
use http_body::Body;
use larder_cache::Cache;
use larder_http::{
    BodyPlace, CacheStatus, ReceivedHead, Settings, Storability, StoredHead, Timestamp,
    cache_status::Forward,
    invalidate,
    reuse::Reuse,
    storable::{self, Exchange},
    validate::{self, HeadVerdict},
};
use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// An HTTP cache. Cheap to clone; all clones are one cache.
#[derive(Clone)]
pub struct HttpCache {
    parts: Arc<HttpCacheParts>,
}

struct HttpCacheParts {
    options: HttpCacheBuilder,
    /// The keys of the resources that are being validated.
    validated: Mutex<HashSet<Vec<u8>>>,
}

/// A GET or HEAD whose response may be stored.
struct CachedRequest<'a> {
    cache: &'a HttpCache,
    target: Target,
    method: Method,
    lookup: Lookup,
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

impl HttpCache {
    /// Creates a private cache: for the responses that one user's client receives.
    ///
    /// Responses to requests with credentials are stored, and are served only to requests with the same credentials.
    /// `cache` must not be used for anything else.
    pub fn private(cache: Cache) -> Self {
        Self::builder(cache).settings(Settings::private()).build()
    }

    /// Creates a shared cache: for the responses that a server sends to all its clients, or a proxy receives for them.
    ///
    /// Responses that are for one client are not stored. `cache` must not be used for anything else.
    pub fn shared(cache: Cache) -> Self {
        Self::builder(cache).build()
    }

    /// Returns a builder, to change the settings.
    pub fn builder(cache: Cache) -> HttpCacheBuilder {
        HttpCacheBuilder::new(cache)
    }

    pub(crate) fn from_builder(options: HttpCacheBuilder) -> Self {
        Self { parts: Arc::new(HttpCacheParts { options, validated: Mutex::default() }) }
    }

    /// Returns the cache below.
    pub fn cache(&self) -> &Cache {
        &self.parts.options.cache
    }

    /// Returns the response to a request: a stored one, or that of `origin`.
    ///
    /// The response has the field Cache-Status, which says what the cache did. A response is stored while its body is
    /// read, and becomes visible just before the end of the body.
    ///
    /// # Errors
    /// The error of `origin`, if no stored response may replace it.
    pub async fn respond<B, O>(
        &self,
        request: Request<B>,
        origin: &mut O,
    ) -> Result<Response<CacheBody<O::Body>>, O::Error>
    where
        B: Default + Send,
        O: Origin<B>,
    {
        let options = &self.parts.options;
        let method = request.method().clone();
        let target = Target::new(&request, &options.scheme, &options.implied_fields);
        match target {
            Some(target) if method == Method::GET || method == Method::HEAD => {
                let lookup = Lookup::new(&options.cache, &options.settings, &target).await;
                CachedRequest { cache: self, target, method, lookup }.respond(request, origin).await
            }
            target => {
                let response = origin.send(request).await?;
                if let Some(target) = target {
                    self.invalidate(invalidate::targets(&method, &target.uri, response.status(), response.headers()))
                        .await;
                }
                let why = if invalidate::is_safe(&method) { Forward::Bypass } else { Forward::Method };
                let status = serving::answered(CacheStatus::forwarded(why), response.status(), false);
                Ok(serving::with_cache_fields(response.map(CacheBody::passed), None, self.status_value(status)))
            }
        }
    }

    /// Removes the stored responses of a URI, with all variants. Once this returns, no request gets one of them, or one
    /// whose fetch began earlier.
    ///
    /// # Errors
    /// As [`Cache::remove`].
    pub async fn remove(&self, uri: &Uri) -> larder_cache::Result<()> {
        match key_of(uri) {
            Some(key) => self.cache().remove(key).await,
            None => Ok(()),
        }
    }

    /// Removes what an unsafe request changed (RFC 9111 4.4).
    async fn invalidate(&self, changed: Vec<Uri>) {
        for uri in changed {
            if let Err(error) = self.remove(&uri).await {
                tracing::warn!(%error, %uri, "a response that was changed could not be removed");
            }
        }
    }

    fn status_value(&self, status: CacheStatus) -> http::HeaderValue {
        status.to_value(&self.parts.options.name)
    }

    fn now(&self) -> Timestamp {
        (self.parts.options.time)()
    }

    fn validated(&self) -> MutexGuard<'_, HashSet<Vec<u8>>> {
        self.parts.validated.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks a resource as being validated, until it is dropped.
struct ValidationMark<'a> {
    cache: &'a HttpCache,
    key: Vec<u8>,
}

impl<'a> ValidationMark<'a> {
    fn new(cache: &'a HttpCache, key: &[u8]) -> Self {
        cache.validated().insert(key.to_vec());
        Self { cache, key: key.to_vec() }
    }
}

impl Drop for ValidationMark<'_> {
    fn drop(&mut self) {
        self.cache.validated().remove(&self.key);
    }
}

impl<'a> CachedRequest<'a> {
    async fn respond<B, O>(self, request: Request<B>, origin: &mut O) -> Result<Response<CacheBody<O::Body>>, O::Error>
    where
        B: Default + Send,
        O: Origin<B>,
    {
        let facts = RequestFacts {
            method: &self.method,
            fields: &self.target.fields,
            now: self.cache.now(),
            stored: self.lookup.response.as_ref().map(|response| &response.head),
            has_variants: self.lookup.has_variants(),
            is_being_validated: self.cache.validated().contains(&self.target.key),
        };
        match plan::decide(&facts, self.settings()) {
            Plan::Serve { age, status } => {
                let stored = self.lookup.response.expect("a plan to serve has a response");
                let value = self.cache.status_value(status);
                Ok(serving::response((&self.method, &self.target.fields), stored, age, value))
            }
            Plan::Unsatisfiable => {
                let status = CacheStatus::forwarded(Forward::Miss);
                Ok(serving::unsatisfiable(self.cache.status_value(status)))
            }
            Plan::Ask(ask) => self.ask(ask, request, origin).await,
        }
    }

    /// Sends the request to the origin.
    async fn ask<B, O>(
        mut self,
        ask: AskPlan,
        request: Request<B>,
        origin: &mut O,
    ) -> Result<Response<CacheBody<O::Body>>, O::Error>
    where
        B: Default + Send,
        O: Origin<B>,
    {
        let (mut head, body) = request.into_parts();
        let unconditional = ask.validates.then(|| head.clone());
        if let Some(stored) = self.lookup.response.as_ref().filter(|_| ask.validates) {
            head.headers.extend(validate::request_fields(&stored.head));
        }
        let mark = ask.validates.then(|| ValidationMark::new(self.cache, &self.target.key));
        let answer = send(self.cache, Request::from_parts(head, body), origin).await;
        let replaces = |status: StatusCode| matches!(status.as_u16(), 500 | 502 | 503 | 504);
        let answer = match (answer, ask.fallback) {
            (Ok(answer), Some(age)) if replaces(answer.head.parts.status) => {
                let status = serving::answered(ask.status, answer.head.parts.status, false);
                return Ok(self.serve_stored(age, status));
            }
            (Ok(answer), _) => answer,
            (Err(_), Some(age)) => return Ok(self.serve_stored(age, ask.status)),
            (Err(error), None) => return Err(error),
        };
        let Some(unconditional) = unconditional.filter(|_| answer.head.parts.status == StatusCode::NOT_MODIFIED) else {
            return Ok(self.accept(answer, ask.status).await);
        };
        let stored = self.lookup.response.take().expect("only a stored response is validated");
        if answer.head.may_be_stored() && validate::selects(&answer.head.parts.headers, &stored.head) {
            return Ok(self.confirm(stored, answer.head, ask.status).await);
        }
        drop((stored, mark));
        self.fetch_again(unconditional, ask.status, origin).await
    }

    /// Fetches the response after a 304 that does not fit the stored one (RFC 9111 4.3.3).
    async fn fetch_again<B, O>(
        self,
        head: request::Parts,
        status: CacheStatus,
        origin: &mut O,
    ) -> Result<Response<CacheBody<O::Body>>, O::Error>
    where
        B: Default + Send,
        O: Origin<B>,
    {
        let answer = send(self.cache, Request::from_parts(head, B::default()), origin).await?;
        Ok(self.accept(answer, status).await)
    }

    /// Serves the stored response in place of an error.
    fn serve_stored<R>(self, age: larder_http::reuse::Age, status: CacheStatus) -> Response<CacheBody<R>> {
        let stored = self.lookup.response.expect("only a stored response replaces an error");
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
        let Self { cache, target, method, lookup } = self;
        let settings = &cache.parts.options.settings;
        let exchange = answer.exchange(&Method::GET, &target.fields);
        let head = validate::freshen(&stored.head, &exchange, settings);
        let is_stored = match storable::decide_updated(&target.fields, &head, settings) {
            Storability::Store { .. } => {
                let write = lookup.write(cache.cache(), settings, &target, head.clone());
                store_head(write, &stored).await
            }
            Storability::Refuse { .. } => {
                remove(cache.cache(), &target.key).await;
                false
            }
        };
        let age = match larder_http::reuse::decide(&method, &HeaderMap::new(), &head, cache.now(), settings) {
            Reuse::Fresh { age, .. } | Reuse::Stale { age, .. } | Reuse::MustValidate { age, .. } => age,
            Reuse::NotUsable { .. } => larder_http::reuse::Age { age_secs: 0, ttl_secs: 0 },
        };
        let value = cache.status_value(serving::answered(status, StatusCode::NOT_MODIFIED, is_stored));
        serving::response((&method, &target.fields), StoredResponse { head, body: stored.body }, age, value)
    }

    /// Passes the origin's response on, and stores it if it may be stored.
    async fn accept<R>(self, answer: Answer<R>, status: CacheStatus) -> Response<CacheBody<R>>
    where
        R: Body<Error: Into<BodyError>> + Send,
    {
        let Answer { head, body } = answer;
        let (cache, is_head) = (self.cache, self.method == Method::HEAD);
        let write = match head.may_be_stored() {
            true if is_head => {
                self.accept_head(&head).await;
                None
            }
            true => self.entry_write(&head).await,
            false => None,
        };
        let value = cache.status_value(serving::answered(status, head.parts.status, write.is_some()));
        let body = match write.map(FillWriter::new) {
            None => CacheBody::passed(body),
            // Nobody reads a body that has ended already.
            Some(filling) if body.is_end_stream() => {
                filling.finish().await;
                CacheBody::passed(body)
            }
            Some(filling) => CacheBody::filled(body, filling),
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
            Storability::Refuse { .. } => {
                let is_whole = exchange.status.is_success() && exchange.status != StatusCode::PARTIAL_CONTENT;
                if is_whole && self.lookup.response.is_some() {
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
        let settings = &self.cache.parts.options.settings;
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
        &self.cache.parts.options.settings
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

async fn send<B, O>(cache: &HttpCache, request: Request<B>, origin: &mut O) -> Result<Answer<O::Body>, O::Error>
where
    B: Send,
    O: Origin<B>,
{
    let request_time = cache.now();
    let (parts, body) = origin.send(request).await?.into_parts();
    Ok(Answer { head: AnswerHead { parts, request_time, response_time: cache.now() }, body })
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

impl fmt::Debug for HttpCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpCache").field("options", &self.parts.options).finish_non_exhaustive()
    }
}
