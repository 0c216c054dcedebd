//! The layer over a service, held to the table of cases.

use crate::{
    cases::{self, CaseOrigin, Reply, Subject},
    layer_subject::{LayerSubject, OriginService},
    support::cache,
};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use larder_http::Settings;
use std::sync::Arc;
use tower_service::Service;

async fn check(kind: &str, settings: Settings) {
    let (_directory, cache) = cache();
    let origin = Arc::new(CaseOrigin::default());
    let mismatches = cases::mismatches(kind, &LayerSubject::new(cache, settings, &origin), &origin).await;
    assert!(mismatches.is_empty(), "{kind}:\n{}", mismatches.join("\n"));
}

/// A client without a cache.
struct NoCache(OriginService);

impl Subject for NoCache {
    fn base(&self) -> String {
        "http://site.example".to_owned()
    }

    async fn clear(&self) {}

    async fn send(&self, request: Request<Bytes>) -> Reply {
        let response = self.0.clone().call(request.map(Full::new)).await;
        let (head, body) = response.map_err(|error| error.to_string())?.into_parts();
        Ok((head.status, head.headers, body.collect().await.unwrap().to_bytes()))
    }
}

#[tokio::test]
async fn client_without_a_cache_does_not_keep_to_the_table() {
    let origin = Arc::new(CaseOrigin::default());
    let subject = NoCache(OriginService(Arc::clone(&origin)));
    let mismatches = cases::mismatches("private", &subject, &origin).await;
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
