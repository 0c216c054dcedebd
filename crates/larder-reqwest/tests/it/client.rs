//! A reqwest client with the cache, and what of reqwest the cache has to bear with.

use crate::{
    cases::{self, CaseOrigin, Reply, Subject},
    raw_http2::{BODY, ENDS, StreamEnd, serve_frames},
    support::{cache, serve},
};
use bytes::Bytes;
use http::{Extensions, HeaderMap, HeaderValue, Request, Response, header::AUTHORIZATION};
use larder_http::Settings;
use larder_reqwest::{Cache, CacheMiddleware, HttpCache};
use reqwest::{Body, ResponseBuilderExt as _};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// Maximum time that the server waits for the requests of a test.
const PATIENCE: Duration = Duration::from_mins(1);

/// Returns a client without idle connections: one that its server closes would make requests fail by chance.
fn client(cache: HttpCache) -> ClientWithMiddleware {
    let client = reqwest::Client::builder().pool_max_idle_per_host(0).no_proxy().build().unwrap();
    ClientBuilder::new(client).with(CacheMiddleware::from_http_cache(cache)).build()
}

/// Hides the end of bodies, as reqwest does if it is built to decompress.
struct Hiding;

/// A body that does not report its end.
struct HiddenEnd(Body);

impl http_body::Body for HiddenEnd {
    type Data = Bytes;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, reqwest::Error>>> {
        Pin::new(&mut self.0).poll_frame(context)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.0.size_hint()
    }
}

#[async_trait::async_trait]
impl Middleware for Hiding {
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        let response = next.run(request, extensions).await?;
        // The conversion forgets the URL, by which the cache recognizes redirects.
        let builder = http::Response::builder().status(response.status()).version(response.version());
        let builder = builder.url(response.url().clone());
        let (parts, body) = http::Response::<Body>::from(response).into_parts();
        let mut hidden = builder.body(Body::wrap(HiddenEnd(body))).unwrap();
        *hidden.headers_mut() = parts.headers;
        Ok(hidden.into())
    }
}

/// Checks which responses a client stores over HTTP/2, depending on how a body ends and on whether its length is known.
#[tokio::test]
async fn body_of_a_stream_is_stored_only_if_its_end_or_its_length_is_known() {
    for (has_length, end, is_whole) in ENDS {
        for is_hidden in [false, true] {
            let (_directory, cache) = cache();
            let address = serve_frames(has_length, end);
            let client = reqwest::Client::builder()
                .http2_prior_knowledge()
                .pool_max_idle_per_host(0)
                .no_proxy()
                .build()
                .unwrap();
            let builder = ClientBuilder::new(client).with(CacheMiddleware::new(cache));
            let client = if is_hidden { builder.with(Hiding).build() } else { builder.build() };
            let get = async || client.get(format!("http://{address}/")).send().await.unwrap();
            let read = get().await.bytes().await;
            assert!(!is_whole || read.unwrap() == BODY, "{has_length} {end:?} {is_hidden}");
            let again = get().await;
            let status = again.headers()["cache-status"].to_str().unwrap();
            let is_known = has_length || end == StreamEnd::Trailers || !is_hidden;
            assert_eq!(status.contains("hit"), is_whole && is_known, "{has_length} {end:?} {is_hidden}: {status}");
        }
    }
}

/// A client with a cache.
struct ClientSubject {
    cache: Cache,
    client: ClientWithMiddleware,
    base: String,
}

impl Subject for ClientSubject {
    fn base(&self) -> String {
        self.base.clone()
    }

    async fn clear(&self) {
        self.cache.clear().await.unwrap();
    }

