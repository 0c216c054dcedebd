//! The HTTP cache: looks a request up, asks the origin where it must, and stores responses.
//!
//! Invariant: a failure of the cache below never becomes an error. The request then goes to the origin.

use crate::{
    HttpCacheBuilder, Origin,
    asked::{AskFailure, AskedResource, OriginAsk},
    body::CacheBody,
    fetcher::OriginFetcher,
    origin::{self, OriginSender},
    origin_body::OriginBody,
    target::{Target, key_of},
};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header::CONTENT_LENGTH};
use http_body::Body;
use larder_cache::{
    Cache, Error,
    http::{
        answer::{Answer, CacheQuery, marks::ResponseMarks, pass::with_origin_status},
        fetcher::ClientRequest as _,
        http_cache,
        invalidation::{self, NotInvalid},
    },
    larder_store::ErrorKind,
};
use larder_http::{
    CacheStatus, Settings,
    cache_status::Forward,
    fields::strip_own,
    invalidate::{self, MoveDestination},
};
use std::{fmt, future::poll_fn, io, sync::Arc, task::Poll};
use tokio::sync::mpsc::UnboundedReceiver;

/// An HTTP cache, which stores responses and decides by RFC 9111 when to serve them. All clones are the same cache.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use larder_cache::Cache;
/// use larder_tower::{CacheLayer, HttpCache};
///
/// let cache = Cache::builder("/var/cache/example").disk("10GB").memory("256MB").open()?;
/// let responses = HttpCache::shared(cache);
/// let layer = CacheLayer::new(responses.clone());
/// // Later, when the page has changed:
/// responses.remove(&"http://example.com/page".parse()?).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HttpCache {
    parts: Arc<HttpCacheParts>,
}

struct HttpCacheParts {
    options: HttpCacheBuilder,
    responses: Arc<http_cache::HttpCache<OriginFetcher>>,
}

/// The next event while a request is being answered.
enum AnsweringStep {
    Answer(Result<Answer<OriginFetcher>, AskFailure>),
    /// The cache wants the origin to be contacted. `None` if it will not contact the origin again.
    Ask(Option<OriginAsk>),
}

impl HttpCache {
    /// Creates a private cache, for the responses that one user's client receives.
    ///
    /// It stores responses to requests with credentials, and serves them only to requests with the same credentials.
    /// `cache` must not be used for anything else.
    pub fn private(cache: Cache) -> Self {
        Self::builder(cache).settings(Settings::private()).build()
    }

    /// Creates a shared cache, for the responses that a server sends to all its clients or a proxy receives for them.
    ///
    /// It does not store responses that are meant for one client. `cache` must not be used for anything else.
    pub fn shared(cache: Cache) -> Self {
        Self::builder(cache).build()
    }

    /// Returns a builder, which creates a cache with other settings than [`HttpCache::shared`].
    pub fn builder(cache: Cache) -> HttpCacheBuilder {
        HttpCacheBuilder::new(cache)
    }

    pub(crate) fn from_builder(options: HttpCacheBuilder) -> Self {
        let cache = options.cache.clone();
        let marks = ResponseMarks { via: None, add_cache_status: true, cache_name: options.name.clone() };
        let entry_bytes_max = cache.value_bytes_max();
        let responses = cache.responses(options.settings.clone());
        let time = Arc::clone(&options.time);
        let fetcher = OriginFetcher { cache, responses, bodies: Default::default(), marks, time };
        let responses = http_cache::HttpCache { flights: Arc::default(), fetcher: Arc::new(fetcher), entry_bytes_max };
        Self { parts: Arc::new(HttpCacheParts { options, responses: Arc::new(responses) }) }
    }

    /// Returns the [`Cache`] in which responses are stored.
    pub fn cache(&self) -> &Cache {
        &self.parts.options.cache
    }

