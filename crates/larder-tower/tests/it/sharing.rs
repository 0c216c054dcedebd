//! Requests at the same time for one response: the origin gets one of them.

use crate::support::cache;
use bytes::Bytes;
use futures_util::{StreamExt, future::join_all, stream};
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use larder_cache::Cache;
use larder_tower::{CacheBody, HttpCache, Origin};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::{
    sync::{Barrier, Semaphore},
    time::timeout,
};

type OriginBody = UnsyncBoxBody<Bytes, io::Error>;

/// Time after which a step counts as hanging.
const PATIENCE: Duration = Duration::from_mins(1);

/// What an origin does, and what it notes.
struct Script {
    /// Number of requests that reached the origin.
    asked: AtomicUsize,
    /// Requests that may be answered. Each answer takes one.
    answers: Semaphore,
    /// Pieces of bodies that may be sent.
    pieces: Semaphore,
    cache_control: &'static str,
    body: Bytes,
    /// Number of first requests that fail.
    failures: usize,
}

impl Script {
    fn new(len: usize) -> Self {
        let body = (0..len).map(|at| (at * 7 + at / 251) as u8).collect();
        let all = || Semaphore::new(Semaphore::MAX_PERMITS);
        let asked = AtomicUsize::new(0);
        Self { asked, answers: all(), pieces: all(), cache_control: "max-age=3600", body, failures: 0 }
    }

    fn asked(&self) -> usize {
        self.asked.load(SeqCst)
    }

    fn body(self: &Arc<Self>) -> OriginBody {
        let pieces: Vec<Bytes> = self.body.chunks(64 << 10).map(Bytes::copy_from_slice).collect();
        let script = Arc::clone(self);
        let frames = stream::iter(pieces).then(move |piece| {
            let script = Arc::clone(&script);
            async move {
                script.pieces.acquire().await.unwrap().forget();
                Ok(Frame::data(piece))
            }
        });
        StreamBody::new(frames).boxed_unsync()
    }
}

/// An origin that follows a script.
#[derive(Clone)]
struct Scripted(Arc<Script>);

impl Origin<()> for Scripted {
    type Body = OriginBody;
    type Error = io::Error;

    async fn send(&mut self, _: Request<()>) -> io::Result<Response<OriginBody>> {
        let number = self.0.asked.fetch_add(1, SeqCst);
        self.0.answers.acquire().await.unwrap().forget();
        if number < self.0.failures {
            return Err(io::Error::other("the origin is down"));
        }
        let mut response = Response::new(self.0.body());
        response.headers_mut().insert("cache-control", self.0.cache_control.parse().unwrap());
        Ok(response)
    }
}

fn request() -> Request<()> {
    Request::builder().uri("http://site.example/file").body(()).unwrap()
}

async fn respond(cache: &HttpCache, script: &Arc<Script>) -> io::Result<Response<CacheBody>> {
    timeout(PATIENCE, cache.respond(request(), &mut Scripted(Arc::clone(script)))).await.expect("a response")
}

/// Returns the status in Cache-Status, and the whole body.
async fn fetch(cache: &HttpCache, script: &Arc<Script>) -> io::Result<(String, Bytes)> {
    let response = respond(cache, script).await?;
    let status = response.headers()["cache-status"].to_str().unwrap().to_owned();
    let body = timeout(PATIENCE, response.into_body().collect()).await.expect("a body");
    Ok((status, body.map_err(io::Error::other)?.to_bytes()))
}

/// Starts `count` requests, and returns once the first has reached the origin and all have begun.
async fn begin(
    count: usize,
    cache: &HttpCache,
    script: &Arc<Script>,
) -> Vec<tokio::task::JoinHandle<io::Result<(String, Bytes)>>> {
    let begun = Arc::new(Barrier::new(count + 1));
    let tasks = (0..count).map(|_| {
        let cache = cache.clone();
        let script = Arc::clone(script);
        let begun = Arc::clone(&begun);
        tokio::spawn(async move {
            begun.wait().await;
            fetch(&cache, &script).await
        })
    });
    let tasks = tasks.collect();
    begun.wait().await;
    until(|| script.asked() > 0).await;
    tasks
}

