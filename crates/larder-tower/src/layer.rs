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
