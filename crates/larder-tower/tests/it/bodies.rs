//! Bodies of any length, from a server on the loopback interface and to a client of it.

use crate::{
    raw_http2::{BODY, ENDS, serve_frames},
    support::{cache, serve},
};
use bytes::Bytes;
use futures_util::stream;
use http::{
    Request, Response, StatusCode, Version,
    header::{CACHE_CONTROL, CONTENT_LENGTH},
};
use http_body_util::{BodyExt, Empty, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Body, Frame, Incoming},
    client::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use larder_tower::{BodyError, CacheBody, CacheLayer, HttpCache, Origin};
use std::{
    convert::Infallible,
    future::{Ready, ready},
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
};
use tokio::net::{TcpListener, TcpStream};
use tower_layer::Layer;
use tower_service::Service;

/// Returns bytes that differ from place to place.
fn pattern(len: usize) -> Bytes {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// A client that opens a connection for each request.
struct Client(SocketAddr);

impl<B> Origin<B> for Client
where
    B: Send,
{
    type Body = Incoming;
    type Error = io::Error;

    async fn send(&mut self, request: Request<B>) -> io::Result<Response<Incoming>> {
        let stream = TcpStream::connect(self.0).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        let request = request.map(|_| Empty::<Bytes>::new());
        sender.send_request(request).await.map_err(io::Error::other)
    }
}

async fn get(cache: &HttpCache, address: SocketAddr, path: &str) -> Response<CacheBody> {
    let mut request = Request::new(());
    *request.uri_mut() = format!("http://{address}{path}").parse().unwrap();
    request.headers_mut().insert("host", address.to_string().parse().unwrap());
    cache.respond(request, &mut Client(address)).await.unwrap()
}

fn status_of<B>(response: &Response<B>) -> &str {
    response.headers()["cache-status"].to_str().unwrap()
}

/// Reads a response's whole body.
async fn body_of(response: Response<CacheBody>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

/// A server whose bodies have the length that the path states.
async fn server() -> (SocketAddr, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let address = serve(move |request| {
        counted.fetch_add(1, SeqCst);
        let mut response = Response::new(pattern(request.uri().path()[1..].parse().unwrap()));
        response.headers_mut().insert(CACHE_CONTROL, "max-age=3600".parse().unwrap());
        Some(response)
    });
    (address.await, count)
}

#[tokio::test]
async fn bodies_of_every_length_come_back_as_they_were() {
    let (_directory, cache) = cache();
    let cache = HttpCache::private(cache);
    let (address, count) = server().await;
    let lengths = [0, 1, (32 << 10) - 1, 32 << 10, (32 << 10) + 1, 256 << 10, 1 << 20, (5 << 20) + 17];
    for len in lengths {
        let path = format!("/{len}");
        let first = get(&cache, address, &path).await;
        assert!(status_of(&first).contains("stored"), "{}", status_of(&first));
        assert_eq!(body_of(first).await, pattern(len), "{len} bytes from the origin");
        let second = get(&cache, address, &path).await;
        assert!(status_of(&second).contains("hit"), "{len}: {}", status_of(&second));
        assert_eq!(second.headers()["content-length"], len.to_string());
        assert_eq!(body_of(second).await, pattern(len), "{len} bytes from the cache");
    }
    assert_eq!(count.load(SeqCst), lengths.len());
}

#[tokio::test]
async fn body_that_its_first_client_leaves_is_whole_for_the_next() {
    let (_directory, cache) = cache();
    let cache = HttpCache::private(cache);
    let (address, count) = server().await;
    let path = format!("/{}", 3 << 20);
    let mut body = get(&cache, address, &path).await.into_body();
    assert!(body.frame().await.is_some());
    drop(body);
    assert_eq!(body_of(get(&cache, address, &path).await).await, pattern(3 << 20));
    // Depending on how much had arrived, the fetch went on or was given up.
    assert!((1..=2).contains(&count.load(SeqCst)));
}

#[tokio::test]
async fn body_that_breaks_off_is_an_error_and_not_stored() {
    let (_directory, cache) = cache();
    let cache = HttpCache::private(cache);
    let frames = || {
        let frames = [Ok(Frame::data(pattern(1000))), Err(io::Error::other("cut"))];
        StreamBody::new(stream::iter(frames))
    };
    /// An origin whose bodies break off.
    struct Broken<F>(F);
    impl<F: Fn() -> B + Send, B: Body<Error: Into<BodyError>> + Send + 'static> Origin<()> for Broken<F> {
        type Body = B;
        type Error = Infallible;

        async fn send(&mut self, _: Request<()>) -> Result<Response<B>, Infallible> {
            let mut response = Response::new((self.0)());
            response.headers_mut().insert(CACHE_CONTROL, "max-age=3600".parse().unwrap());
            Ok(response)
        }
    }
    for _ in 0..2 {
        let mut request = Request::new(());
        *request.uri_mut() = "http://site.example/".parse().unwrap();
        let response = cache.respond(request, &mut Broken(frames)).await.unwrap();
        assert!(status_of(&response).contains("fwd=uri-miss"), "{}", status_of(&response));
        assert!(response.into_body().collect().await.is_err());
    }
}

/// An origin whose bodies end quietly after these pieces.
struct Quiet {
    version: Version,
    content_length: Option<u64>,
    pieces: usize,
}

impl Origin<()> for Quiet {
    type Body = StreamBody<stream::Iter<std::vec::IntoIter<io::Result<Frame<Bytes>>>>>;
    type Error = Infallible;

    async fn send(&mut self, _: Request<()>) -> Result<Response<Self::Body>, Infallible> {
        let frames: Vec<_> = (0..self.pieces).map(|_| Ok(Frame::data(pattern(1000)))).collect();
        let mut response = Response::new(StreamBody::new(stream::iter(frames)));
        *response.version_mut() = self.version;
        response.headers_mut().insert(CACHE_CONTROL, "max-age=3600".parse().unwrap());
        if let Some(length) = self.content_length {
            response.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
        Ok(response)
    }
}

/// Libraries report a stream that was reset with NO_ERROR like one that has ended.
#[tokio::test]
async fn body_that_ends_quietly_is_stored_only_if_it_is_complete() {
    let cases = [
        // Version, Content-Length, pieces, whether reading it is an error, whether it is stored.
        (Version::HTTP_11, Some(3000), 3, false, true),
        (Version::HTTP_11, Some(3000), 2, true, false),
        (Version::HTTP_11, Some(3000), 0, true, false),
        (Version::HTTP_11, None, 2, false, true),
        (Version::HTTP_2, Some(3000), 3, false, true),
        (Version::HTTP_2, Some(3000), 2, true, false),
        // The body does not say that END_STREAM was received.
        (Version::HTTP_2, None, 2, false, false),
    ];
    for (number, (version, content_length, pieces, is_error, is_stored)) in cases.into_iter().enumerate() {
        let (_directory, cache) = cache();
        let cache = HttpCache::private(cache);
        let request = || {
            let mut request = Request::new(());
            *request.uri_mut() = "http://site.example/".parse().unwrap();
            request
        };
        let mut origin = Quiet { version, content_length, pieces };
        let read = cache.respond(request(), &mut origin).await.unwrap().into_body().collect().await;
        assert_eq!(read.is_err(), is_error, "{number}");
        let again = cache.respond(request(), &mut origin).await.unwrap();
        assert_eq!(status_of(&again).contains("hit"), is_stored, "{number}: {}", status_of(&again));
    }
}

/// A client of HTTP/2 that opens a connection for each request.
struct Http2Client(SocketAddr);

impl Origin<()> for Http2Client {
    type Body = Incoming;
    type Error = io::Error;

    async fn send(&mut self, request: Request<()>) -> io::Result<Response<Incoming>> {
        let stream = TokioIo::new(TcpStream::connect(self.0).await?);
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), stream).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        sender.send_request(request.map(|()| Empty::<Bytes>::new())).await.map_err(io::Error::other)
    }
}

