//! A blocking HTTP/2 client, plain or over TLS.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body::{Body, Frame};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{net::TcpStream, runtime::Runtime};
use tokio_rustls::TlsConnector;

use super::{Response, gate::PATIENCE};

/// A connection to the proxy.
pub(crate) struct Http2 {
    sender: SendRequest<Sent>,
    runtime: Runtime,
}

/// A request's body: pieces, then trailers.
#[derive(Default)]
pub(crate) struct Sent {
    pieces: std::collections::VecDeque<Frame<Bytes>>,
    /// Set if neither data nor an end follows the pieces.
    is_endless: bool,
}

impl Sent {
    pub(crate) fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self { pieces: [Frame::data(bytes.into())].into(), is_endless: false }
    }

    pub(crate) fn with_trailers(mut self, trailers: HeaderMap) -> Self {
        self.pieces.push_back(Frame::trailers(trailers));
        self
    }

    pub(crate) fn without_end(self) -> Self {
        Self { is_endless: true, ..self }
    }
}

impl Body for Sent {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.pieces.pop_front() {
            None if self.is_endless => std::task::Poll::Pending,
            piece => std::task::Poll::Ready(piece.map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty() && !self.is_endless
    }
}

impl Http2 {
    /// Connects with prior knowledge.
    pub(crate) fn plain(address: SocketAddr) -> Self {
        let runtime = runtime();
        let sender = runtime.block_on(async {
            let socket = TcpStream::connect(address).await.unwrap();
            let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
            tokio::spawn(connection);
            sender
        });
        Self { sender, runtime }
    }

    /// Connects with TLS, asking for `name`.
    pub(crate) fn tls(address: SocketAddr, name: &str, config: Arc<ClientConfig>) -> Self {
        let runtime = runtime();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let sender = runtime.block_on(async {
            let socket = TcpStream::connect(address).await.unwrap();
            let stream = TlsConnector::from(config).connect(name, socket).await.unwrap();
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            sender
        });
        Self { sender, runtime }
    }

    /// As [`Http2::tls`], through an open tunnel.
    pub(crate) fn inside(tunnel: std::net::TcpStream, name: &str, config: Arc<ClientConfig>) -> Self {
        let runtime = runtime();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        tunnel.set_nonblocking(true).unwrap();
        let sender = runtime.block_on(async {
            let stream = TlsConnector::from(config).connect(name, TcpStream::from_std(tunnel).unwrap()).await.unwrap();
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            sender
        });
        Self { sender, runtime }
    }

    /// Sends a plain GET.
    pub(crate) fn get(&mut self, url: &str, fields: &[(&str, &str)]) -> Response {
        self.request(head("GET", url, fields).body(Sent::default()).unwrap()).0
    }

    /// Sends a request and reads the response, with its trailers.
    pub(crate) fn request(&mut self, request: Request<Sent>) -> (Response, HeaderMap) {
        let answer = self.sender.send_request(request);
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, read(answer.await.unwrap())).await.unwrap() })
    }

    /// Returns why the stream of a request was reset, or `None` if it was answered.
    pub(crate) fn reset_of(&mut self, request: Request<Sent>) -> Option<h2::Reason> {
        let answer = self.sender.send_request(request);
        let error = self.runtime.block_on(answer).err()?;
        std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<h2::Error>()?.reason())
    }

    /// Sends several requests at once.
    pub(crate) fn get_all(&mut self, urls: &[String]) -> Vec<Response> {
        let answers: Vec<_> = urls
            .iter()
            .map(|url| self.sender.send_request(head("GET", url, &[]).body(Sent::default()).unwrap()))
            .collect();
        self.runtime.block_on(async {
            let mut all = Vec::new();
            for answer in answers {
                all.push(read(answer.await.unwrap()).await.0);
            }
            all
        })
    }

    /// Abandons a request as soon as it is sent. Returns `false` if the connection has ended.
    pub(crate) fn abandon(&mut self, url: &str) -> bool {
        let answer = self.sender.send_request(head("GET", url, &[]).body(Sent::default()).unwrap());
        self.runtime.block_on(async {
            // Long enough for the request to be written, but not for its response.
            let _ = tokio::time::timeout(std::time::Duration::from_millis(1), answer).await;
            tokio::task::yield_now().await;
        });
        !self.sender.is_closed()
    }

    /// Opens a tunnel, sends `bytes` through it and reads as many back.
    pub(crate) fn tunnel(&mut self, authority: &str, bytes: &[u8]) -> Vec<u8> {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let answer = self.sender.send_request(head("CONNECT", authority, &[]).body(Sent::default()).unwrap());
        self.runtime.block_on(async {
            let response = answer.await.unwrap();
            assert_eq!(response.status(), 200);
            let mut tunnel = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
            tunnel.write_all(bytes).await.unwrap();
            let mut back = vec![0; bytes.len()];
            tunnel.read_exact(&mut back).await.unwrap();
            back
        })
    }
}

/// Returns the head of a request.
pub(crate) fn head(method: &str, url: &str, fields: &[(&str, &str)]) -> http::request::Builder {
    fields.iter().fold(Request::builder().method(method).uri(url), |head, (name, value)| head.header(*name, *value))
}

async fn read(response: http::Response<hyper::body::Incoming>) -> (Response, HeaderMap) {
    let (head, mut incoming) = response.into_parts();
    let fields = head.headers.iter();
    let fields = fields.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    let mut read = Response { status: head.status.as_u16(), fields, body: Vec::new(), complete: true };
    let mut trailers = HeaderMap::new();
    while let Some(frame) = std::future::poll_fn(|context| std::pin::Pin::new(&mut incoming).poll_frame(context)).await
    {
        match frame.map(Frame::into_data) {
            Ok(Ok(bytes)) => read.body.extend_from_slice(&bytes),
            Ok(Err(frame)) => trailers = frame.into_trailers().unwrap_or_default(),
            Err(_) => {
                read.complete = false;
                break;
            }
        }
    }
    (read, trailers)
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