    /// Returns the response to a request, from the cache or from `origin`. It must run on a tokio runtime with its time
    /// driver.
    ///
    /// The response has a Cache-Status field, which says what the cache did (RFC 9211). If several requests for the
    /// same response arrive at once, the origin receives one of them, and all read the response as it arrives. A task
    /// of the cache receives and stores it, so a slow client delays nobody. If the fetch fails, or its client leaves
    /// before the head of the response has arrived, one of the other requests contacts its origin.
    ///
    /// # Errors
    /// Returns the error of `origin`, if no stored response may be used in its place.
    pub async fn respond<B, O>(&self, mut request: Request<B>, origin: &mut O) -> Result<Response<CacheBody>, O::Error>
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
                let (asked, asks) = AskedResource::new(method, target);
                let sender = OriginSender::new(request, origin);
                self.answer(&Arc::new(asked), asks, sender).await
            }
            target => {
                let moved = target.as_ref().and_then(|to| MoveDestination::of(&method, &to.uri, request.headers()));
                let (head, body) = origin::ask(origin, request).await?.into_parts();
                if let Some(target) = target {
                    let mut uris = invalidate::targets(&method, &target.uri, head.status, &head.headers);
                    uris.extend(moved.filter(|_| MoveDestination::is_written(head.status)).map(|moved| moved.uri));
                    self.invalidate(uris).await;
                }
                let why = if invalidate::is_safe(&method) { Forward::Bypass } else { Forward::Method };
                let status = with_origin_status(CacheStatus::forwarded(why), head.status);
                let body = CacheBody::passed(OriginBody::new(&head, body));
                let mut response = Response::from_parts(head, body);
                self.put_status(&mut response, status);
                Ok(response)
            }
        }
    }

    /// Answers a GET or HEAD request, and sends the requests to the origin that the cache orders.
    async fn answer<B, O>(
        &self,
        asked: &Arc<AskedResource>,
        mut asks: UnboundedReceiver<OriginAsk>,
        mut sender: OriginSender<'_, B, O>,
    ) -> Result<Response<CacheBody>, O::Error>
    where
        B: Default + Send,
        O: Origin<B>,
    {
        loop {
            let mut failure = None;
            let mut answering = Box::pin(CacheQuery { http: &self.parts.responses, asked }.answer());
            let answer = loop {
                let next = poll_fn(|context| match answering.as_mut().poll(context) {
                    Poll::Ready(answer) => Poll::Ready(AnsweringStep::Answer(answer)),
                    // The channel stays open as long as `asked` exists.
                    Poll::Pending => asks.poll_recv(context).map(AnsweringStep::Ask),
                });
                match next.await {
                    AnsweringStep::Answer(answer) => break answer,
                    AnsweringStep::Ask(None) => {}
                    AnsweringStep::Ask(Some(OriginAsk { edits, reply })) => {
                        let replied = sender.send(&edits).await.map_err(|error| {
                            failure = Some(error);
                            AskFailure::NoResponse
                        });
                        // If sending the reply fails, the fetch has ended and nobody needs it.
                        drop(reply.send(replied));
                    }
                }
            };
            match (answer, failure) {
                (Ok(answer), _) => return Ok(self.response_of(answer, asked)),
                (Err(AskFailure::OnlyIfCached), _) => return Ok(self.unsatisfiable()),
                (Err(AskFailure::NoResponse | AskFailure::Abandoned), Some(error)) => return Err(error),
                // The fetch of another request has ended without a response, so this request tries again. Each such
                // round ends one request, so the loop ends.
                (Err(AskFailure::NoResponse | AskFailure::Abandoned), None) => {}
            }
        }
    }

    /// Turns the cache's answer into a response, with Content-Length if the body's length is known.
    fn response_of(&self, answer: Answer<OriginFetcher>, asked: &AskedResource) -> Response<CacheBody> {
        let marks = &self.parts.responses.fetcher.marks;
        let mut response = answer.response.made(marks, answer.status).map(CacheBody::from);
        let has_body = *asked.method() != Method::HEAD
            && !matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if let Some(len) = response.body().size_hint().exact().filter(|_| has_body) {
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(len));
        }
        response
    }

    /// Returns the 504 for a request that accepts only a stored response (RFC 9111 5.2.1.7).
    fn unsatisfiable(&self) -> Response<CacheBody> {
        let mut response = Response::new(CacheBody::empty());
        *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
        self.put_status(&mut response, CacheStatus::forwarded(Forward::Miss));
        response
    }

    fn put_status(&self, response: &mut Response<CacheBody>, status: CacheStatus) {
        response.headers_mut().append(CACHE_STATUS, status.to_value(&self.parts.options.name));
    }

    /// Removes the stored responses for a URI, in all variants.
    ///
    /// When this returns, no request gets one of the removed responses, nor one whose fetch began before the call.
    ///
    /// # Errors
    /// Returns the same errors as [`Cache::remove`].
    pub async fn remove(&self, uri: &Uri) -> larder_cache::Result<()> {
        let Some(key) = key_of(uri) else { return Ok(()) };
        let removed = invalidation::remove_resources(&self.parts.responses.fetcher.responses, &[key]).await;
        removed.map_err(|problem| {
            let why = match problem {
                NotInvalid::NotDurable(why) | NotInvalid::NotShared(why) => why,
                NotInvalid::NoUrl => "it has no URL".to_owned(),
            };
            let place = format!("the removal of {uri} could not be written");
            Error::Store(larder_cache::larder_store::Error::io(ErrorKind::Unavailable, place, io::Error::other(why)))
        })
    }

    /// Removes the stored responses for URIs that an unsafe request, such as a POST, may have changed (RFC 9111 4.4).
    async fn invalidate(&self, changed: Vec<Uri>) {
        for uri in changed {
            if let Err(error) = self.remove(&uri).await {
                tracing::warn!(%error, %uri, "a response that was changed could not be removed");
            }
        }
    }
}

impl fmt::Debug for HttpCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpCache").field("options", &self.parts.options).finish_non_exhaustive()
    }
}

/// The name of the field that says what caches did (RFC 9211).
const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
