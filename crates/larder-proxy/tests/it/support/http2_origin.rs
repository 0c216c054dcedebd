//! An HTTP/2 origin, plain or over TLS, that can be made to refuse streams and to end connections.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use h2::Reason;
use http::{HeaderMap, Request, Response};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

/// The origin's reaction to a request, chosen by the request's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Answers with the target as the body, and trailers.
    Answer,
    /// Reports that it did not process the request.
    Refuse,
    /// Takes no more requests on this connection, this one among them.
    GoAway,
    /// Never answers.
    Ignore,
    /// Sends hints, then answers.
    Hint,
    /// Takes an extended CONNECT and echoes its bytes, but denies one to `/denied`. If this is the reaction to the first
    /// request, the origin's settings permit extended CONNECT.
    Echo,
}

/// A listening origin.
pub(crate) struct Http2Origin {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    deed: Box<dyn Fn(usize) -> Deed + Send + Sync>,
    received: Mutex<Vec<(Request<()>, Bytes)>>,
    /// The trailers of the last request that had some.
    trailers: Mutex<HeaderMap>,
    connections: AtomicUsize,
}

impl Http2Origin {
    /// Starts an origin on a thread that ends with the process.
    pub(crate) fn start(tls: Option<ServerConfig>, deed: impl Fn(usize) -> Deed + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared {
            deed: Box::new(deed),
            received: Mutex::default(),
            trailers: Mutex::default(),
            connections: AtomicUsize::new(0),
        });
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).unwrap();
                let acceptor = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
                loop {
                    let (socket, _) = listener.accept().await.unwrap();
                    serving.connections.fetch_add(1, SeqCst);
                    let serving = Arc::clone(&serving);
                    let acceptor = acceptor.clone();
                    tokio::spawn(async move {
                        match acceptor {
                            Some(acceptor) => {
                                if let Ok(stream) = acceptor.accept(socket).await {
                                    serving.serve(stream).await
                                }
                            }
                            None => serving.serve(socket).await,
                        }
                    });
                }
            });
        });
        Self { address, shared }
    }

    pub(crate) fn received(&self) -> Vec<(String, HeaderMap, Bytes)> {
        let received = self.shared.received.lock().unwrap();
        received
            .iter()
            .map(|(head, body)| (format!("{} {}", head.method(), head.uri()), head.headers().clone(), body.clone()))
            .collect()
    }

    pub(crate) fn trailers(&self) -> HeaderMap {
        self.shared.trailers.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(SeqCst)
    }
}

impl Shared {
    async fn serve(self: Arc<Self>, socket: impl AsyncRead + AsyncWrite + Unpin) {
        let mut builder = h2::server::Builder::new();
        if (self.deed)(0) == Deed::Echo {
            builder.enable_connect_protocol();
        }
        let Ok(mut connection) = builder.handshake(socket).await else { return };
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let (head, mut incoming) = request.into_parts();
            let number = {
                let mut received = self.received.lock().unwrap();
                received.push((Request::from_parts(head.clone(), ()), Bytes::new()));
                received.len() - 1
            };
            match (self.deed)(number) {
                Deed::Ignore => {
                    tokio::spawn(async move {
                        let _held = (respond, incoming);
                        std::future::pending::<()>().await;
                    });
                }
                Deed::Refuse => respond.send_reset(Reason::REFUSED_STREAM),
                Deed::GoAway => {
                    respond.send_reset(Reason::REFUSED_STREAM);
                    connection.graceful_shutdown();
                }
                Deed::Echo if head.uri.path() == "/denied" => {
                    let denied = Response::builder().status(403).body(()).unwrap();
                    respond.send_response(denied, false).unwrap().send_data("no".into(), true).unwrap();
                }
                Deed::Echo => {
                    let mut sending = respond.send_response(Response::new(()), false).unwrap();
                    tokio::spawn(async move {
                        while let Some(Ok(bytes)) = incoming.data().await {
                            incoming.flow_control().release_capacity(bytes.len()).unwrap();
                            sending.send_data(bytes, false).unwrap();
                        }
                        let _ = sending.send_data(Bytes::new(), true);
                    });
                }
                deed @ (Deed::Answer | Deed::Hint) => {
                    if deed == Deed::Hint {
                        let hint = Response::builder().status(103).header("link", "</a.css>; rel=preload");
                        respond.send_informational(hint.body(()).unwrap()).unwrap();
                    }
                    let this = Arc::clone(&self);
                    tokio::spawn(async move {
                        let mut body = Vec::new();
                        while let Some(Ok(bytes)) = incoming.data().await {
                            let _ = incoming.flow_control().release_capacity(bytes.len());
                            body.extend_from_slice(&bytes);
                        }
                        this.received.lock().unwrap()[number].1 = body.into();
                        if let Ok(Some(trailers)) = incoming.trailers().await {
                            *this.trailers.lock().unwrap() = trailers;
                        }
                        let response = Response::builder().header("cache-control", "max-age=60").body(()).unwrap();
                        let mut sending = respond.send_response(response, false).unwrap();
                        let _ = sending.send_data(head.uri.path().to_owned().into(), false);
                        let trailers = [("x-sum".parse().unwrap(), "7".parse().unwrap())].into_iter().collect();
                        let _ = sending.send_trailers(trailers);
                    });
                }
            }
        }
    }
}