    async fn send(&self, request: Request<Bytes>) -> Reply {
        let request = request.try_into().map_err(|error: reqwest::Error| error.to_string())?;
        let response = self.client.execute(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        let headers = response.headers().clone();
        let body = response.bytes().await.map_err(|error| error.to_string())?;
        // The response may still be on its way to the store.
        self.cache.sync().await.map_err(|error| error.to_string())?;
        Ok((status, headers, body))
    }
}

async fn check(kind: &str, settings: Settings) {
    let (_directory, cache) = cache();
    let origin = Arc::new(CaseOrigin::default());
    let clock = Arc::clone(&origin);
    let server = Arc::clone(&origin);
    let address = serve(move |request| server.answer(request.method(), request.headers())).await;
    let client = client(HttpCache::builder(cache.clone()).settings(settings).time(move || clock.now()).build());
    let subject = ClientSubject { cache, client, base: format!("http://{address}") };
    let mismatches = cases::mismatches(kind, &subject, &origin).await;
    assert!(mismatches.is_empty(), "{kind}:\n{}", mismatches.join("\n"));
}

#[tokio::test]
async fn private_cache_keeps_to_the_table() {
    check("private", Settings::private()).await;
}

#[tokio::test]
async fn shared_cache_keeps_to_the_table() {
    check("shared", Settings::default()).await;
}

/// Returns the address of a server whose answers are counted, and the count. `/from` redirects to `/to`.
async fn counting_server() -> (String, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let address = serve(move |request| {
        let mut response = Response::new(Bytes::from(format!("answer {}", counted.fetch_add(1, SeqCst) + 1)));
        response.headers_mut().insert("cache-control", HeaderValue::from_static("max-age=3600"));
        if request.uri().path() == "/from" {
            *response.status_mut() = http::StatusCode::FOUND;
            response.headers_mut().insert("location", HeaderValue::from_static("/to"));
        }
        Some(response)
    });
    (format!("http://{}", address.await), count)
}

#[tokio::test]
async fn response_reached_by_a_redirect_is_not_stored_under_the_first_url() {
    let (_directory, cache) = cache();
    let client = client(HttpCache::private(cache));
    let (url, count) = counting_server().await;
    for answers in [2, 4] {
        let response = client.get(format!("{url}/from")).send().await.unwrap();
        assert_eq!(response.url().path(), "/to", "the URL of the response that was received");
        response.bytes().await.unwrap();
        assert_eq!(count.load(SeqCst), answers);
    }
    let response = client.get(format!("{url}/to#part")).send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "answer 5");
    let response = client.get(format!("{url}/to")).send().await.unwrap();
    assert_eq!(response.url().path(), "/to");
    assert_eq!(response.text().await.unwrap(), "answer 5");
}

#[tokio::test]
async fn implied_credentials_separate_the_responses_of_two_clients() {
    let (_directory, cache) = cache();
    let (url, count) = counting_server().await;
    for (token, wanted) in [("one", "answer 1"), ("two", "answer 2"), ("one", "answer 1"), ("two", "answer 2")] {
        let fields = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {token}")).unwrap())]);
        let client =
            client(HttpCache::builder(cache.clone()).settings(Settings::private()).implied_fields(fields).build());
        assert_eq!(client.get(&url).send().await.unwrap().text().await.unwrap(), wanted);
    }
    assert_eq!(count.load(SeqCst), 2);
}

#[tokio::test]
async fn next_run_finds_the_responses_of_the_last() {
    let directory = tempfile::tempdir().unwrap();
    let (url, count) = counting_server().await;
    for _ in 0..2 {
        let cache = Cache::builder(directory.path()).disk("64MB").memory("16MB").open().unwrap();
        cache.ready().await;
        let client = client(HttpCache::private(cache.clone()));
        let response = client.get(&url).send().await.unwrap();
        assert_eq!(response.content_length(), Some(8));
        assert_eq!(response.text().await.unwrap(), "answer 1");
        cache.close().await.unwrap();
    }
    assert_eq!(count.load(SeqCst), 1);
}

/// Guards against a server that gets one request from each task of a program.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundred_requests_at_once_reach_the_server_once() {
    const REQUESTS: usize = 100;
    let (_directory, cache) = cache();
    let client = client(HttpCache::private(cache));
    let begun = Arc::new(AtomicUsize::new(0));
    let count = Arc::new(AtomicUsize::new(0));
    let all_begun = Arc::clone(&begun);
    let counted = Arc::clone(&count);
    let address = serve(move |_| {
        counted.fetch_add(1, SeqCst);
        // No response before all requests have begun, because later ones would be hits.
        tokio::task::block_in_place(|| {
            let deadline = Instant::now() + PATIENCE;
            while all_begun.load(SeqCst) < REQUESTS && Instant::now() < deadline {
                std::thread::yield_now();
            }
        });
        let mut response = Response::new(Bytes::from(vec![7; 100_000]));
        response.headers_mut().insert("cache-control", HeaderValue::from_static("max-age=3600"));
        Some(response)
    })
    .await;
    let requests = (0..REQUESTS).map(|_| {
        let client = client.clone();
        let begun = Arc::clone(&begun);
        tokio::spawn(async move {
            begun.fetch_add(1, SeqCst);
            let response = client.get(format!("http://{address}/page")).send().await.unwrap();
            response.bytes().await.unwrap()
        })
    });
    for request in requests.collect::<Vec<_>>() {
        assert!(request.await.unwrap() == [7; 100_000][..]);
    }
    assert_eq!((begun.load(SeqCst), count.load(SeqCst)), (REQUESTS, 1));
}