/// Waits for a condition that other tasks bring about.
async fn until(condition: impl Fn() -> bool) {
    let reached = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, reached).await.expect("the condition holds in the end");
}

/// Guards against an origin that gets a request from each client when a popular response expires.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundred_requests_at_once_are_one_fetch() {
    for len in [0, 1000, 40_000, (3 << 20) + 17] {
        let (_directory, cache) = cache();
        let cache = HttpCache::private(cache);
        let script = Arc::new(Script { answers: Semaphore::new(0), ..Script::new(len) });
        let tasks = begin(100, &cache, &script).await;
        script.answers.add_permits(100);
        let outcomes: Vec<_> = join_all(tasks).await.into_iter().map(|task| task.unwrap().unwrap()).collect();
        assert!(outcomes.iter().all(|(_, body)| *body == script.body), "{len} bytes");
        assert_eq!(script.asked(), 1, "{len} bytes");
        let is_shared = |status: &str| status.contains("collapsed") || status.contains("hit");
        let (shared, own): (Vec<_>, Vec<_>) = outcomes.iter().partition(|(status, _)| is_shared(status));
        assert_eq!((own.len(), shared.len()), (1, 99), "{len} bytes");
        assert!(own[0].0.contains("stored"), "{len} bytes: {}", own[0].0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn request_that_fails_lets_the_next_one_fetch() {
    let (_directory, cache) = cache();
    let cache = HttpCache::private(cache);
    let script = Arc::new(Script { answers: Semaphore::new(0), failures: 1, ..Script::new(1000) });
    let tasks = begin(20, &cache, &script).await;
    script.answers.add_permits(20);
    let outcomes: Vec<_> = join_all(tasks).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_err()).count(), 1, "only the request that failed");
    assert_eq!(script.asked(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn request_that_is_dropped_lets_the_next_one_fetch() {
    let (_directory, cache) = cache();
    let cache = HttpCache::private(cache);
    let script = Arc::new(Script { answers: Semaphore::new(0), ..Script::new(1000) });
    let first = begin(1, &cache, &script).await.remove(0);
    let second = tokio::spawn({
        let cache = cache.clone();
        let script = Arc::clone(&script);
        async move { fetch(&cache, &script).await }
    });
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    until(|| script.asked() == 2).await;
    script.answers.add_permits(1);
    assert_eq!(second.await.unwrap().unwrap().1, script.body);
}

/// Guards against an origin that fails, and gets all waiting requests at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiting_requests_do_not_all_ask_an_origin_that_keeps_failing_at_once() {
    const REQUESTS: usize = 60;
    let (_directory, cache) = cache();
    let cache = HttpCache::private(cache);
    let script = Arc::new(Script { answers: Semaphore::new(0), failures: REQUESTS, ..Script::new(1000) });
    let tasks = begin(REQUESTS, &cache, &script).await;
    let mut failed = 0;
    let mut most = 0;
    while failed < REQUESTS {
        until(|| script.asked() > failed).await;
        // Requests that were about to ask, too, have time to do so.
        for _ in 0..2000 {
            tokio::task::yield_now().await;
        }
        most = most.max(script.asked() - failed);
        script.answers.add_permits(1);
        failed += 1;
    }
    assert!((1..=8).contains(&most), "{most} at once");
    assert!(join_all(tasks).await.into_iter().all(|task| task.unwrap().is_err()));
}

/// Guards against readers of an event stream, which never ends, that wait for its first reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn endless_response_does_not_block_its_other_readers() {
    let (_directory, cache) = cache();
    let cache = HttpCache::private(cache);
    let script = Arc::new(Script { pieces: Semaphore::new(2), ..Script::new(300_000) });
    let mut first = respond(&cache, &script).await.unwrap().into_body();
    assert!(first.frame().await.is_some_and(|frame| frame.is_ok()));
    let mut second = respond(&cache, &script).await.unwrap().into_body();
    // It reads along.
    assert_eq!(script.asked(), 1);
    assert!(timeout(PATIENCE, second.frame()).await.expect("a piece").is_some_and(|frame| frame.is_ok()));
}

/// Guards against answering the requests for a page that is never stored one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn response_that_may_not_be_stored_is_for_its_request_alone() {
    const REQUESTS: usize = 10;
    let (_directory, cache) = cache();
    let cache = HttpCache::private(cache);
    let script = Arc::new(Script { cache_control: "no-store", answers: Semaphore::new(0), ..Script::new(1000) });
    let tasks = begin(REQUESTS, &cache, &script).await;
    script.answers.add_permits(1);
    // The first response has shown that none may be shared: all others go to the origin together.
    until(|| script.asked() == REQUESTS).await;
    // And later ones do not wait for one another at all, though none is answered.
    let later = begin(REQUESTS, &cache, &script).await;
    until(|| script.asked() == 2 * REQUESTS).await;
    script.answers.add_permits(2 * REQUESTS);
    for outcome in join_all(tasks.into_iter().chain(later)).await {
        let (status, body) = outcome.unwrap().unwrap();
        assert!(status.contains("fwd=uri-miss") && !status.contains("stored"), "{status}");
        assert_eq!(body, script.body);
    }
}

