//! The cache as a layer over any service that answers HTTP requests.

use crate::{HttpCache, Origin, body::CacheBody, origin_body::BodyError};
use http::{Request, Response};
use http_body::Body;
use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
};
use tower_layer::Layer;
use tower_service::Service;

/// Puts an [`HttpCache`] in front of a tower service.
///
/// The service may be a server (axum, hyper) or a client. A server's requests name no host in their URI, so the cache
/// distinguishes its sites by the Host field.
///
/// ```
/// use larder_cache::Cache;
/// use larder_tower::{CacheLayer, CacheService, HttpCache};
/// use tower_layer::Layer;
///
/// fn cached<S>(service: S, cache: Cache) -> CacheService<S> {
///     CacheLayer::new(HttpCache::shared(cache)).layer(service)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct CacheLayer {
    cache: HttpCache,
}

/// A service with an [`HttpCache`] in front of it, as [`CacheLayer`] creates it.
///
/// ```
/// # use bytes::Bytes;
/// # use std::{convert::Infallible, future::{Ready, ready}, task::{Context, Poll}};
/// # use std::sync::atomic::{AtomicU32, Ordering};
/// use http::{Request, Response};
/// use http_body_util::{BodyExt, Full};
/// use larder_tower::{CacheLayer, CacheService, HttpCache};
/// use tower_layer::Layer;
/// use tower_service::Service;
///
/// # static CALLS: AtomicU32 = AtomicU32::new(0);
/// # #[derive(Clone)]
/// # struct Pages;
/// # impl Service<Request<Full<Bytes>>> for Pages {
/// #     type Response = Response<Full<Bytes>>;
/// #     type Error = Infallible;
/// #     type Future = Ready<Result<Response<Full<Bytes>>, Infallible>>;
/// #     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
/// #         Poll::Ready(Ok(()))
/// #     }
/// #     fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
/// #         CALLS.fetch_add(1, Ordering::Relaxed);
/// #         let response = Response::builder().header("cache-control", "max-age=60");
/// #         ready(Ok(response.body("hello".into()).expect("the field is valid")))
/// #     }
/// # }
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let cache = larder_cache::Cache::builder(directory.path()).disk("32MB").open().expect("a cache");
/// # tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
/// // `Pages` counts its calls.
/// let mut service: CacheService<Pages> = CacheLayer::new(HttpCache::shared(cache)).layer(Pages);
/// for _ in 0..2 {
///     let request = Request::get("http://example.com/").body(Full::default()).expect("a request");
///     let response = service.call(request).await.expect("a response");
///     assert_eq!(response.into_body().collect().await.expect("the whole body").to_bytes(), "hello");
/// }
/// assert_eq!(CALLS.load(Ordering::Relaxed), 1);
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct CacheService<S> {
    inner: S,
    cache: HttpCache,
}

impl CacheLayer {
    /// Creates a layer. Its services share the cache.
    pub fn new(cache: HttpCache) -> Self {
        Self { cache }
    }
}

impl<S> Layer<S> for CacheLayer {
    type Service = CacheService<S>;

    fn layer(&self, inner: S) -> CacheService<S> {
        CacheService { inner, cache: self.cache.clone() }
    }
}

impl<S, B, R> Service<Request<B>> for CacheService<S>
where
    S: Service<Request<B>, Response = Response<R>, Future: Send, Error: Send> + Clone + Send + 'static,
    B: Default + Send + 'static,
    R: Body<Error: Into<BodyError>> + Send + 'static,
{
    type Response = Response<CacheBody>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clone may not be ready. `self.inner` is, so it goes into the future, and the clone takes its place.
        let clone = self.inner.clone();
        let service = std::mem::replace(&mut self.inner, clone);
        let cache = self.cache.clone();
        Box::pin(async move { cache.respond(request, &mut ServiceOrigin { service }).await })
    }
}

struct ServiceOrigin<S> {
    service: S,
}

impl<S, B, R> Origin<B> for ServiceOrigin<S>
where
    S: Service<Request<B>, Response = Response<R>, Future: Send, Error: Send> + Send,
    B: Send,
    R: Body<Error: Into<BodyError>> + Send + 'static,
{
    type Body = R;
    type Error = S::Error;

    async fn send(&mut self, request: Request<B>) -> Result<Response<R>, S::Error> {
        poll_fn(|context| self.service.poll_ready(context)).await?;
        self.service.call(request).await
    }
}