#[tokio::test]
async fn body_of_a_stream_is_stored_only_if_its_end_or_its_length_was_received() {
    for (has_length, end, is_whole) in ENDS {
        let (_directory, cache) = cache();
        let cache = HttpCache::private(cache);
        let address = serve_frames(has_length, end);
        let request = || {
            let mut request = Request::new(());
            *request.uri_mut() = format!("http://{address}/").parse().unwrap();
            request
        };
        let response = cache.respond(request(), &mut Http2Client(address)).await.unwrap();
        let read = response.into_body().collect().await.map(|body| body.to_bytes());
        assert!(!is_whole || read.unwrap() == BODY, "{has_length} {end:?}");
        let again = cache.respond(request(), &mut Http2Client(address)).await.unwrap();
        assert_eq!(status_of(&again).contains("hit"), is_whole, "{has_length} {end:?}: {}", status_of(&again));
    }
}

/// A server's service: answers with the number of its calls.
#[derive(Clone, Default)]
struct Page(Arc<AtomicUsize>);

impl Service<Request<BoxBody<Bytes, hyper::Error>>> for Page {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<BoxBody<Bytes, hyper::Error>>) -> Self::Future {
        let number = self.0.fetch_add(1, SeqCst) + 1;
        let mut response = Response::new(format!("page {number}").into());
        response.headers_mut().insert(CACHE_CONTROL, "max-age=3600".parse().unwrap());
        ready(Ok(response))
    }
}

#[tokio::test]
async fn server_with_the_layer_answers_all_clients_from_one_call() {
    let (_directory, cache) = cache();
    let service = CacheLayer::new(HttpCache::shared(cache)).layer(Page::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service.clone();
            // A request's body needs a default, which that of hyper does not have.
            let service =
                service_fn(move |request: Request<Incoming>| service.clone().call(request.map(|body| body.boxed())));
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    for (path, wanted) in [("/a", "page 1"), ("/a", "page 1"), ("/b", "page 2"), ("/a", "page 1")] {
        let mut request = Request::new(());
        *request.uri_mut() = path.parse().unwrap();
        request.headers_mut().insert("host", "site.example".parse().unwrap());
        let response = Client(address).send(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), wanted, "{path}");
    }
}