/// Guards against one client that keeps a response from all others by not reading it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slow_client_delays_nobody_and_gets_its_whole_body() {
    for len in [1000, (5 << 20) + 17] {
        let (_directory, cache) = cache();
        let cache = HttpCache::private(cache);
        let script = Arc::new(Script::new(len));
        let slow = respond(&cache, &script).await.unwrap();
        let others = join_all((0..3).map(|_| fetch(&cache, &script))).await;
        assert!(others.into_iter().all(|outcome| outcome.unwrap().1 == script.body), "{len} bytes");
        let body = timeout(PATIENCE, slow.into_body().collect()).await.expect("a body").unwrap().to_bytes();
        assert!(body == script.body, "{} of {len} bytes for the slow client", body.len());
        assert_eq!(script.asked(), 1, "{len} bytes");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn client_that_goes_away_does_not_end_the_fetch_that_others_wait_for() {
    let (_directory, cache) = cache();
    let cache = HttpCache::private(cache);
    let script = Arc::new(Script { pieces: Semaphore::new(1), ..Script::new(300_000) });
    let mut first = respond(&cache, &script).await.unwrap().into_body();
    assert!(first.frame().await.is_some_and(|frame| frame.is_ok()));
    let second = respond(&cache, &script).await.unwrap();
    let status = second.headers()["cache-status"].to_str().unwrap().to_owned();
    assert!(status.contains("collapsed"), "{status}");
    drop(first);
    script.pieces.add_permits(100);
    let body = timeout(PATIENCE, second.into_body().collect()).await.expect("a body").unwrap().to_bytes();
    assert_eq!((body.len(), script.asked()), (script.body.len(), 1));
}

/// Guards against a stale response, as if the origin had failed, only because another client has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn client_that_leaves_early_gives_others_no_stale_response() {
    let (_directory, cache) = cache();
    let cache = HttpCache::private(cache);
    let cache_control = "max-age=0, stale-if-error=3600";
    let script = Arc::new(Script { cache_control, answers: Semaphore::new(1), ..Script::new(1000) });
    let (status, _) = fetch(&cache, &script).await.unwrap();
    assert!(status.contains("stored"), "{status}");
    let leader = {
        let cache = cache.clone();
        let script = Arc::clone(&script);
        tokio::spawn(async move { fetch(&cache, &script).await })
    };
    until(|| script.asked() == 2).await;
    let others = begin(20, &cache, &script).await;
    // Most of the others wait for the leader's fetch by then.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    leader.abort();
    until(|| script.asked() > 2).await;
    script.answers.add_permits(100);
    for outcome in join_all(others).await {
        let (status, body) = outcome.unwrap().unwrap();
        assert!(!status.contains("; hit"), "{status}");
        assert_eq!(body, script.body);
    }
}

