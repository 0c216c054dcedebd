//! A cache in a scratch directory, and a server on the loopback interface.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use larder_cache::Cache;
use std::{io, net::SocketAddr, sync::Arc};
use tempfile::TempDir;
use tokio::net::TcpListener;

/// Returns an empty cache. It is gone with the directory.
pub(crate) fn cache() -> (TempDir, Cache) {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::builder(directory.path()).disk("64MB").memory("16MB").open().unwrap();
    (directory, cache)
}

/// Starts a server that answers each request by `answer`, or closes the connection.
pub(crate) async fn serve<F>(answer: F) -> SocketAddr
where
    F: Fn(Request<Incoming>) -> Option<Response<Bytes>> + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = Arc::clone(&answer);
            let service = service_fn(move |request| {
                let response = answer(request);
                async move { response.map(|response| response.map(Full::new)).ok_or(io::Error::other("dropped")) }
            });
            // A connection that fails is the client's to notice.
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}
