//! A blocking HTTP/2 client, plain or over TLS.

use std::{
    collections::VecDeque,
    future::{Future as _, poll_fn},
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use h2::{
    RecvStream, SendStream,
    client::{Builder, ResponseFuture, SendRequest},
    ext::Protocol,
};
use http::{HeaderMap, Request, StatusCode};
use http_body::Frame;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    runtime::Runtime,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::{Response, gate::PATIENCE};

/// A connection to the proxy.
pub(crate) struct Http2 {
    sender: SendRequest<Bytes>,
    runtime: Runtime,
}

/// A request's body: pieces, then trailers.
#[derive(Default)]
pub(crate) struct Sent {
    pieces: VecDeque<Frame<Bytes>>,
    /// Set if neither data nor an end follows the pieces.
    is_endless: bool,
}

/// A stream on which a request was sent.
struct SentStream {
    response: ResponseFuture,
    /// Kept, because dropping it would reset the stream.
    _sending: SendStream<Bytes>,
}

/// An interim response.
pub(crate) type Interim = (StatusCode, HeaderMap);

/// An open tunnel.
pub(crate) struct Tunnel<'a> {
    sending: SendStream<Bytes>,
    receiving: RecvStream,
    received: Vec<u8>,
    runtime: &'a Runtime,
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

    fn send(self, sending: &mut SendStream<Bytes>) {
        let count = self.pieces.len();
        for (at, piece) in self.pieces.into_iter().enumerate() {
            let is_last = at + 1 == count && !self.is_endless;
            // An error is the stream's, and the response tells it.
            let _ = match piece.into_data() {
                Ok(data) => sending.send_data(data, is_last),
                Err(frame) => sending.send_trailers(frame.into_trailers().unwrap()),
            };
        }
    }
}

impl Http2 {
    /// Connects with prior knowledge.
    pub(crate) fn plain(address: SocketAddr) -> Self {
        let runtime = runtime();
        let sender = runtime.block_on(async { begin(TcpStream::connect(address).await.unwrap()).await });
        Self { sender, runtime }
    }

    /// As [`Http2::plain`], with a larger window of the connection than of a stream.
    pub(crate) fn with_wide_connection(address: SocketAddr) -> Self {
        let runtime = runtime();
        let sender = runtime.block_on(async {
            let mut builder = Builder::new();
            let socket = TcpStream::connect(address).await.unwrap();
            let (sender, connection) = builder.initial_connection_window_size(1 << 20).handshake(socket).await.unwrap();
            tokio::spawn(connection);
            sender
        });
        Self { sender, runtime }
    }

    /// Connects with TLS, asking for `name`.
    pub(crate) fn tls(address: SocketAddr, name: &str, config: Arc<ClientConfig>) -> Self {
        let runtime = runtime();
        let sender =
            runtime.block_on(async { begin_tls(TcpStream::connect(address).await.unwrap(), name, config).await });
        Self { sender, runtime }
    }

    /// As [`Http2::tls`], through an open tunnel.
    pub(crate) fn inside(tunnel: std::net::TcpStream, name: &str, config: Arc<ClientConfig>) -> Self {
        let runtime = runtime();
        tunnel.set_nonblocking(true).unwrap();
        let sender = runtime.block_on(async { begin_tls(TcpStream::from_std(tunnel).unwrap(), name, config).await });
        Self { sender, runtime }
    }

    /// Sends a plain GET.
    pub(crate) fn get(&mut self, url: &str, fields: &[(&str, &str)]) -> Response {
        self.request(head("GET", url, fields).body(Sent::default()).unwrap()).0
    }

    /// Sends a request and reads the response, with its trailers.
    pub(crate) fn request(&mut self, request: Request<Sent>) -> (Response, HeaderMap) {
        let (_, response, trailers) = self.request_with_interim(request);
        (response, trailers)
    }

    /// As [`Http2::request`], with the interim responses before the response.
    pub(crate) fn request_with_interim(&mut self, request: Request<Sent>) -> (Vec<Interim>, Response, HeaderMap) {
        let sender = self.sender.clone();
        self.runtime.block_on(async {
            let stream = send(sender, request).await.unwrap();
            timeout(PATIENCE, read(stream)).await.unwrap()
        })
    }

