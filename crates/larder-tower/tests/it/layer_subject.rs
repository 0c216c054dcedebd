//! The layer as a subject of the table of cases: with a real cache here, with a simulated one in larder-torture.

use crate::cases::{CaseOrigin, Reply, Subject};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use larder_cache::Cache;
use larder_http::Settings;
use larder_tower::{CacheLayer, CacheService, HttpCache};
use std::{
    future::{Ready, ready},
    io,
    sync::Arc,
    task::{Context, Poll},
};
use tower_layer::Layer;
use tower_service::Service;

/// The origin of the cases as a service.
#[derive(Clone)]
pub(crate) struct OriginService(pub(crate) Arc<CaseOrigin>);

impl Service<Request<Full<Bytes>>> for OriginService {
    type Response = Response<Full<Bytes>>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let answer = self.0.answer(request.method(), request.headers());
        ready(answer.map(|response| response.map(Full::new)).ok_or(io::Error::other("dropped")))
    }
}

/// A layer over the origin of the cases.
pub(crate) struct LayerSubject {
    cache: Cache,
    service: CacheService<OriginService>,
}

impl LayerSubject {
    pub(crate) fn new(cache: Cache, settings: Settings, origin: &Arc<CaseOrigin>) -> Self {
        let clock = Arc::clone(origin);
        let http_cache = HttpCache::builder(cache.clone()).settings(settings).time(move || clock.now()).build();
        let service = CacheLayer::new(http_cache).layer(OriginService(Arc::clone(origin)));
        Self { cache, service }
    }
}

impl Subject for LayerSubject {
    fn base(&self) -> String {
        "http://site.example".to_owned()
    }

    async fn clear(&self) {
        self.cache.clear().await.unwrap();
    }

    async fn send(&self, request: Request<Bytes>) -> Reply {
        let response = self.service.clone().call(request.map(Full::new)).await.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
        // The response may still be on its way to the store.
        self.cache.sync().await.map_err(|error| error.to_string())?;
        Ok((head.status, head.headers, body))
    }
}