/// Guards against a cache that is cold after each restart, because its responses look older than a removal before them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn response_that_is_stored_after_a_removal_of_all_survives_a_restart() {
    let (directory, cache) = cache();
    let script = Arc::new(Script::new(1000));
    cache.clear().await.unwrap();
    let (status, _) = fetch(&HttpCache::private(cache.clone()), &script).await.unwrap();
    assert!(status.contains("stored"), "{status}");
    cache.close().await.unwrap();
    drop(cache);
    let cache = Cache::builder(directory.path()).disk("64MB").memory("16MB").open().unwrap();
    let (status, body) = fetch(&HttpCache::private(cache), &script).await.unwrap();
    assert!(status.contains("; hit"), "{status}");
    assert_eq!((body, script.asked()), (script.body.clone(), 1));
}

/// An origin whose stored response is stale at once, and whose every 304 is for one user.
#[derive(Clone)]
struct Personal {
    control: &'static str,
    answers: Arc<Semaphore>,
    asked: Arc<AtomicUsize>,
}

impl Origin<()> for Personal {
    type Body = OriginBody;
    type Error = io::Error;

    async fn send(&mut self, request: Request<()>) -> io::Result<Response<OriginBody>> {
        let user = request.headers().get("x-user").cloned();
        let is_condition = request.headers().contains_key("if-none-match");
        self.asked.fetch_add(1, SeqCst);
        if user.is_some() {
            self.answers.acquire().await.unwrap().forget();
        }
        let control = if user.is_some() { self.control } else { "max-age=60" };
        let age = if user.is_some() { "0" } else { "100" };
        let response = Response::builder().header("etag", "\"v\"").header("cache-control", control).header("age", age);
        let response = match user {
            Some(user) => response.header("x-for", user),
            None => response.header("x-for", "all"),
        };
        let status = if is_condition { 304 } else { 200 };
        let frames = if is_condition { Vec::new() } else { vec![Ok(Frame::data(Bytes::from_static(b"page")))] };
        Ok(response.status(status).body(StreamBody::new(stream::iter(frames)).boxed_unsync()).unwrap())
    }
}

#[tokio::test]
async fn what_a_304_says_to_one_client_it_says_to_no_other() {
    for control in ["private", "no-store"] {
        let (_directory, cache) = cache();
        let cache = HttpCache::shared(cache);
        let origin = Personal { control, answers: Arc::new(Semaphore::new(0)), asked: Arc::default() };
        let ask = |user: Option<usize>| {
            let cache = cache.clone();
            let mut origin = origin.clone();
            async move {
                let mut request = Request::new(());
                *request.uri_mut() = "http://site.example/".parse().unwrap();
                if let Some(user) = user {
                    request.headers_mut().insert("x-user", user.to_string().parse().unwrap());
                }
                let response = cache.respond(request, &mut origin).await.unwrap();
                let told = response.headers()["x-for"].to_str().unwrap().to_owned();
                assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "page");
                told
            }
        };
        assert_eq!(ask(None).await, "all");
        let asking = join_all((0..120).map(|user| ask(Some(user))));
        let opening = async {
            while origin.asked.load(SeqCst) < 2 {
                tokio::task::yield_now().await;
            }
            origin.answers.add_permits(1000);
        };
        let (told, ()) = timeout(PATIENCE, async { tokio::join!(asking, opening) }).await.unwrap();
        assert_eq!(told, (0..120).map(|user| user.to_string()).collect::<Vec<_>>(), "{control}");
        assert_eq!(ask(Some(500)).await, "500", "{control}");
    }
}