    /// Returns the first interim response to a request. The request is then abandoned.
    pub(crate) fn interim_of(&mut self, request: Request<Sent>) -> Interim {
        let sender = self.sender.clone();
        self.runtime.block_on(async {
            let mut stream = send(sender, request).await.unwrap();
            let interim = poll_fn(|context| stream.response.poll_informational(context));
            let (head, ()) = timeout(PATIENCE, interim).await.unwrap().unwrap().unwrap().into_parts();
            (head.status, head.headers)
        })
    }

    /// Returns why the stream of a request was reset, or `None` if it was answered.
    pub(crate) fn reset_of(&mut self, request: Request<Sent>) -> Option<h2::Reason> {
        let sender = self.sender.clone();
        self.runtime.block_on(async {
            let stream = send(sender, request).await.unwrap();
            timeout(PATIENCE, stream.response).await.unwrap().err()?.reason()
        })
    }

    /// Sends several requests at once.
    pub(crate) fn get_all(&mut self, urls: &[String]) -> Vec<Response> {
        let mut sender = self.sender.clone();
        self.runtime.block_on(async {
            let mut streams = Vec::new();
            for url in urls {
                sender = sender.ready().await.unwrap();
                let request = head("GET", url, &[]).body(()).unwrap();
                let (response, sending) = sender.send_request(request, true).unwrap();
                streams.push(tokio::spawn(read(SentStream { response, _sending: sending })));
            }
            let mut all = Vec::new();
            for stream in streams {
                all.push(timeout(PATIENCE, stream).await.unwrap().unwrap().1);
            }
            all
        })
    }

    /// Sends a request, and reads nothing of the response's body.
    pub(crate) fn leave_unread(&mut self, request: Request<Sent>) -> RecvStream {
        let sender = self.sender.clone();
        self.runtime.block_on(async {
            let stream = send(sender, request).await.unwrap();
            timeout(PATIENCE, stream.response).await.unwrap().unwrap().into_body()
        })
    }

    /// Sends two requests at once. Returns how many bytes of the second body had arrived when the first one ended.
    pub(crate) fn race(&mut self, requests: [Request<Sent>; 2]) -> usize {
        let sender = self.sender.clone();
        self.runtime.block_on(async {
            let [first, second] = requests;
            let first = send(sender.clone(), first).await.unwrap();
            let second = send(sender, second).await.unwrap();
            let mut bodies = [
                timeout(PATIENCE, first.response).await.unwrap().unwrap().into_body(),
                timeout(PATIENCE, second.response).await.unwrap().unwrap().into_body(),
            ];
            let mut lens = [0, 0];
            let ended = poll_fn(|context| {
                for (body, len) in bodies.iter_mut().zip(&mut lens) {
                    while let Poll::Ready(Some(bytes)) = body.poll_data(context) {
                        let bytes = bytes.unwrap();
                        *len += bytes.len();
                        body.flow_control().release_capacity(bytes.len()).unwrap();
                    }
                }
                if bodies[0].is_end_stream() { Poll::Ready(()) } else { Poll::Pending }
            });
            timeout(PATIENCE, ended).await.unwrap();
            lens[1]
        })
    }

    /// Abandons a request as soon as it is sent. Returns `false` if the connection has ended.
    pub(crate) fn abandon(&mut self, url: &str) -> bool {
        let sender = self.sender.clone();
        let request = head("GET", url, &[]).body(Sent::default()).unwrap();
        self.runtime.block_on(async {
            let Ok(stream) = send(sender, request).await else { return false };
            // Long enough for the request to be written, but not for its response.
            let _ = timeout(Duration::from_millis(1), stream.response).await;
            tokio::task::yield_now().await;
            true
        })
    }

    /// Opens a tunnel, sends `bytes` through it and reads as many back.
    pub(crate) fn tunnel(&mut self, authority: &str, bytes: &[u8]) -> Vec<u8> {
        let request = head("CONNECT", authority, &[]).body(()).unwrap();
        let (opened, mut tunnel) = self.open(request);
        assert_eq!(opened.status, 200);
        tunnel.send(bytes);
        tunnel.read(bytes.len())
    }

