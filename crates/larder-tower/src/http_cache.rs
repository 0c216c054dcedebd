//! The HTTP cache: looks a request up, asks the origin where it must, and stores responses.
//!
//! Invariant: a failure of the cache below never becomes an error. The request then goes to the origin.

use crate::{
    HttpCacheBuilder, Origin,
    body::CacheBody,
    cached_request::{self, CacheAnswer, CachedRequest, OriginRequest},
    origin, serving,
    shared_fetch::SharedFetches,
    target::{Target, key_of},
};
use http::{Method, Request, Response, Uri};
use larder_cache::Cache;
use larder_cache::IgnorePoison;
use larder_http::{
    CacheStatus, Settings, Timestamp,
    cache_status::Forward,
    fields::strip_own,
    invalidate::{self, MoveDestination},
};
use std::{
    collections::HashSet,
    fmt,
    hash::RandomState,
    sync::{Arc, Mutex, MutexGuard},
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
    fetches: Arc<SharedFetches>,
    fetch_hasher: RandomState,
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
        let validated = Mutex::default();
        let fetches = Arc::default();
        let fetch_hasher = RandomState::new();
        Self { parts: Arc::new(HttpCacheParts { options, validated, fetches, fetch_hasher }) }
    }

    /// Returns the cache below.
    pub fn cache(&self) -> &Cache {
        &self.parts.options.cache
    }

    /// Returns the response to a request: a stored one, or that of `origin`.
    ///
    /// The response has the field Cache-Status, which says what the cache did. A response is stored while its body is
    /// read, and becomes visible just before the end of the body. Other requests for a response that is being fetched
    /// wait for that moment, but at most 5 seconds for a body without an announced length. If the first client is slow,
    /// they read the body on. If the fetch fails, one of them fetches.
    ///
    /// # Errors
    /// The error of `origin`, if no stored response may replace it.
    pub async fn respond<B, O>(
        &self,
        mut request: Request<B>,
        origin: &mut O,
    ) -> Result<Response<CacheBody<O::Body>>, O::Error>
    where
        B: Default + Send,
        O: Origin<B>,
    {
        strip_own(request.headers_mut());
        let options = &self.parts.options;
        let method = request.method().clone();
        let target = Target::new(&request, &options.scheme, &options.implied_fields);
        match target {
            Some(target) if method == Method::GET || method == Method::HEAD => {
                let may_wait = cached_request::may_wait(&method, request.headers());
                match CachedRequest::look_up(self, target, method, may_wait).await {
                    CacheAnswer::Served(response) => Ok(response),
                    CacheAnswer::Ask(cached, ask) => OriginRequest { request, origin }.answer(cached, ask).await,
                }
            }
            target => {
                let moved = target.as_ref().and_then(|to| MoveDestination::of(&method, &to.uri, request.headers()));
                let response = origin::ask(origin, request).await?;
                if let Some(target) = target {
                    let mut uris = invalidate::targets(&method, &target.uri, response.status(), response.headers());
                    uris.extend(
                        moved.filter(|_| MoveDestination::is_written(response.status())).map(|moved| moved.uri),
                    );
                    self.invalidate(uris).await;
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

    pub(crate) fn status_value(&self, status: CacheStatus) -> http::HeaderValue {
        status.to_value(&self.parts.options.name)
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.parts.options.settings
    }

    pub(crate) fn fetches(&self) -> &Arc<SharedFetches> {
        &self.parts.fetches
    }

    /// Returns the hasher of the keys of [`Self::fetches`].
    pub(crate) fn fetch_hasher(&self) -> &RandomState {
        &self.parts.fetch_hasher
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.parts.options.time)()
    }

    pub(crate) fn validated(&self) -> MutexGuard<'_, HashSet<Vec<u8>>> {
        self.parts.validated.lock().ignore_poison()
    }
}

/// Marks a resource as being validated, until it is dropped.
pub(crate) struct ValidationMark<'a> {
    cache: &'a HttpCache,
    key: Vec<u8>,
}

impl<'a> ValidationMark<'a> {
    pub(crate) fn new(cache: &'a HttpCache, key: &[u8]) -> Self {
        cache.validated().insert(key.to_vec());
        Self { cache, key: key.to_vec() }
    }
}

impl Drop for ValidationMark<'_> {
    fn drop(&mut self) {
        self.cache.validated().remove(&self.key);
    }
}

impl fmt::Debug for HttpCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpCache").field("options", &self.parts.options).finish_non_exhaustive()
    }
}
