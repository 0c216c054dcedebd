//! The client's side of a connection that carries bytes other than HTTP: a tunnel, or a connection after an upgrade.
//!
//! Owns: the common interface of HTTP/1.1 connections and HTTP/2 streams that carry such bytes.

use larder_device::IgnorePoison;
use std::{
    io,
    pin::Pin,
    sync::Mutex,
    task::{Context, Poll},
};

use http::Request;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::oneshot,
};

use crate::{
    ground::{
        http2::pipe::{Http2Pipe, OpeningPipe},
        received_body::IncomingBody,
    },
    road::client::socket::{ClientSocket, RewoundStream},
};

/// The client's side of a tunnel or upgrade, which carries bytes once the response to its request was sent.
pub(crate) enum PendingOpaque {
    /// The socket of an HTTP/1.1 connection.
    Http1(oneshot::Receiver<SwitchedSocket>),
    /// A stream of an HTTP/2 connection.
    Http2(Box<OpeningPipe>),
    /// The request was neither a CONNECT nor an upgrade.
    Missing,
}

/// The client's side of an open tunnel or upgrade.
pub(crate) enum OpaqueStream {
    Http1(Box<SwitchedSocket>),
    Http2(Http2Pipe),
}

/// Passes on the socket of an HTTP/1.1 connection when it switches to another protocol, if somebody waits for it.
#[derive(Default)]
pub(crate) struct SwitchTaker(Mutex<Option<oneshot::Sender<SwitchedSocket>>>);

/// The socket of a connection that switched protocols. It first returns the bytes that were already read.
type SwitchedSocket = RewoundStream<ClientSocket>;

impl SwitchTaker {
    /// Hands over the socket, or closes it if nobody waits for it.
    pub(crate) fn give(&self, socket: SwitchedSocket) {
        let taker = self.0.lock().ignore_poison().take();
        let _ = taker.map(|taker| taker.send(socket));
    }

    /// Cancels the wait for the socket, because the connection ends without switching.
    pub(crate) fn close(&self) {
        *self.0.lock().ignore_poison() = None;
    }
}

impl PendingOpaque {
    /// Prepares the client's side for a CONNECT or an upgrade. `taker` is that of the client's connection, for
    /// HTTP/1.1.
    pub(crate) fn of(request: &mut Request<IncomingBody>, taker: &SwitchTaker) -> Self {
        match request.body_mut() {
            IncomingBody::Http1(_) => {
                let (sender, receiver) = oneshot::channel();
                *taker.0.lock().ignore_poison() = Some(sender);
                Self::Http1(receiver)
            }
            IncomingBody::Opaque(pipe) => pipe.take().map_or(Self::Missing, Self::Http2),
            IncomingBody::Http2(_) => Self::Missing,
        }
    }

    /// Waits until the response was sent, and returns the client's side.
    ///
    /// # Errors
    /// The client has left, or the response refused the tunnel or upgrade.
    pub(crate) async fn opened(self) -> io::Result<OpaqueStream> {
        match self {
            Self::Http1(socket) => {
                let socket = socket.await.map_err(|_| io::ErrorKind::BrokenPipe)?;
                Ok(OpaqueStream::Http1(Box::new(socket)))
            }
            Self::Http2(pipe) => {
                let left = || io::Error::from(io::ErrorKind::BrokenPipe);
                pipe.opened().await.map(OpaqueStream::Http2).ok_or_else(left)
            }
            Self::Missing => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl AsyncRead for OpaqueStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Http1(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Http2(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for OpaqueStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Http1(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Http2(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Http1(stream) => Pin::new(stream).poll_flush(cx),
            Self::Http2(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Http1(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Http2(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
