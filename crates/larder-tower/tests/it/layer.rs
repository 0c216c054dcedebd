//! The layer over a service, held to the table of cases.

use crate::{
    cases::{self, CaseOrigin, Reply},
    support::cache,
};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
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
struct OriginService(Arc<CaseOrigin>);

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

/// Sends a request through the layer, and reads the whole response.
async fn send(service: &CacheService<OriginService>, request: Request<Bytes>) -> Reply {
    let mut service = service.clone();
    let response = service.call(request.map(Full::new)).await.map_err(|error| error.to_string())?;
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
    Ok((head.status, head.headers, body))
}

async fn check(kind: &str, settings: Settings) {
    let (_directory, cache) = cache();
    let origin = Arc::new(CaseOrigin::default());
    let clock = Arc::clone(&origin);
    let http_cache = HttpCache::builder(cache.clone()).settings(settings).time(move || clock.now()).build();
    let service = CacheLayer::new(http_cache).layer(OriginService(Arc::clone(&origin)));
    let sent = async |request| send(&service, request).await;
    let mismatches = cases::mismatches((kind, &cache), &origin, "http://site.example", sent).await;
    assert!(mismatches.is_empty(), "{kind}:\n{}", mismatches.join("\n"));
}

#[tokio::test]
async fn client_without_a_cache_does_not_keep_to_the_table() {
    let (_directory, cache) = cache();
    let origin = Arc::new(CaseOrigin::default());
    let sent = async |request: Request<Bytes>| {
        let response = OriginService(Arc::clone(&origin)).call(request.map(Full::new)).await;
        let (head, body) = response.map_err(|error| error.to_string())?.into_parts();
        Ok((head.status, head.headers, body.collect().await.unwrap().to_bytes()))
    };
    let mismatches = cases::mismatches(("private", &cache), &origin, "http://site.example", sent).await;
    assert!(mismatches.len() > 30, "{}", mismatches.join("\n"));
}

#[tokio::test]
async fn private_cache_keeps_to_the_table() {
    check("private", Settings::private()).await;
}

#[tokio::test]
async fn shared_cache_keeps_to_the_table() {
    check("shared", Settings::default()).await;
}