    /// Opens a stream for another protocol (RFC 8441).
    pub(crate) fn open_protocol(
        &mut self,
        protocol: &'static str,
        url: &str,
        fields: &[(&str, &str)],
    ) -> (Response, Tunnel<'_>) {
        let request = head("CONNECT", url, fields).extension(Protocol::from_static(protocol)).body(()).unwrap();
        self.open(request)
    }

    fn open(&mut self, request: Request<()>) -> (Response, Tunnel<'_>) {
        let mut sender = self.sender.clone();
        let (opened, sending, receiving) = self.runtime.block_on(async {
            let (response, sending) = sender.send_request(request, false).unwrap();
            let (head, receiving) = timeout(PATIENCE, response).await.unwrap().unwrap().into_parts();
            (response_of(&head), sending, receiving)
        });
        (opened, Tunnel { sending, receiving, received: Vec::new(), runtime: &self.runtime })
    }
}

impl Tunnel<'_> {
    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.sending.send_data(Bytes::copy_from_slice(bytes), false).unwrap();
    }

    /// Ends this side.
    pub(crate) fn end(&mut self) {
        self.sending.send_data(Bytes::new(), true).unwrap();
    }

    /// Reads `count` bytes, or fewer if the other side ends.
    pub(crate) fn read(&mut self, count: usize) -> Vec<u8> {
        self.runtime.block_on(async {
            while self.received.len() < count {
                let Some(bytes) = timeout(PATIENCE, self.receiving.data()).await.unwrap() else { break };
                let bytes = bytes.unwrap();
                self.receiving.flow_control().release_capacity(bytes.len()).unwrap();
                self.received.extend_from_slice(&bytes);
            }
        });
        self.received.drain(..count.min(self.received.len())).collect()
    }
}

/// Returns the head of a request.
pub(crate) fn head(method: &str, url: &str, fields: &[(&str, &str)]) -> http::request::Builder {
    fields.iter().fold(Request::builder().method(method).uri(url), |head, (name, value)| head.header(*name, *value))
}

async fn begin(socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> SendRequest<Bytes> {
    let mut builder = Builder::new();
    // Until the proxy's limit has arrived.
    let (sender, connection) = builder.initial_max_send_streams(100).handshake(socket).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn begin_tls(socket: TcpStream, name: &str, config: Arc<ClientConfig>) -> SendRequest<Bytes> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = TlsConnector::from(config).connect(name, socket).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    begin(stream).await
}

/// Sends a request with its whole body.
async fn send(sender: SendRequest<Bytes>, request: Request<Sent>) -> Result<SentStream, h2::Error> {
    let (head, body) = request.into_parts();
    let is_whole = body.pieces.is_empty() && !body.is_endless;
    let (response, mut sending) = sender.ready().await?.send_request(Request::from_parts(head, ()), is_whole)?;
    body.send(&mut sending);
    Ok(SentStream { response, _sending: sending })
}

async fn read(stream: SentStream) -> (Vec<Interim>, Response, HeaderMap) {
    let mut response = stream.response;
    let mut interim = Vec::new();
    let answered = poll_fn(|context| {
        while let Poll::Ready(Some(Ok(hint))) = response.poll_informational(context) {
            interim.push((hint.status(), hint.headers().clone()));
        }
        Pin::new(&mut response).poll(context)
    });
    let (head, mut incoming) = answered.await.unwrap().into_parts();
    let mut read = response_of(&head);
    while let Some(bytes) = incoming.data().await {
        let Ok(bytes) = bytes else {
            read.complete = false;
            return (interim, read, HeaderMap::new());
        };
        let _ = incoming.flow_control().release_capacity(bytes.len());
        read.body.extend_from_slice(&bytes);
    }
    let trailers = incoming.trailers().await;
    read.complete = trailers.is_ok();
    (interim, read, trailers.ok().flatten().unwrap_or_default())
}

/// Returns a response without a body.
fn response_of(head: &http::response::Parts) -> Response {
    let fields = head.headers.iter();
    let fields = fields.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    Response { status: head.status.as_u16(), fields, body: Vec::new(), complete: true }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
